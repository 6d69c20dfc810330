//! Backends behind the gateway, each with a name that its clients can tell.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

/// One certificate for every name of the tests, and its own authority.
pub struct Identity {
    pub certificate: CertificateDer<'static>,
    pub pem: String,
    key: PrivateKeyDer<'static>,
}

impl Identity {
    pub fn new(names: &[&str]) -> Self {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let signed = rcgen::generate_simple_self_signed(names).unwrap();
        let key = PrivateKeyDer::try_from(signed.signing_key.serialize_der()).unwrap();
        Self {
            certificate: signed.cert.der().clone(),
            pem: signed.cert.pem(),
            key,
        }
    }
}

/// A backend that runs until it is dropped; then its connections end abruptly too.
pub struct Backend {
    pub address: SocketAddr,
    _tasks: JoinSet<()>,
}

/// Accepts until dropped, and serves each connection by `serve`.
async fn accept<F, Fut>(serve: F) -> Backend
where
    F: Fn(TcpStream) -> Fut + Send + 'static,
    Fut: Future<Output = std::io::Result<()>> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                Ok((stream, _)) = listener.accept() => {
                    stream.set_nodelay(true).unwrap();
                    connections.spawn(serve(stream));
                }
                Some(_) = connections.join_next() => {}
            }
        }
    });
    Backend {
        address,
        _tasks: tasks,
    }
}

/// Answers `GET` with its name as an HTTP body; anything else with its name once and then what it was sent.
async fn converse(mut stream: impl AsyncRead + AsyncWrite + Unpin, name: Arc<str>) -> std::io::Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    let count = stream.read(&mut buffer).await?;
    if buffer[..count].starts_with(b"GET ") {
        let answer = format!(
            "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{name}",
            name.len()
        );
        stream.write_all(answer.as_bytes()).await?;
        return stream.shutdown().await;
    }
    stream.write_all(format!("{name}\n").as_bytes()).await?;
    stream.write_all(&buffer[..count]).await?;
    stream.flush().await?;
    loop {
        let count = stream.read(&mut buffer).await?;
        if count == 0 {
            return stream.shutdown().await;
        }
        stream.write_all(&buffer[..count]).await?;
        stream.flush().await?;
    }
}

fn acceptor(identity: &Identity) -> TlsAcceptor {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![identity.certificate.clone()], identity.key.clone_key())
        .unwrap();
    TlsAcceptor::from(Arc::new(config))
}

/// Ends TLS and tells its name.
pub async fn tls(name: &str, identity: &Identity) -> Backend {
    let acceptor = acceptor(identity);
    let name: Arc<str> = name.into();
    accept(move |stream| {
        let (acceptor, name) = (acceptor.clone(), name.clone());
        async move { converse(acceptor.accept(stream).await?, name).await }
    })
    .await
}

/// Ends TLS and speaks as much HTTP as an API server: a watch with an event, a long silence and another event; or an
/// upgrade, after which every byte is sent back.
pub async fn http(identity: &Identity, silence: Duration) -> Backend {
    let acceptor = acceptor(identity);
    accept(move |stream| {
        let acceptor = acceptor.clone();
        async move {
            let mut stream = BufReader::new(acceptor.accept(stream).await?);
            let mut upgrade = None;
            loop {
                let mut line = String::new();
                stream.read_line(&mut line).await?;
                match line.trim_end().split_once(": ") {
                    Some(("Upgrade", protocol)) => upgrade = Some(protocol.to_owned()),
                    None if line.trim_end().is_empty() => break,
                    _ => {}
                }
            }
            let Some(protocol) = upgrade else {
                stream.write_all(b"HTTP/1.1 200 OK\r\n\r\nADDED\n").await?;
                stream.flush().await?;
                tokio::time::sleep(silence).await; // the silence is what is tested
                stream.write_all(b"MODIFIED\n").await?;
                return stream.shutdown().await;
            };
            let head = format!(
                "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: {protocol}\r\n\r\n"
            );
            stream.write_all(head.as_bytes()).await?;
            stream.flush().await?;
            let mut buffer = vec![0; 64 * 1024];
            loop {
                let count = stream.read(&mut buffer).await?;
                if count == 0 {
                    return stream.shutdown().await;
                }
                stream.write_all(&buffer[..count]).await?;
                stream.flush().await?;
            }
        }
    })
    .await
}

/// Takes connections, and neither reads nor says anything.
pub async fn silent() -> Backend {
    accept(|stream| async move {
        let _stream = stream;
        std::future::pending().await
    })
    .await
}

/// Sends every byte back.
pub async fn echo() -> Backend {
    accept(|mut stream| async move {
        let (mut reader, mut writer) = stream.split();
        tokio::io::copy(&mut reader, &mut writer).await?;
        writer.shutdown().await
    })
    .await
}

/// Speaks first, as SMTP or MySQL do, then sends every byte back.
pub async fn greeter(greeting: &'static str) -> Backend {
    accept(move |mut stream| async move {
        stream.write_all(greeting.as_bytes()).await?;
        let (mut reader, mut writer) = stream.split();
        tokio::io::copy(&mut reader, &mut writer).await?;
        writer.shutdown().await
    })
    .await
}

/// Counts bytes to the end of the stream, then answers with their number.
pub async fn counter() -> Backend {
    accept(|mut stream| async move {
        let mut sink = tokio::io::sink();
        let (mut reader, mut writer) = stream.split();
        let count = tokio::io::copy(&mut reader, &mut sink).await?;
        writer.write_all(count.to_string().as_bytes()).await?;
        writer.shutdown().await
    })
    .await
}

/// Sends this many bytes at once, ends its own direction, then waits for the client's end.
pub async fn source(bytes: usize) -> Backend {
    accept(move |mut stream| async move {
        stream.write_all(&pattern(bytes)).await?;
        stream.shutdown().await?;
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).await.map(|_| ())
    })
    .await
}

/// Bytes whose order matters.
pub fn pattern(count: usize) -> Vec<u8> {
    (0..count).map(|i| (i ^ (i >> 8) ^ (i >> 16)) as u8).collect()
}

/// Sends each datagram back with its name before it.
pub async fn udp(name: &'static str) -> Backend {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut buffer = vec![0; 65_535];
        while let Ok((count, client)) = socket.recv_from(&mut buffer).await {
            let answer = [name.as_bytes(), b":", &buffer[..count]].concat();
            let _ = socket.send_to(&answer, client).await;
        }
    });
    Backend {
        address,
        _tasks: tasks,
    }
}
