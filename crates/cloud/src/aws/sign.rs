//! Signature version 4 of AWS, for a form that is posted. Pure.

use http::HeaderValue;
use http::header::{AUTHORIZATION, HeaderName};
use jiff::Timestamp;
use ring::{digest, hmac};
use secrecy::{ExposeSecret, SecretString};

/// Who signs.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    pub(super) id: String,
    pub(super) secret: SecretString,
    /// With keys that were given for a while.
    pub(super) token: Option<SecretString>,
}

/// What a signature is good for.
pub(super) struct Scope<'a> {
    pub(super) host: &'a str,
    pub(super) region: &'a str,
    pub(super) service: &'a str,
}

/// The type of every body that is signed here.
pub(super) const FORM: &str = "application/x-www-form-urlencoded; charset=utf-8";

/// The headers that a form needs. None if a key has characters that no header can have.
pub(super) fn headers(
    keys: &Keys,
    scope: &Scope<'_>,
    content_type: &str,
    body: &str,
    now: Timestamp,
) -> Option<Vec<(HeaderName, HeaderValue)>> {
    let Scope {
        host,
        region,
        service,
    } = scope;
    let time = now.strftime("%Y%m%dT%H%M%SZ").to_string();
    let day = now.strftime("%Y%m%d").to_string();
    let token = keys.token.as_ref().map(ExposeSecret::expose_secret);

    let mut signed = vec![
        ("content-type", content_type),
        ("host", host),
        ("x-amz-date", time.as_str()),
    ];
    signed.extend(token.map(|token| ("x-amz-security-token", token)));
    let names: Vec<&str> = signed.iter().map(|(name, _)| *name).collect();
    let names = names.join(";");
    let lines: String = signed
        .iter()
        .map(|(name, value)| format!("{name}:{value}\n"))
        .collect();
    let canonical = format!("POST\n/\n\n{lines}\n{names}\n{}", hash(body));
    let grant = format!("{day}/{region}/{service}/aws4_request");
    let to_sign = format!("AWS4-HMAC-SHA256\n{time}\n{grant}\n{}", hash(&canonical));

    let secret = format!("AWS4{}", keys.secret.expose_secret());
    let mut key = mac(secret.as_bytes(), &day);
    for part in [*region, *service, "aws4_request"] {
        key = mac(key.as_ref(), part);
    }
    let signature = hex(mac(key.as_ref(), &to_sign).as_ref());
    let authorization = format!(
        "AWS4-HMAC-SHA256 Credential={}/{grant}, SignedHeaders={names}, Signature={signature}",
        keys.id
    );
    let mut headers = vec![
        (
            HeaderName::from_static("x-amz-date"),
            HeaderValue::from_str(&time).ok()?,
        ),
        (AUTHORIZATION, sensitive(&authorization)?),
    ];
    if let Some(token) = token {
        headers.push((HeaderName::from_static("x-amz-security-token"), sensitive(token)?));
    }
    Some(headers)
}

fn sensitive(text: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(text).ok()?;
    value.set_sensitive(true);
    Some(value)
}

fn mac(key: &[u8], text: &str) -> hmac::Tag {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes())
}

fn hash(text: &str) -> String {
    hex(digest::digest(&digest::SHA256, text.as_bytes()).as_ref())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn authorization(token: Option<&str>) -> String {
        let keys = Keys {
            id: "AKIDEXAMPLE".into(),
            secret: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY".to_owned().into(),
            token: token.map(|text| text.to_owned().into()),
        };
        let scope = Scope {
            host: "example.amazonaws.com",
            region: "us-east-1",
            service: "service",
        };
        let now = "2015-08-30T12:36:00Z".parse().unwrap();
        let form = "application/x-www-form-urlencoded";
        let headers = headers(&keys, &scope, form, "Param1=value1", now).unwrap();
        let found = headers.iter().find(|(name, _)| name == AUTHORIZATION).unwrap();
        assert!(found.1.is_sensitive());
        found.1.to_str().unwrap().to_owned()
    }

    /// The case `post-x-www-form-urlencoded` of AWS's own test suite for this signature.
    #[test]
    fn a_form_is_signed_as_in_the_suite_of_aws() {
        assert_eq!(
            authorization(None),
            "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, \
             SignedHeaders=content-type;host;x-amz-date, \
             Signature=ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a"
        );
    }

    #[test]
    fn a_token_is_signed_too() {
        let with = authorization(Some("TOKEN"));
        assert!(with.contains("host;x-amz-date;x-amz-security-token"), "{with}");
    }

    #[test]
    fn keys_do_not_show_what_is_secret() {
        let keys = Keys {
            id: "AKID".into(),
            secret: "hidden-key".to_owned().into(),
            token: Some("hidden-token".to_owned().into()),
        };
        assert!(!format!("{keys:?}").contains("hidden"));
    }
}
