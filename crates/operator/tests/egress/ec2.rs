//! EC2 for tests: moto behind a layer that does what moto does not. It holds interfaces to a limit and an address to
//! one interface, and puts off, loses or cuts off calls when it is told to.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use oooi_testkit::Moto;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::OnceCell;
use tokio::task::JoinHandle;

use super::cut::Cut;

/// One for all tests of the process.
static MOTO: OnceCell<Moto> = OnceCell::const_new();

/// What the layer does.
#[derive(Default)]
pub(crate) struct Layer {
    /// Every call, in order.
    pub(crate) calls: Vec<String>,
    /// So many calls are put off.
    pub(crate) throttle: usize,
    /// So many writes are done, and their answers lost.
    pub(crate) lose: usize,
    /// So many further addresses an interface takes, whatever its type says.
    pub(crate) limit: Option<usize>,
    /// Calls of this name fail.
    pub(crate) broken: Option<&'static str>,
    /// Cuts everything off.
    pub(crate) cut: Option<Cut>,
    on: BTreeMap<String, BTreeSet<String>>,
}

impl Layer {
    pub(crate) fn writes(&self) -> usize {
        let writes = self.calls.iter().filter(|call| is_write(call));
        writes.count()
    }

    pub(crate) fn count(&self, call: &str) -> usize {
        self.calls.iter().filter(|one| *one == call).count()
    }
}

fn is_write(call: &str) -> bool {
    call.contains("ssignPrivateIpAddresses")
}

/// A region with a network.
pub(crate) struct Ec2 {
    pub(crate) url: String,
    pub(crate) layer: Arc<Mutex<Layer>>,
    vpc: String,
    server: JoinHandle<()>,
}

impl Drop for Ec2 {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Ec2 {
    pub(crate) async fn start() -> Ec2 {
        MOTO.get_or_init(|| async {
            tokio::task::spawn_blocking(|| Moto::start().unwrap())
                .await
                .unwrap()
        })
        .await;
        let vpc = ask(&[("Action", "CreateVpc"), ("CidrBlock", "10.0.0.0/16")]).await;
        let layer = Arc::new(Mutex::new(Layer::default()));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new().fallback(pass).with_state(layer.clone());
        let server = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Ec2 {
            url,
            layer,
            vpc: part(&vpc, "vpcId"),
            server,
        }
    }

    pub(crate) fn layer(&self) -> std::sync::MutexGuard<'_, Layer> {
        self.layer.lock().unwrap()
    }

    pub(crate) async fn subnet(&self, cidr: &str) -> String {
        let subnet = ask(&[
            ("Action", "CreateSubnet"),
            ("VpcId", &self.vpc),
            ("CidrBlock", cidr),
        ])
        .await;
        part(&subnet, "subnetId")
    }

    /// A machine with an address of its own: its name, and that of its interface.
    pub(crate) async fn machine(&self, subnet: &str, type_: &str, address: &str) -> Machine {
        let text = ask(&[
            ("Action", "RunInstances"),
            ("ImageId", "ami-12345678"),
            ("MinCount", "1"),
            ("MaxCount", "1"),
            ("InstanceType", type_),
            ("SubnetId", subnet),
            ("PrivateIpAddress", address),
        ])
        .await;
        Machine {
            id: part(&text, "instanceId"),
            interface: part(&text, "networkInterfaceId"),
        }
    }

    /// Somebody else's interface with this address.
    pub(crate) async fn stranger(&self, subnet: &str, address: &str) {
        let pairs = [
            ("Action", "CreateNetworkInterface"),
            ("SubnetId", subnet),
            ("PrivateIpAddress", address),
            ("Description", "a database"),
        ];
        ask(&pairs).await;
    }

    /// Puts an address on a machine, as somebody else would.
    pub(crate) async fn put(&self, machine: &Machine, address: &str) {
        let pairs = [
            ("Action", "AssignPrivateIpAddresses"),
            ("NetworkInterfaceId", &machine.interface),
            ("PrivateIpAddress.1", address),
        ];
        ask(&pairs).await;
        let mut layer = self.layer();
        let on = layer.on.entry(machine.interface.clone()).or_default();
        on.insert(address.to_owned());
    }
}

/// A machine in EC2.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    pub(crate) id: String,
    pub(crate) interface: String,
}

impl Machine {
    /// The addresses that it has beside its own, as EC2 itself says.
    pub(crate) async fn addresses(&self) -> BTreeSet<String> {
        let pairs = [
            ("Action", "DescribeNetworkInterfaces"),
            ("NetworkInterfaceId.1", self.interface.as_str()),
        ];
        let text = ask(&pairs).await;
        let set = text.split("<privateIpAddressesSet>").nth(1).unwrap();
        let set = set.split("</privateIpAddressesSet>").next().unwrap();
        let items = set.split("<item>").filter(|item| item.contains("<primary>false"));
        items.map(|item| part(item, "privateIpAddress")).collect()
    }
}

/// Passes a call on, unless it was told otherwise.
async fn pass(State(layer): State<Arc<Mutex<Layer>>>, body: String) -> Response {
    let fields: Vec<(String, String)> = body
        .split('&')
        .filter_map(|pair| pair.split_once('='))
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect();
    let get = |key: &str| {
        fields
            .iter()
            .find(|(one, _)| one == key)
            .map(|(_, value)| value.clone())
    };
    let call = get("Action").unwrap();
    let addresses: BTreeSet<String> = fields
        .iter()
        .filter(|(key, _)| key.starts_with("PrivateIpAddress."))
        .map(|(_, value)| value.clone())
        .collect();
    let lost = {
        let mut layer = layer.lock().unwrap();
        if layer.cut.as_ref().is_some_and(|cut| !cut.passes(is_write(&call))) {
            return gone();
        }
        layer.calls.push(call.clone());
        if layer.throttle > 0 {
            layer.throttle -= 1;
            return fault(503, "RequestLimitExceeded", "Request limit exceeded.");
        }
        if layer.broken == Some(call.as_str()) {
            return fault(
                400,
                "UnauthorizedOperation",
                "You are not authorized to perform this operation.",
            );
        }
        let interface = get("NetworkInterfaceId").unwrap_or_default();
        if call == "AssignPrivateIpAddresses"
            && let Some(answer) = layer.assign(&interface, &addresses)
        {
            return answer;
        }
        if call == "UnassignPrivateIpAddresses"
            && let Some(answer) = layer.unassign(&interface, &addresses)
        {
            return answer;
        }
        let lost = is_write(&call) && layer.lose > 0;
        layer.lose -= usize::from(lost);
        lost
    };
    let (status, text) = send(&body).await;
    if lost {
        return gone();
    }
    (StatusCode::from_u16(status).unwrap(), text).into_response()
}

impl Layer {
    /// What EC2 would say against it.
    fn assign(&mut self, interface: &str, addresses: &BTreeSet<String>) -> Option<Response> {
        let taken = self.on.values().flatten().find(|one| addresses.contains(*one));
        if let Some(address) = taken {
            let message = format!("[{address}] assigned, but move is not allowed.");
            return Some(fault(400, "InvalidParameterValue", &message));
        }
        let limit = self.limit;
        let on = self.on.entry(interface.to_owned()).or_default();
        if limit.is_some_and(|limit| on.len() + addresses.len() > limit) {
            let message = format!("Number of private addresses will exceed limit on {interface}.");
            return Some(fault(400, "PrivateIpAddressLimitExceeded", &message));
        }
        on.extend(addresses.iter().cloned());
        None
    }

    fn unassign(&mut self, interface: &str, addresses: &BTreeSet<String>) -> Option<Response> {
        let on = self.on.entry(interface.to_owned()).or_default();
        if let Some(address) = addresses.iter().find(|one| !on.contains(*one)) {
            let message = format!("Some of [{address}] are not assigned to interface {interface}");
            return Some(fault(400, "InvalidParameterValue", &message));
        }
        on.retain(|one| !addresses.contains(one));
        None
    }
}

/// An answer that breaks off before its first byte.
fn gone() -> Response {
    let broken = futures_util::stream::once(async { Err::<String, _>(std::io::Error::other("gone")) });
    Response::new(Body::from_stream(broken))
}

fn fault(status: u16, code: &str, message: &str) -> Response {
    let text = format!(
        "<Response><Errors><Error><Code>{code}</Code><Message>{message}</Message></Error></Errors></Response>"
    );
    (StatusCode::from_u16(status).unwrap(), text).into_response()
}

/// Asks moto itself.
async fn ask(pairs: &[(&str, &str)]) -> String {
    let pairs = pairs
        .iter()
        .map(|(key, value)| format!("{key}={}", value.replace(' ', "%20")));
    let body: Vec<String> = pairs.chain(["Version=2016-11-15".to_owned()]).collect();
    let (status, text) = send(&body.join("&")).await;
    assert_eq!(status, 200, "{text}");
    text
}

async fn send(body: &str) -> (u16, String) {
    let authority = MOTO.get().unwrap().authority();
    let head = format!(
        "POST / HTTP/1.1\r\nHost: {authority}\r\nContent-Type: application/x-www-form-urlencoded\r\n\
         Authorization: AWS4-HMAC-SHA256 Credential=A/20260101/eu-north-1/ec2/aws4_request, SignedHeaders=host, \
         Signature=0\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    let mut stream = TcpStream::connect(authority).await.unwrap();
    stream.write_all((head + body).as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, text) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, text.to_owned())
}

/// The text of the first element of a name.
fn part(text: &str, name: &str) -> String {
    let after = text.split(&format!("<{name}>")).nth(1).unwrap();
    after.split('<').next().unwrap().to_owned()
}

/// Addresses, for comparing.
pub(crate) fn set(addresses: &[&str]) -> BTreeSet<String> {
    let parsed = addresses
        .iter()
        .map(|text| text.parse::<Ipv4Addr>().unwrap().to_string());
    parsed.collect()
}
