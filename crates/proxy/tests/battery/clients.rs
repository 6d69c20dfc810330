//! Clients of the gateway: rustls in process, curl, openssl and Go as programs.

use std::net::{IpAddr, SocketAddr};
use std::process::Stdio;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::backends::Identity;
use super::in_time;

/// Opens TLS, asking for `name`; the certificate is checked.
pub async fn dial(
    identity: &Identity,
    address: SocketAddr,
    name: &str,
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(identity.certificate.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let name = ServerName::try_from(name.to_owned()).unwrap();
    in_time(
        "a TLS handshake",
        TlsConnector::from(Arc::new(config)).connect(name, stream),
    )
    .await
}

/// A conversation with a backend of [`super::backends::tls`], which told its name.
pub struct Conversation {
    pub backend: String,
    stream: BufReader<TlsStream<TcpStream>>,
}

impl Conversation {
    pub async fn start(identity: &Identity, address: SocketAddr, name: &str) -> std::io::Result<Self> {
        let mut stream = BufReader::new(dial(identity, address, name).await?);
        stream.write_all(b"hi\n").await?;
        let mut backend = String::new();
        in_time("the backend's name", stream.read_line(&mut backend)).await?;
        let mut conversation = Self {
            backend: backend.trim_end().to_owned(),
            stream,
        };
        assert_eq!(conversation.read_line().await?, "hi");
        Ok(conversation)
    }

    async fn read_line(&mut self) -> std::io::Result<String> {
        let mut line = String::new();
        in_time("an echoed line", self.stream.read_line(&mut line)).await?;
        Ok(line.trim_end().to_owned())
    }

    /// Says something and hears it back.
    pub async fn say(&mut self, line: &str) -> std::io::Result<()> {
        self.stream.write_all(format!("{line}\n").as_bytes()).await?;
        match self.read_line().await? {
            heard if heard == line => Ok(()),
            heard => Err(std::io::Error::other(format!("said {line:?}, heard {heard:?}"))),
        }
    }
}

/// The backend that answers for `name`.
pub async fn who(identity: &Identity, address: SocketAddr, name: &str) -> std::io::Result<String> {
    Ok(Conversation::start(identity, address, name).await?.backend)
}

/// Whether the gateway closes or resets what starts with `bytes`, without an answer.
pub async fn is_refused(address: SocketAddr, bytes: &[u8]) -> bool {
    let mut stream = match TcpStream::connect(address).await {
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return true,
        connected => connected.unwrap(),
    };
    if stream.write_all(bytes).await.is_err() {
        return true;
    }
    let mut answer = Vec::new();
    match in_time("a refusal", stream.read_to_end(&mut answer)).await {
        Ok(_) => answer.is_empty(),
        Err(_) => true,
    }
}

/// Whether the gateway resets what starts with `bytes`: a client must not take it for a proper end.
pub async fn is_reset(address: SocketAddr, bytes: &[u8]) -> bool {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    let end = in_time("a reset", stream.read_to_end(&mut Vec::new())).await;
    end.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionReset)
}

/// Runs a program that a test needs and returns what it prints; a missing program fails the test.
pub async fn program(command: &[&str], input: &str) -> (bool, String) {
    let mut child = tokio::process::Command::new(command[0])
        .args(&command[1..])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap_or_else(|error| {
            panic!(
                "this test needs `{}` on the PATH, install it: {error}",
                command[0]
            )
        });
    let mut stdin = child.stdin.take().unwrap();
    let _ = stdin.write_all(input.as_bytes()).await; // it may not want to read it
    let output = async {
        let mut said = String::new();
        let mut stdout = child.stdout.take().unwrap();
        let mut bytes = Vec::new();
        let mut buffer = [0; 4096];
        // openssl goes on until its input ends: it is closed once the echo is there.
        while let Ok(count) = stdout.read(&mut buffer).await
            && count > 0
        {
            bytes.extend_from_slice(&buffer[..count]);
            said = String::from_utf8_lossy(&bytes).into_owned();
            if !input.is_empty() && said.contains(input) {
                break;
            }
        }
        drop(stdin);
        let status = child.wait().await.unwrap();
        (status.success(), said)
    };
    in_time(command[0], output).await
}

/// Asks with curl.
pub async fn curl(ca: &str, address: SocketAddr, host: &str) -> (bool, String) {
    let resolve = format!("{host}:{}:{}", address.port(), address.ip());
    let url = format!("https://{host}:{}/", address.port());
    program(
        &[
            "curl",
            "-sS",
            "--max-time",
            "10",
            "--noproxy",
            "*",
            "--cacert",
            ca,
            "--resolve",
            &resolve,
            &url,
        ],
        "",
    )
    .await
}

/// Asks with curl for an address, so that it sends no name.
pub async fn curl_address(ca: &str, ip: IpAddr, port: u16) -> (bool, String) {
    let url = format!("https://{ip}:{port}/");
    program(
        &[
            "curl",
            "-sSk",
            "--max-time",
            "10",
            "--noproxy",
            "*",
            "--cacert",
            ca,
            &url,
        ],
        "",
    )
    .await
}

/// Asks with openssl; what it prints holds the backend's name and the echo.
pub async fn openssl(address: SocketAddr, arguments: &[&str]) -> (bool, String) {
    let address = address.to_string();
    let command = [
        &[
            "openssl",
            "s_client",
            "-quiet",
            "-no_ign_eof",
            "-connect",
            &address,
        ],
        arguments,
    ]
    .concat();
    program(&command, "echo this\n").await
}
