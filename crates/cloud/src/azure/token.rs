//! Who we are for Azure: the Secret's service principal, by its own secret or by a token of the cluster.

use std::collections::BTreeMap;

use http::{HeaderValue, Request};
use jiff::{SignedDuration, Timestamp};
use secrecy::{ExposeSecret, SecretString};
use tokio::sync::{Mutex, OnceCell};

use super::answer;
use super::place::{self, Login};
use crate::SecretReader;
use crate::error::{Error, shown};
use crate::form::{Form, escape};
use crate::http::{Http, body};

/// Tokens are got anew so long before they end.
const EARLY: SignedDuration = SignedDuration::from_mins(5);

/// A service principal.
#[derive(Clone, Debug)]
pub(super) struct Principal {
    tenant: String,
    client: String,
    proof: Proof,
}

/// How it shows who it is.
#[derive(Clone, Debug)]
enum Proof {
    Secret(SecretString),
    /// A file with a token of the cluster.
    TokenFile(String),
}

/// The principal of a Secret.
pub(super) fn principal(secret: Option<&BTreeMap<String, Vec<u8>>>) -> Result<Principal, String> {
    let secret = secret.ok_or(
        "there is no Secret: write one with azure_client_id, azure_client_secret and azure_tenant_id",
    )?;
    let get = |key: &str| {
        let text = String::from_utf8(secret.get(key)?.clone()).ok()?;
        Some(text.trim().to_owned()).filter(|text| !text.is_empty())
    };
    let need = |key: &str| get(key).ok_or_else(|| format!("the Secret lacks {key}"));
    let proof = match (get("azure_client_secret"), get("azure_federated_token_file")) {
        (Some(secret), _) => Proof::Secret(secret.into()),
        (None, Some(file)) => Proof::TokenFile(file),
        (None, None) => {
            return Err("the Secret lacks azure_client_secret, or azure_federated_token_file instead".into());
        }
    };
    Ok(Principal {
        tenant: need("azure_tenant_id")?,
        client: need("azure_client_id")?,
        proof,
    })
}

/// Gets tokens, and keeps them while they are good.
pub(super) struct Tokens {
    pub(super) http: Http,
    pub(super) secret: SecretReader,
    /// Whom they are for.
    pub(super) manager: String,
    /// Who gives them, once that is known.
    pub(super) login: OnceCell<Login>,
    /// The token, until when it is good, and for which client it was given.
    pub(super) kept: Mutex<Option<(HeaderValue, Timestamp, String)>>,
}

impl Tokens {
    /// The value of the header that shows who we are.
    pub(super) async fn bearer(&self, now: Timestamp) -> Result<HeaderValue, Error> {
        let lacking = |lacking: String| Error::NoCredentials {
            cloud: "Azure",
            lacking,
        };
        let principal = principal((self.secret)().as_ref()).map_err(lacking)?;
        let mut kept = self.kept.lock().await;
        if let Some((header, until, client)) = &*kept
            && now + EARLY < *until
            && *client == principal.client
        {
            return Ok(header.clone());
        }
        let login = self.login.get_or_try_init(|| self.who_gives()).await?;
        let form = Form::default()
            .with("client_id", &principal.client)
            .with("grant_type", "client_credentials")
            .with(
                "scope",
                format!("{}/.default", login.audience.trim_end_matches('/')),
            );
        let form = match &principal.proof {
            Proof::Secret(secret) => form.with("client_secret", secret.expose_secret()),
            Proof::TokenFile(file) => {
                let token = tokio::fs::read_to_string(file).await;
                let token =
                    token.map_err(|error| lacking(format!("the token in {file} cannot be read: {error}")))?;
                form.with(
                    "client_assertion_type",
                    "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
                )
                .with("client_assertion", token.trim())
            }
        };
        let url = format!(
            "{}/{}/oauth2/v2.0/token",
            login.authority,
            escape(&principal.tenant)
        );
        let (header, seconds) = self.ask(&url, &form).await?;
        let until = now + SignedDuration::from_secs(i64::from(seconds));
        *kept = Some((header.clone(), until, principal.client));
        Ok(header)
    }

    /// Asks the resource manager who gives tokens for it. It says so to everybody.
    async fn who_gives(&self) -> Result<Login, Error> {
        let call = "GET metadata/endpoints";
        let url = format!("{}/metadata/endpoints?api-version=2015-01-01", self.manager);
        let unreachable = |why: String| Error::Unreachable {
            call: call.into(),
            why,
        };
        let request = Request::get(url).body(body(String::new()));
        let request = request.map_err(|error| unreachable(error.to_string()))?;
        let answer = self.http.send(request).await.map_err(|lost| lost.error(call))?;
        if !answer.status.is_success() {
            return Err(unreachable(format!("the answer is {}", answer.status)));
        }
        place::login(&self.manager, &answer.text()).map_err(unreachable)
    }

    async fn ask(&self, url: &str, form: &Form) -> Result<(HeaderValue, u32), Error> {
        let call = "the request for a token";
        let request = Request::post(url)
            .header(http::header::CONTENT_TYPE, "application/x-www-form-urlencoded")
            .body(body(form.encode()))
            .map_err(|error| Error::Unreachable {
                call: call.into(),
                why: error.to_string(),
            })?;
        let answer = self.http.send(request).await.map_err(|lost| lost.error(call))?;
        let text = answer.text();
        if !answer.status.is_success() {
            let (code, message) = answer::fault(&text);
            let message = shown(&message);
            let call = call.to_owned();
            return Err(Error::Denied { call, code, message });
        }
        // What cannot be read is not shown: it may be a token.
        let unreadable = || Error::Unknown {
            call: call.to_owned(),
            why: "the answer has no access_token and expires_in".to_owned(),
        };
        let token: answer::Token = serde_json::from_str(&text).map_err(|_| unreadable())?;
        let mut header =
            HeaderValue::from_str(&format!("Bearer {}", token.access_token)).map_err(|_| unreadable())?;
        header.set_sensitive(true);
        Ok((header, token.expires_in))
    }

    /// Forgets a token that Azure did not take.
    pub(super) async fn forget(&self) {
        *self.kept.lock().await = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(pairs: &[(&str, &str)]) -> Result<Principal, String> {
        let pair = |(key, value): &(&str, &str)| ((*key).to_owned(), value.as_bytes().to_vec());
        principal(Some(&pairs.iter().map(pair).collect()))
    }

    #[test]
    fn a_principal_is_read_and_a_missing_key_is_named_without_any_value() {
        let all = [
            ("azure_client_id", "c"),
            ("azure_client_secret", "hidden"),
            ("azure_tenant_id", "t"),
        ];
        let principal = found(&all).unwrap();
        assert!(!format!("{principal:?}").contains("hidden"));
        for index in 0..all.len() {
            let mut some = all.to_vec();
            let (key, _) = some.remove(index);
            let why = found(&some).unwrap_err();
            assert!(why.contains(key) && !why.contains("hidden"), "{why}");
        }
        assert!(super::principal(None).unwrap_err().contains("azure_client_id"));
    }
}
