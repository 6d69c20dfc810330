//! Whom an upstream over TLS has to be.

use std::net::SocketAddr;

use rustls::pki_types::ServerName;
/// The name that the certificate must carry: the one given, else the address.
pub(super) fn server_name(address: SocketAddr, name: Option<&str>) -> Option<ServerName<'static>> {
    match name {
        Some(name) => ServerName::try_from(name.to_owned()).ok(),
        None => Some(ServerName::IpAddress(address.ip().into())),
    }
}
