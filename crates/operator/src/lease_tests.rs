//! A candidate against an API server in memory whose answers fail, get lost or come late.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use http::{Method, Request, Response};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::client::Body;
use serde_json::{Value, json};

use super::*;
use crate::apply::{Error, Writer};

const LIMIT: Duration = Duration::from_secs(20);
const TERM: Duration = Duration::from_secs(3);

/// What happens to a write.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// It is done.
    Done,
    /// It is refused, with an error that says nothing.
    Fails,
    /// It is done, and nobody hears of it.
    AnswerLost,
    /// It is neither done nor answered.
    Lost,
}

/// An API server with one Lease, in versions.
#[derive(Clone)]
struct Server {
    lease: Arc<Mutex<Option<Value>>>,
    writes: Arc<AtomicUsize>,
    fate: fn(usize) -> Fate,
}

impl Server {
    fn new(fate: fn(usize) -> Fate) -> Self {
        Server {
            lease: Arc::default(),
            writes: Arc::default(),
            fate,
        }
    }

    fn client(&self) -> Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move { server.answer(request).await }
        });
        Client::new(service, "default")
    }

    async fn answer(&self, request: Request<Body>) -> Result<Response<Body>, kube::Error> {
        let is_read = request.method() == Method::GET;
        let is_new = request.method() == Method::POST;
        let body = request.into_body().collect_bytes().await?;
        if is_read {
            return Ok(answer(self.lease.lock().unwrap().clone().ok_or(404)));
        }
        let fate = (self.fate)(self.writes.fetch_add(1, Ordering::SeqCst));
        match fate {
            Fate::Fails => return Ok(answer(Err(500))),
            Fate::Lost => return std::future::pending().await,
            Fate::Done | Fate::AnswerLost => {}
        }
        let written = self.write(is_new, serde_json::from_slice(&body).unwrap());
        if fate == Fate::AnswerLost {
            return std::future::pending().await;
        }
        Ok(answer(written))
    }

    fn write(&self, is_new: bool, mut wanted: Value) -> Result<Value, u16> {
        let mut lease = self.lease.lock().unwrap();
        let version = lease
            .as_ref()
            .map(|lease| lease["metadata"]["resourceVersion"].clone());
        if is_new != version.is_none()
            || !is_new && version != Some(wanted["metadata"]["resourceVersion"].clone())
        {
            return Err(409);
        }
        let number: u64 = version.map_or(0, |version| version.as_str().unwrap().parse().unwrap());
        wanted["metadata"]["resourceVersion"] = json!((number + 1).to_string());
        *lease = Some(wanted.clone());
        Ok(wanted)
    }
}

fn answer(result: Result<Value, u16>) -> Response<Body> {
    let (code, body) = match result {
        Ok(value) => (200, value),
        Err(code) => (
            code,
            json!({
                "kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "no", "code": code,
                "reason": match code { 404 => "NotFound", 409 => "Conflict", _ => "InternalError" },
            }),
        ),
    };
    let body = Body::from(body.to_string().into_bytes());
    Response::builder().status(code).body(body).unwrap()
}

/// A candidate that runs against such a server, and whether it leads.
fn run(server: &Server) -> (tokio::task::JoinHandle<()>, watch::Receiver<Term>) {
    let candidate = Candidate {
        namespace: "n".into(),
        name: "manager".into(),
        identity: "a".into(),
        term: TERM,
    };
    let (leading, told) = watch::channel(Term::Over);
    let client = server.client();
    let task = tokio::spawn(async move { candidate.lead(client, &leading).await });
    (task, told)
}

async fn until_it_leads(leading: &mut watch::Receiver<Term>) {
    tokio::time::timeout(LIMIT, leading.wait_for(|term| term.runs()))
        .await
        .unwrap()
        .unwrap();
}

/// Leads, and waits for so many writes.
async fn leads_after(server: &Server, writes: usize) {
    let (task, mut leading) = run(server);
    until_it_leads(&mut leading).await;
    let reached = async {
        while server.writes.load(Ordering::SeqCst) < writes && leading.borrow().runs() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(LIMIT, reached).await.unwrap();
    assert!(
        leading.borrow().runs(),
        "leadership was lost before {writes} writes"
    );
    task.abort();
}

#[tokio::test]
async fn a_renewal_that_fails_is_tried_again_in_time() {
    leads_after(
        &Server::new(|write| if write == 1 { Fate::Fails } else { Fate::Done }),
        4,
    )
    .await;
}

#[tokio::test]
async fn a_renewal_without_an_answer_leaves_time_for_another() {
    leads_after(
        &Server::new(|write| if write == 1 { Fate::Lost } else { Fate::Done }),
        4,
    )
    .await;
}

#[tokio::test]
async fn a_renewal_whose_answer_is_lost_does_not_cost_leadership() {
    // It is found by the next one, which is refused for its version, and done with the version that is there.
    leads_after(
        &Server::new(|write| if write == 1 { Fate::AnswerLost } else { Fate::Done }),
        5,
    )
    .await;
}

#[tokio::test]
async fn a_leader_that_cannot_renew_leads_no_more() {
    let server = Server::new(|write| if write == 0 { Fate::Done } else { Fate::Fails });
    let (task, mut leading) = run(&server);
    until_it_leads(&mut leading).await;
    tokio::time::timeout(LIMIT, task).await.unwrap().unwrap();
    assert!(!leading.borrow().runs());
}

#[tokio::test]
async fn a_candidate_without_an_answer_asks_again() {
    let server = Server::new(|write| if write == 0 { Fate::Lost } else { Fate::Done });
    let (task, mut leading) = run(&server);
    until_it_leads(&mut leading).await;
    task.abort();
}

#[tokio::test]
async fn a_process_that_was_stopped_does_not_write_when_it_goes_on() {
    let server = Server::new(|_| Fate::Done);
    let (task, mut leading) = run(&server);
    until_it_leads(&mut leading).await;
    // As good as stopped: nothing renews, and nobody says that leadership is lost.
    task.abort();
    let ended = async {
        while leading.borrow().runs() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(LIMIT, ended).await.unwrap();
    assert_ne!(*leading.borrow(), Term::Over, "the channel is as it was left");
    let writes = server.writes.load(Ordering::SeqCst);
    let mut wanted = ConfigMap::default();
    wanted.metadata.name = Some("x".into());
    let writer = Writer::new(server.client(), "test", leading);
    let written = writer.status(&wanted, &json!({}), &json!({"ready": true})).await;
    assert!(matches!(written, Err(Error::NotLeading { .. })), "{written:?}");
    assert_eq!(server.writes.load(Ordering::SeqCst), writes);
}
