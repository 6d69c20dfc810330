//! Connections through the gateway: who asks for a name, and who answers.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use rustls::{ClientConfig, ClientConnection, RootCertStore};

use crate::Failure;

const PATIENCE: Duration = Duration::from_secs(1);

/// A place where connections end: it answers a hello with its letter.
pub(crate) struct Place {
    pub(crate) address: SocketAddr,
    pub(crate) letter: u8,
}

impl Place {
    pub(crate) fn open(ip: &str, letter: u8) -> Result<Self, Failure> {
        let listener = TcpListener::bind((ip, 0))?;
        let address = listener.local_addr()?;
        std::thread::spawn(move || {
            for mut connection in listener.incoming().flatten() {
                // Read first: closing on unread bytes would reset the connection, and the letter with it.
                let mut hello = [0; 4096];
                let _ = connection.read(&mut hello);
                let _ = connection.write_all(&[letter]);
            }
        });
        Ok(Self { address, letter })
    }
}

/// A real hello that asks for a name.
pub(crate) fn hello(name: &str) -> Result<Vec<u8>, Failure> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    let mut client = ClientConnection::new(Arc::new(config), name.to_owned().try_into()?)?;
    let mut bytes = Vec::new();
    client.write_tls(&mut bytes)?;
    Ok(bytes)
}

/// The letter of whoever answers; `None` when nobody does.
pub(crate) fn ask(gateway: SocketAddr, hello: &[u8]) -> Option<u8> {
    let mut connection = TcpStream::connect_timeout(&gateway, PATIENCE).ok()?;
    connection.set_read_timeout(Some(PATIENCE)).ok()?;
    connection.write_all(hello).ok()?;
    let mut letter = [0];
    connection.read_exact(&mut letter).ok()?;
    Some(letter[0])
}
