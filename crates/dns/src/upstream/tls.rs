//! Whom to trust as an upstream over TLS.

use std::net::SocketAddr;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};

/// Why no upstream can be asked over TLS.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// No authority is known, so nobody can be trusted.
    #[error("no certificate authority was found; mount a bundle and name it in SSL_CERT_FILE ({0})")]
    NoAuthority(String),
    /// The TLS library refuses its own settings.
    #[error("the TLS client cannot be set up: {0}")]
    Setup(#[from] rustls::Error),
}

/// A client that trusts the authorities of the host (`SSL_CERT_FILE`, `SSL_CERT_DIR`, else the system's).
pub fn default_client() -> Result<Arc<ClientConfig>, TlsError> {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let errors: Vec<String> = found.errors.iter().map(ToString::to_string).collect();
        return Err(TlsError::NoAuthority(errors.join("; ")));
    }
    // The provider is named, since a process-wide default may not have been chosen.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

/// The name that the certificate must carry: the one given, else the address.
pub(super) fn server_name(address: SocketAddr, name: Option<&str>) -> Option<ServerName<'static>> {
    match name {
        Some(name) => ServerName::try_from(name.to_owned()).ok(),
        None => Some(ServerName::IpAddress(address.ip().into())),
    }
}
