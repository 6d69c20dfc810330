//! Whom to trust over TLS: the authorities that the host names or has, else those that browsers trust.
//!
//! The image has no files but its binary, so that a pod would trust nobody; what browsers trust is built in. Who names
//! authorities of their own (`SSL_CERT_FILE`, `SSL_CERT_DIR`) means these alone, and a bundle that cannot be read is an
//! error rather than a reason to trust others.

use std::sync::Arc;

use rustls::{ClientConfig, RootCertStore};
use rustls_native_certs::CertificateResult;

/// Why there is no TLS client.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// The authorities that were named cannot be had.
    #[error(
        "SSL_CERT_FILE or SSL_CERT_DIR names no certificate authority: mount a bundle there, or unset it{0}"
    )]
    NoAuthority(String),
    /// The TLS library refuses its own settings.
    #[error("the TLS client cannot be set up: {0}")]
    Setup(#[from] rustls::Error),
}

/// A TLS client that shows no certificate of its own.
pub fn client() -> Result<ClientConfig, TrustError> {
    let named = ["SSL_CERT_FILE", "SSL_CERT_DIR"]
        .iter()
        .any(|name| std::env::var_os(name).is_some());
    let roots = roots(rustls_native_certs::load_native_certs(), named)?;
    // The provider is named, since a process-wide default may not have been chosen.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(config)
}

/// The authorities of the host, and those of browsers where it has none and names none.
fn roots(found: CertificateResult, named: bool) -> Result<RootCertStore, TrustError> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() && named {
        let errors: String = found.errors.iter().map(|error| format!("; {error}")).collect();
        return Err(TrustError::NoAuthority(errors));
    }
    if roots.is_empty() {
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    }
    Ok(roots)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn a_host_without_authorities_trusts_those_of_browsers() {
        let trusted = roots(CertificateResult::default(), false).unwrap();
        assert_eq!(trusted.len(), webpki_roots::TLS_SERVER_ROOTS.len());
    }

    #[test]
    fn named_authorities_that_cannot_be_read_are_an_error_and_nobody_else_is_trusted() {
        let missing = std::path::Path::new("/nonexistent/bundle.pem");
        let found = rustls_native_certs::load_certs_from_paths(Some(missing), None);
        let refused = roots(found, true).unwrap_err().to_string();
        assert!(refused.contains("/nonexistent/bundle.pem"), "{refused}");
        assert!(
            roots(CertificateResult::default(), true).is_err(),
            "nothing was in it"
        );
    }
}
