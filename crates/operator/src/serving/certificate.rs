//! The certificate of a manager. Pure but for randomness: the time is passed in.
//!
//! It is its own authority, so that there is no further key that could be lost. The one before stays trusted beside
//! it: replicas take a new one up at different moments.

use jiff::{SignedDuration, Timestamp, tz::TimeZone};
use rcgen::{CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair, date_time_ymd};

/// How long a certificate is valid.
const LIFETIME: SignedDuration = SignedDuration::from_hours(365 * 24);
/// How long before its end it is replaced.
const MARGIN: SignedDuration = SignedDuration::from_hours(90 * 24);

/// A certificate with its key, as it is kept.
#[derive(Clone, PartialEq, Eq)]
pub struct Certificate {
    /// The certificate, in PEM.
    pub certificate: String,
    /// Its key, in PEM.
    pub key: String,
    /// What others have to trust, in PEM: this certificate and the one before.
    pub trusted: String,
    /// The names that it is for.
    pub names: Vec<String>,
    /// When it is to be replaced.
    pub renew_at: Timestamp,
}

impl Certificate {
    /// A new certificate for these names. `before` is the one that it replaces.
    pub fn new(names: &[String], before: Option<&Certificate>, now: Timestamp) -> Result<Self, rcgen::Error> {
        let mut params = CertificateParams::new(names.to_vec())?;
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "oooi-manager");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let date = |at: Timestamp| {
            let day = at.to_zoned(TimeZone::UTC).date();
            date_time_ymd(
                day.year().into(),
                day.month().unsigned_abs(),
                day.day().unsigned_abs(),
            )
        };
        // A day back: clocks differ, and dates have no hours here.
        params.not_before = date(now - SignedDuration::from_hours(24));
        params.not_after = date(now + LIFETIME);
        let key = KeyPair::generate()?;
        let certificate = params.self_signed(&key)?.pem();
        let old = before
            .map(|before| before.certificate.as_str())
            .unwrap_or_default();
        Ok(Certificate {
            trusted: format!("{certificate}{old}"),
            certificate,
            key: key.serialize_pem(),
            names: names.to_vec(),
            renew_at: now + LIFETIME - MARGIN,
        })
    }

    /// When it ends: dates have no hours here.
    pub fn ends_at(&self) -> Timestamp {
        let day = (self.renew_at + MARGIN).to_zoned(TimeZone::UTC).date();
        day.to_zoned(TimeZone::UTC)
            .map_or(self.renew_at, |midnight| midnight.timestamp())
    }

    /// Whether it can be used for these names for a while.
    pub fn is_good(&self, names: &[String], now: Timestamp) -> bool {
        self.names == names && now < self.renew_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Vec<String> {
        vec!["oooi-webhook.oooi-system.svc".to_owned()]
    }

    #[test]
    fn a_certificate_is_replaced_in_time_or_for_other_names() {
        let now: Timestamp = "2026-11-16T00:00:00Z".parse().unwrap();
        let certificate = Certificate::new(&names(), None, now).unwrap();
        assert!(certificate.is_good(&names(), now));
        assert!(!certificate.is_good(&["other".to_owned()], now));
        assert!(certificate.is_good(&names(), now + SignedDuration::from_hours(274 * 24)));
        assert!(!certificate.is_good(&names(), now + SignedDuration::from_hours(276 * 24)));
        assert_eq!(certificate.ends_at().to_string(), "2027-11-16T00:00:00Z");
    }

    #[test]
    fn the_one_before_stays_trusted() {
        let now = Timestamp::UNIX_EPOCH + SignedDuration::from_hours(24 * 365 * 50);
        let first = Certificate::new(&names(), None, now).unwrap();
        let second = Certificate::new(&names(), Some(&first), now).unwrap();
        assert_ne!(first.certificate, second.certificate);
        assert!(
            second.trusted.starts_with(&second.certificate) && second.trusted.ends_with(&first.certificate)
        );
        let third = Certificate::new(&names(), Some(&second), now).unwrap();
        assert!(!third.trusted.contains(&first.certificate), "not for ever");
    }
}
