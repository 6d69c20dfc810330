//! The socket, against a server with TLS and a proxy that makes tunnels, both on loopback.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use http::Request;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::Environment;
use crate::http::{Http, Lost, body};

/// A name that nobody but the proxy can make anything of.
const CLOUD: &str = "https://cloud.example.invalid/";

/// A server over TLS that answers `hello`, a proxy that leads everybody there, and what the proxy was asked.
struct Scene {
    cloud: SocketAddr,
    proxy: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
    trust: ClientConfig,
}

impl Scene {
    /// `answer` is what the proxy says to whoever asks for a tunnel.
    async fn new(answer: &'static str) -> Scene {
        let names = ["cloud.example.invalid".to_owned(), "127.0.0.1".to_owned()];
        let CertifiedKey { cert, signing_key } = generate_simple_self_signed(names).unwrap();
        let key = PrivatePkcs8KeyDer::from(signing_key.serialize_der());
        let provider = || Arc::new(rustls::crypto::ring::default_provider());
        let server = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![cert.der().clone()], key.into())
            .unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(cert.der().clone()).unwrap();
        let trust = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let cloud = serve(TlsAcceptor::from(Arc::new(server))).await;
        let asked = Arc::<Mutex<Vec<String>>>::default();
        Scene {
            cloud,
            proxy: tunnels(cloud, answer, asked.clone()).await,
            asked,
            trust,
        }
    }

    fn http(&self, proxy: &str, not_for: &str) -> Http {
        let environment = Environment {
            https_proxy: Some(proxy.to_owned()),
            no_proxy: Some(not_for.to_owned()),
            ..Environment::default()
        };
        Http::trusting(self.trust.clone(), &environment)
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

/// The head of a request or an answer.
async fn head(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut text = String::new();
    while !text.ends_with("\r\n\r\n") {
        text.push(char::from(stream.read_u8().await.unwrap()));
    }
    text
}

async fn serve(tls: TlsAcceptor) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let mut stream = tls.accept(stream).await.unwrap();
            head(&mut stream).await;
            let answer = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello";
            stream.write_all(answer.as_bytes()).await.unwrap();
            stream.shutdown().await.unwrap();
        }
    });
    address
}

async fn tunnels(to: SocketAddr, answer: &'static str, asked: Arc<Mutex<Vec<String>>>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let question = head(&mut stream).await;
            asked.lock().unwrap().push(question);
            stream.write_all(answer.as_bytes()).await.unwrap();
            if answer.contains(" 200 ") {
                let mut server = TcpStream::connect(to).await.unwrap();
                // Whoever has its answer closes as it likes.
                let _ = copy_bidirectional(&mut stream, &mut server).await;
            }
        }
    });
    address
}

async fn get(http: &Http, url: &str) -> Result<String, String> {
    let request = Request::get(url).body(body(String::new())).unwrap();
    match http.send(request).await {
        Ok(answer) => Ok(answer.text()),
        Err(Lost::NotSent(why)) => Err(why),
        Err(Lost::NoAnswer(why)) => panic!("it did not leave: {why}"),
    }
}

const TUNNEL: &str = "HTTP/1.1 200 Connection established\r\n\r\n";

#[tokio::test]
async fn a_cloud_is_asked_through_a_tunnel_of_the_proxy_which_alone_knows_its_name() {
    let scene = Scene::new(TUNNEL).await;
    let http = scene.http(&format!("http://{}", scene.proxy), "127.0.0.0/8,.example.com");
    assert_eq!(get(&http, CLOUD).await.unwrap(), "hello");
    let asked = scene.asked();
    assert!(
        asked[0].starts_with("CONNECT cloud.example.invalid:443 HTTP/1.1\r\n"),
        "{asked:?}"
    );
    assert!(!asked[0].contains("Authorization"), "{asked:?}");
}

#[tokio::test]
async fn a_login_of_the_proxy_is_for_the_proxy() {
    let scene = Scene::new(TUNNEL).await;
    let http = scene.http(&format!("http://us%3Aer:p%40ss@{}", scene.proxy), "");
    assert_eq!(get(&http, CLOUD).await.unwrap(), "hello");
    // `us:er` and `p@ss`, as base64.
    assert!(scene.asked()[0].contains("\r\nProxy-Authorization: Basic dXM6ZXI6cEBzcw==\r\n"));
}

#[tokio::test]
async fn who_is_named_in_no_proxy_is_asked_straight() {
    let scene = Scene::new(TUNNEL).await;
    let http = scene.http(&format!("http://{}", scene.proxy), "10.0.0.0/8, 127.0.0.0/8");
    let answer = get(&http, &format!("https://{}/", scene.cloud)).await;
    assert_eq!(answer.unwrap(), "hello");
    assert!(scene.asked().is_empty());
}

#[tokio::test]
async fn plain_http_never_goes_by_the_proxy() {
    let scene = Scene::new(TUNNEL).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let metadata = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        head(&mut stream).await;
        stream
            .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nrole")
            .await
            .unwrap();
    });
    let http = scene.http(&format!("http://{}", scene.proxy), "");
    assert_eq!(get(&http, &format!("http://{metadata}/")).await.unwrap(), "role");
    assert!(scene.asked().is_empty());
}

#[tokio::test]
async fn a_proxy_that_will_not_is_named_without_its_password() {
    for (answer, word) in [
        (
            "HTTP/1.1 407 Proxy Authentication Required\r\n\r\n",
            "authorization",
        ),
        ("HTTP/1.1 403 Forbidden\r\n\r\n", "unsuccessful"),
    ] {
        let scene = Scene::new(answer).await;
        let http = scene.http(&format!("http://user:hidden@{}", scene.proxy), "");
        let why = get(&http, CLOUD).await.unwrap_err();
        assert!(
            why.contains(&scene.proxy.to_string()) && why.contains(word),
            "{why}"
        );
        assert!(why.contains("HTTPS_PROXY") && !why.contains("hidden"), "{why}");
    }
}

#[tokio::test]
async fn a_proxy_that_cannot_be_read_is_an_error_and_no_reason_to_go_straight() {
    let scene = Scene::new(TUNNEL).await;
    for wrong in ["socks5://hidden", "http://", "ftp://hidden:1"] {
        let http = scene.http(wrong, "");
        let why = get(&http, &format!("https://{}/", scene.cloud))
            .await
            .unwrap_err();
        assert!(
            why.contains("HTTPS_PROXY") && !why.contains("hidden"),
            "{wrong}: {why}"
        );
    }
    assert!(scene.asked().is_empty());
}
