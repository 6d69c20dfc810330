//! The validating webhook: reads a review, asks [`judge`](super::judge), answers.
//!
//! It is there to help whoever writes an Infra, and not needed for anything: the controllers refuse the same by a
//! condition. So whatever cannot be read here is allowed, and the API server goes on when nobody answers.

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use futures_util::{StreamExt, future};
use kube::runtime::{WatchStreamExt, reflector, watcher};
use kube::{Api, Client, ResourceExt};
use oooi_api::Infra;
use oooi_api::foreign::NetworkAttachmentDefinition;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::judge::{full_name, judge};
use crate::infra::{Stores, Vlans};
use crate::presence::Presence;

/// Where the API server sends its reviews.
pub const PATH: &str = "/validate-infra";

/// What a webhook has at hand.
pub struct Webhook {
    /// The Infras and networks of the cluster.
    pub stores: Stores,
    /// Who writes derived Infras, which are not refused: their conditions say what is wrong.
    pub manager: Option<String>,
}

/// The pages of the webhook.
pub fn router(webhook: Webhook) -> Router {
    Router::new()
        .route(PATH, post(review))
        .with_state(Arc::new(webhook))
}

#[derive(Deserialize)]
struct Review {
    request: Request,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Request {
    uid: String,
    #[serde(default)]
    object: Value,
    #[serde(default)]
    old_object: Value,
    #[serde(default)]
    user_info: User,
}

#[derive(Default, Deserialize)]
struct User {
    #[serde(default)]
    username: String,
}

#[derive(Serialize)]
struct Answer {
    uid: String,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

async fn review(State(webhook): State<Arc<Webhook>>, body: Bytes) -> Response {
    let Ok(review) = serde_json::from_slice::<Review>(&body) else {
        return (StatusCode::BAD_REQUEST, "this is no AdmissionReview\n").into_response();
    };
    let answer = webhook.answer(review.request);
    let body = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": answer});
    ([(header::CONTENT_TYPE, "application/json")], body.to_string()).into_response()
}

/// The Infras and networks of a cluster, and what fills them, which ends only by being dropped. Every replica of the
/// manager answers, whether it leads or not.
pub fn follow(client: Client) -> (Stores, impl Future<Output = ()>) {
    let (infras, infra_writer) = reflector::store::<Infra>();
    let (networks, network_writer) = reflector::store::<NetworkAttachmentDefinition>();
    let work = async move {
        let (presence, presences) = Presence::of(client.clone());
        let everything = Api::all(client.clone());
        let infras = watcher(everything, watcher::Config::default())
            .default_backoff()
            .modify(|infra: &mut Infra| infra.managed_fields_mut().clear())
            .reflect(infra_writer)
            .for_each(|_| future::ready(()));
        let definitions = presence.while_served::<NetworkAttachmentDefinition, _>(move || {
            watcher(Api::all(client.clone()), watcher::Config::default())
        });
        let networks = definitions
            .default_backoff()
            .modify(|definition: &mut NetworkAttachmentDefinition| definition.managed_fields_mut().clear())
            .reflect(network_writer)
            .for_each(|_| future::ready(()));
        tokio::join!(presences, infras, networks);
    };
    (
        Stores {
            everywhere: infras.clone(),
            infras,
            networks,
            vlans: Vlans::default(),
        },
        work,
    )
}

impl Webhook {
    fn answer(&self, request: Request) -> Answer {
        let mut answer = Answer {
            uid: request.uid,
            allowed: true,
            status: None,
            warnings: Vec::new(),
        };
        let old = serde_json::from_value::<Infra>(request.old_object).ok();
        let Ok(infra) = serde_json::from_value::<Infra>(request.object) else {
            return answer; // a deletion, or a version that is not known here
        };
        let verdict = judge(&infra, old.as_ref(), &self.stores);
        answer.warnings = verdict.warnings;
        if verdict.refused.is_empty() {
            return answer;
        }
        let message = verdict.refused.join("; ");
        if self.manager.as_ref() == Some(&request.user_info.username) {
            answer.warnings.push(message);
            return answer;
        }
        tracing::info!(infra = full_name(&infra), message, "refused");
        answer.allowed = false;
        answer.status = Some(json!({"code": 422, "reason": "Invalid", "message": message}));
        answer
    }
}
