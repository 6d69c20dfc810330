//! Who may read the metrics: whoever the API server knows and allows to `get` the path.

use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::api::PostParams;
use kube::{Api, Client};

/// Lets a request pass if its bearer token belongs to somebody who may make it.
pub async fn authorised(State(client): State<Client>, request: Request, next: Next) -> Response {
    let header = request.headers().get(header::AUTHORIZATION);
    let token = header.and_then(|value| value.to_str().ok()?.strip_prefix("Bearer ").map(str::to_owned));
    let path = request.uri().path().to_owned();
    match review(&client, token, &path).await {
        Ok(()) => next.run(request).await,
        Err((status, why)) => (status, why).into_response(),
    }
}

/// What is answered to somebody who may not.
pub type Refusal = (StatusCode, &'static str);

/// Asks the API server whose token this is, and whether they may `get` the path.
pub async fn review(client: &Client, token: Option<String>, path: &str) -> Result<(), Refusal> {
    const NO_TOKEN: Refusal = (
        StatusCode::UNAUTHORIZED,
        "send the token of a service account as bearer\n",
    );
    const UNKNOWN: Refusal = (
        StatusCode::UNAUTHORIZED,
        "the API server does not know this token\n",
    );
    const FORBIDDEN: Refusal = (
        StatusCode::FORBIDDEN,
        "a ClusterRole has to allow `get` of this nonResourceURL\n",
    );
    let failed = |error: kube::Error| {
        tracing::warn!(%error, "a request for metrics cannot be reviewed");
        let why = "the API server cannot review the request\n";
        (StatusCode::INTERNAL_SERVER_ERROR, why)
    };
    let token = token.ok_or(NO_TOKEN)?;
    let user = authenticate(client, token)
        .await
        .map_err(failed)?
        .ok_or(UNKNOWN)?;
    if may_get(client, user, path).await.map_err(failed)? {
        Ok(())
    } else {
        Err(FORBIDDEN)
    }
}

async fn authenticate(client: &Client, token: String) -> Result<Option<UserInfo>, kube::Error> {
    let review = TokenReview {
        spec: TokenReviewSpec {
            token: Some(token),
            ..TokenReviewSpec::default()
        },
        ..TokenReview::default()
    };
    let review = Api::all(client.clone())
        .create(&PostParams::default(), &review)
        .await?;
    let status = review.status.filter(|status| status.authenticated == Some(true));
    Ok(status.and_then(|status| status.user))
}

async fn may_get(client: &Client, user: UserInfo, path: &str) -> Result<bool, kube::Error> {
    let review = SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: user.username,
            groups: user.groups,
            uid: user.uid,
            extra: user.extra,
            non_resource_attributes: Some(NonResourceAttributes {
                path: Some(path.to_owned()),
                verb: Some("get".to_owned()),
            }),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    };
    let review = Api::<SubjectAccessReview>::all(client.clone())
        .create(&PostParams::default(), &review)
        .await?;
    Ok(review
        .status
        .is_some_and(|status| status.allowed && status.denied != Some(true)))
}
