//! Who we are for AWS: keys of the Secret, else a role for a token of the cluster, else the machine's own role.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use http::Request;
use jiff::{SignedDuration, Timestamp};
use secrecy::SecretString;
use serde::Deserialize;
use tokio::sync::Mutex;

use super::sign::Keys;
use super::{answer, ask};
use crate::error::{Error, shown};
use crate::http::{Http, body};
use crate::{Environment, SecretReader};

/// Keys are got anew so long before they end.
const EARLY: SignedDuration = SignedDuration::from_mins(5);

/// The machine's own service is near: it answers soon, or it is not there.
const METADATA_PATIENCE: Duration = Duration::from_secs(3);

/// Where keys come from.
#[derive(Clone, Debug)]
pub(super) enum Source {
    /// They are known.
    Keys(Keys),
    /// A role, for who holds the token in this file.
    WebIdentity { role: String, token: PathBuf },
    /// The role of the machine that we run on.
    Machine,
}

/// Where keys come from, by the Secret and the environment. A Secret that is there must be whole.
pub(super) fn source(
    secret: Option<&BTreeMap<String, Vec<u8>>>,
    environment: &Environment,
) -> Result<Source, String> {
    if let Some(secret) = secret {
        let get = |key: &str| {
            let text = String::from_utf8(secret.get(key)?.clone()).ok()?;
            Some(text.trim().to_owned()).filter(|text| !text.is_empty())
        };
        let file = get("credentials").map(|text| Profile::read(&text));
        let file = file.unwrap_or_default();
        let id = get("aws_access_key_id").or(file.id);
        let key = get("aws_secret_access_key").or(file.key);
        return match (id, key, file.role, file.token_file) {
            (Some(id), Some(key), ..) => Ok(Source::Keys(Keys {
                id,
                secret: key.into(),
                token: get("aws_session_token")
                    .or(file.token)
                    .map(SecretString::from),
            })),
            (None, None, Some(role), Some(token)) => Ok(Source::WebIdentity {
                role,
                token: token.into(),
            }),
            (Some(_), None, ..) => Err("the Secret lacks aws_secret_access_key".into()),
            (None, Some(_), ..) => Err("the Secret lacks aws_access_key_id".into()),
            (None, None, ..) => Err(
                "the Secret has neither aws_access_key_id and aws_secret_access_key nor `credentials` with role_arn \
                 and web_identity_token_file"
                    .into(),
            ),
        };
    }
    match (&environment.role, &environment.token_file) {
        (Some(role), Some(token)) => Ok(Source::WebIdentity {
            role: role.clone(),
            token: token.into(),
        }),
        _ => Ok(Source::Machine),
    }
}

/// The first profile of a credentials file.
#[derive(Default)]
struct Profile {
    id: Option<String>,
    key: Option<String>,
    token: Option<String>,
    role: Option<String>,
    token_file: Option<String>,
}

impl Profile {
    fn read(text: &str) -> Self {
        let mut profile = Profile::default();
        for line in text.lines() {
            let Some((key, value)) = line.split_once('=') else {
                continue;
            };
            let field = match key.trim() {
                "aws_access_key_id" => &mut profile.id,
                "aws_secret_access_key" => &mut profile.key,
                "aws_session_token" => &mut profile.token,
                "role_arn" => &mut profile.role,
                "web_identity_token_file" => &mut profile.token_file,
                _ => continue,
            };
            let value = value.trim().to_owned();
            field.get_or_insert(value);
        }
        profile
    }
}

/// Gets keys, and keeps those that were given for a while.
pub(super) struct Credentials {
    pub(super) http: Http,
    pub(super) secret: SecretReader,
    pub(super) environment: Environment,
    /// Where roles are given.
    pub(super) sts: String,
    pub(super) kept: Mutex<Option<(Keys, Timestamp)>>,
}

impl Credentials {
    pub(super) async fn keys(&self, now: Timestamp) -> Result<Keys, Error> {
        let secret = (self.secret)();
        let lacking = |lacking: String| Error::NoCredentials {
            cloud: "AWS",
            lacking,
        };
        let source = source(secret.as_ref(), &self.environment).map_err(lacking)?;
        if let Source::Keys(keys) = source {
            return Ok(keys);
        }
        let mut kept = self.kept.lock().await;
        if let Some((keys, until)) = &*kept
            && now + EARLY < *until
        {
            return Ok(keys.clone());
        }
        let given = match source {
            Source::Keys(keys) => return Ok(keys),
            Source::WebIdentity { role, token } => self.role(&role, &token).await?,
            Source::Machine => self.machine().await.map_err(|why| {
                lacking(format!(
                    "there is no Secret, no AWS_ROLE_ARN with AWS_WEB_IDENTITY_TOKEN_FILE, and the machine's own role \
                     cannot be had ({why}): give one of the three"
                ))
            })?,
        };
        *kept = Some(given.clone());
        Ok(given.0)
    }

    /// Forgets keys that AWS did not take.
    pub(super) async fn forget(&self) {
        *self.kept.lock().await = None;
    }

    async fn role(&self, role: &str, file: &PathBuf) -> Result<(Keys, Timestamp), Error> {
        let call = "AssumeRoleWithWebIdentity";
        let token = tokio::fs::read_to_string(file).await;
        let token = token.map_err(|error| Error::NoCredentials {
            cloud: "AWS",
            lacking: format!("the token in {} cannot be read: {error}", file.display()),
        })?;
        let request = Request::post(&self.sts)
            .header(http::header::CONTENT_TYPE, super::sign::FORM)
            .body(body(ask::role(role, token.trim()).encode()));
        let request = request.map_err(|error| Error::Unreachable {
            call: call.into(),
            why: error.to_string(),
        })?;
        let answer = self.http.send(request).await.map_err(|lost| lost.error(call))?;
        let text = answer.text();
        if !answer.status.is_success() {
            let (code, message) = answer::fault(&text).unwrap_or_default();
            return Err(Error::Denied {
                call: call.into(),
                code,
                message: shown(&message),
            });
        }
        answer::role(&text).map_err(|error| Error::Unknown {
            call: call.into(),
            why: error.to_string(),
        })
    }

    /// The role of the machine that we run on, by version 2 of its metadata service.
    async fn machine(&self) -> Result<(Keys, Timestamp), String> {
        let base = self.environment.metadata.as_deref();
        let base = base.unwrap_or("http://169.254.169.254").trim_end_matches('/');
        let token = Request::put(format!("{base}/latest/api/token"))
            .header("x-aws-ec2-metadata-token-ttl-seconds", "300");
        let token = self.ask_machine(token).await?;
        let get = |path: &str| {
            let path = format!("{base}/latest/meta-data/iam/security-credentials/{path}");
            self.ask_machine(Request::get(path).header("x-aws-ec2-metadata-token", token.trim()))
        };
        let roles = get("").await?;
        let role = roles.lines().next().map(str::trim).unwrap_or_default();
        let text = get(role).await?;
        let given: Given = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        let keys = Keys {
            id: given.id,
            secret: given.key.into(),
            token: Some(given.token.into()),
        };
        Ok((keys, given.expiration))
    }

    async fn ask_machine(&self, request: http::request::Builder) -> Result<String, String> {
        let request = request
            .body(body(String::new()))
            .map_err(|error| error.to_string())?;
        let lost = |lost| match lost {
            crate::http::Lost::NotSent(why) | crate::http::Lost::NoAnswer(why) => why,
        };
        let answer = self
            .http
            .send_within(request, METADATA_PATIENCE)
            .await
            .map_err(lost)?;
        match answer.status.is_success() {
            true => Ok(answer.text()),
            false => Err(format!("the metadata service says {}", answer.status)),
        }
    }
}

/// What the metadata service gives. It is never shown.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Given {
    #[serde(rename = "AccessKeyId")]
    id: String,
    #[serde(rename = "SecretAccessKey")]
    key: String,
    token: String,
    expiration: Timestamp,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(pairs: &[(&str, &str)]) -> BTreeMap<String, Vec<u8>> {
        let pair = |(key, value): &(&str, &str)| ((*key).to_owned(), value.as_bytes().to_vec());
        pairs.iter().map(pair).collect()
    }

    fn found(pairs: &[(&str, &str)]) -> Result<Source, String> {
        source(Some(&secret(pairs)), &Environment::default())
    }

    #[test]
    fn keys_come_from_the_secret_also_as_a_file() {
        let plain = [("aws_access_key_id", "AKID\n"), ("aws_secret_access_key", "k")];
        assert!(matches!(found(&plain), Ok(Source::Keys(keys)) if keys.id == "AKID"));
        let file = "[default]\naws_access_key_id = AKID\naws_secret_access_key = k=\n";
        assert!(matches!(found(&[("credentials", file)]), Ok(Source::Keys(keys)) if keys.id == "AKID"));
    }

    #[test]
    fn a_role_comes_from_the_secret_or_the_environment() {
        let file =
            "[default]\nrole_arn = arn:r\nweb_identity_token_file = /t\nsts_regional_endpoints = regional";
        assert!(
            matches!(found(&[("credentials", file)]), Ok(Source::WebIdentity { role, .. }) if role == "arn:r")
        );
        let environment = Environment {
            role: Some("arn:e".into()),
            token_file: Some("/t".into()),
            ..Environment::default()
        };
        assert!(
            matches!(source(None, &environment), Ok(Source::WebIdentity { role, .. }) if role == "arn:e")
        );
        assert!(matches!(
            source(None, &Environment::default()),
            Ok(Source::Machine)
        ));
    }

    /// The Go version printed the whole Secret into log, event and status.
    #[test]
    fn a_missing_credential_key_is_named_and_no_value_is_shown() {
        for pairs in [
            [("aws_access_key_id", "hidden"), ("other", "hidden")],
            [("aws_secret_access_key", "hidden"), ("other", "hidden")],
            [("credentials", "hidden"), ("other", "hidden")],
        ] {
            let why = found(&pairs).unwrap_err();
            assert!(why.contains("aws_") && !why.contains("hidden"), "{why}");
        }
    }
}
