//! The ways to be known to AWS, and what is asked again, against a stand-in on loopback. EC2 itself is asked by the
//! operator's tests.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use oooi_cloud::aws::Aws;
use oooi_cloud::{Cloud, Environment, Error, Http};
use tokio::net::TcpListener;

#[derive(Default)]
struct Seen {
    /// Who signed each call to EC2, and with which token.
    signers: Vec<(String, Option<String>)>,
    /// How often a role was asked for.
    roles: usize,
    /// So many calls are put off.
    throttle: usize,
    /// Nobody is known.
    denies: bool,
}

const ROLE: &str = "<R><Credentials><AccessKeyId>ASIAROLE</AccessKeyId><SecretAccessKey>hidden</SecretAccessKey>\
    <SessionToken>session</SessionToken><Expiration>2099-01-01T00:00:00Z</Expiration></Credentials></R>";
const MACHINE: &str = r#"{"Code": "Success", "AccessKeyId": "ASIAMACHINE", "SecretAccessKey": "hidden",
    "Token": "machine", "Expiration": "2099-01-01T00:00:00Z"}"#;

async fn answer(
    State(seen): State<Arc<Mutex<Seen>>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: String,
) -> Response {
    let mut seen = seen.lock().unwrap();
    let header = |name: &str| Some(headers.get(name)?.to_str().unwrap().to_owned());
    let base = "/latest/meta-data/iam/security-credentials/";
    match (method, uri.path()) {
        (Method::PUT, "/latest/api/token") => "token-of-metadata".into_response(),
        (Method::GET, path) => {
            assert_eq!(header("x-aws-ec2-metadata-token").unwrap(), "token-of-metadata");
            match path.strip_prefix(base).unwrap() {
                "" => "worker-role\n".into_response(),
                "worker-role" => MACHINE.into_response(),
                other => panic!("{other}"),
            }
        }
        _ if body.contains("AssumeRoleWithWebIdentity") => {
            assert!(body.contains("RoleArn=arn%3Arole") && body.contains("WebIdentityToken=of-cluster"));
            seen.roles += 1;
            ROLE.into_response()
        }
        _ if seen.throttle > 0 => {
            seen.throttle -= 1;
            fault(503, "RequestLimitExceeded")
        }
        _ if seen.denies => fault(401, "AuthFailure"),
        _ => {
            let authorization = header("authorization").unwrap();
            let signer = authorization.split("Credential=").nth(1).unwrap();
            let signer = signer.split('/').next().unwrap().to_owned();
            seen.signers.push((signer, header("x-amz-security-token")));
            "<R><reservationSet/></R>".into_response()
        }
    }
}

fn fault(status: u16, code: &str) -> Response {
    let text = format!("<R><Errors><Error><Code>{code}</Code><Message>said</Message></Error></Errors></R>");
    (StatusCode::from_u16(status).unwrap(), text).into_response()
}

async fn server() -> (Arc<Mutex<Seen>>, Environment) {
    let seen = Arc::new(Mutex::new(Seen::default()));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let router = Router::new().fallback(answer).with_state(seen.clone());
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    let environment = Environment {
        ec2: Some(url.clone()),
        sts: Some(url.clone()),
        metadata: Some(url),
        ..Environment::default()
    };
    (seen, environment)
}

fn aws(environment: Environment, secret: Option<&[(&str, &str)]>) -> Aws {
    let secret: Option<BTreeMap<String, Vec<u8>>> = secret.map(|pairs| {
        let pair = |(key, value): &(&str, &str)| ((*key).to_owned(), value.as_bytes().to_vec());
        pairs.iter().map(pair).collect()
    });
    let reader = Arc::new(move || secret.clone());
    Aws::new(
        Http::new(&environment).unwrap(),
        "eu-north-1",
        reader,
        environment,
    )
}

const KEYS: [(&str, &str); 2] = [
    ("aws_access_key_id", "AKIDSECRET"),
    ("aws_secret_access_key", "hidden"),
];

async fn look(aws: &Aws) -> Result<(), Error> {
    aws.look(&["i-1".to_owned()].into()).await.map(drop)
}

#[tokio::test]
async fn there_are_three_ways_to_be_known() {
    let (seen, environment) = server().await;
    look(&aws(environment.clone(), Some(&KEYS))).await.unwrap();

    let file = std::env::temp_dir().join(format!("oooi-token-{}", std::process::id()));
    std::fs::write(&file, "of-cluster\n").unwrap();
    let by_role = Environment {
        role: Some("arn:role".into()),
        token_file: Some(file.display().to_string()),
        ..environment.clone()
    };
    let by_role = aws(by_role, None);
    look(&by_role).await.unwrap();
    look(&by_role).await.unwrap();
    std::fs::remove_file(&file).unwrap();

    look(&aws(environment, None)).await.unwrap();
    let seen = seen.lock().unwrap();
    let signers: Vec<(&str, Option<&str>)> = seen
        .signers
        .iter()
        .map(|(signer, token)| (signer.as_str(), token.as_deref()))
        .collect();
    let expected = [
        ("AKIDSECRET", None),
        ("ASIAROLE", Some("session")),
        ("ASIAROLE", Some("session")),
        ("ASIAMACHINE", Some("machine")),
    ];
    assert_eq!(signers, expected);
    assert_eq!(seen.roles, 1, "keys for a while are kept for that while");
}

#[tokio::test]
async fn a_call_that_is_put_off_is_repeated_and_one_that_is_denied_is_not() {
    let (seen, environment) = server().await;
    let aws = aws(environment, Some(&KEYS));
    seen.lock().unwrap().throttle = 2;
    look(&aws).await.unwrap();
    assert_eq!(seen.lock().unwrap().throttle, 0);
    seen.lock().unwrap().denies = true;
    let error = look(&aws).await.unwrap_err();
    assert!(
        matches!(&error, Error::Denied { code, .. } if code == "AuthFailure"),
        "{error}"
    );
    assert!(!format!("{error} {error:?}").contains("hidden"));
}

#[tokio::test]
async fn who_is_known_by_nothing_is_told_all_that_was_tried() {
    let nowhere = Environment {
        metadata: Some("http://127.0.0.1:1".into()),
        ..Environment::default()
    };
    let error = look(&aws(nowhere, None)).await.unwrap_err();
    assert_eq!(error.reason(), "CredentialsMissing");
    let text = error.to_string();
    for way in ["Secret", "AWS_WEB_IDENTITY_TOKEN_FILE", "machine's own role"] {
        assert!(text.contains(way), "{text}");
    }
}
