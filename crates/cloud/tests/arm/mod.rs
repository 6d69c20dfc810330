//! A small, honest stand-in for Azure: the giver of tokens, machines in pages, interfaces that are written as a whole
//! with their version and by an operation that goes on, a network with the addresses in use. It refuses what Azure
//! refuses: wrong secrets, old versions, an address twice, a secondary address in a pool with outbound rules.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    dead_code,
    reason = "a test fails by panicking, and each uses some of these"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

const GROUP: &str = "/subscriptions/sub/resourceGroups/RG";
const TOKEN: &str = "hidden-token";

/// What the tokens of an Azure Stack are good for.
const AUDIENCE: &str = "https://management.contoso.example/4de1";

/// The Secret that it knows.
pub(crate) fn secret() -> BTreeMap<String, Vec<u8>> {
    let pairs = [
        ("azure_client_id", "client"),
        ("azure_client_secret", "hidden-secret"),
        ("azure_tenant_id", "tenant"),
    ];
    let pairs = pairs.map(|(key, value)| (key.to_owned(), value.as_bytes().to_vec()));
    pairs.into()
}

/// Whether a request, such as `PUT nic-w1`, gets through.
pub(crate) type Gate = Box<dyn Fn(&str) -> bool + Send>;

/// What it has, and what it does wrong.
#[derive(Default)]
pub(crate) struct Azure {
    /// Every request, such as `PUT nic-w1`.
    pub(crate) calls: Vec<String>,
    /// So many requests are put off, but for those for tokens.
    pub(crate) throttle: usize,
    /// So many writes are done, and their answers lost.
    pub(crate) lose: usize,
    /// So many interfaces are changed by somebody else before they are written.
    pub(crate) race: usize,
    /// Is told of each request before anything is done, and loses those for which it says no.
    pub(crate) gate: Option<Gate>,
    /// The pool has outbound rules.
    pub(crate) outbound_rule: bool,
    /// It is an Azure Stack: it says who gives tokens, for something else than its own address, and knows older
    /// versions of the API alone.
    pub(crate) stack: bool,
    /// Addresses that somebody else has.
    pub(crate) strangers: BTreeSet<String>,
    interfaces: BTreeMap<String, Value>,
    version: u32,
    /// Operations that are not over, the interface that each one changes, and how often it will still say so.
    operations: BTreeMap<String, (String, u32)>,
    url: String,
}

impl Azure {
    /// The addresses of a machine beside its own.
    pub(crate) fn on(&self, machine: &str) -> BTreeSet<String> {
        let all = self.interfaces[&format!("nic-{machine}")]["properties"]["ipConfigurations"].as_array();
        let further = all
            .unwrap()
            .iter()
            .filter(|one| one["properties"]["primary"] != true);
        let text = |one: &Value| one["properties"]["privateIPAddress"].as_str().unwrap().to_owned();
        further.map(text).collect()
    }

    /// The pools that an address of a machine is in.
    pub(crate) fn pools(&self, machine: &str, address: &str) -> usize {
        let all = self.interfaces[&format!("nic-{machine}")]["properties"]["ipConfigurations"].as_array();
        let one = all
            .unwrap()
            .iter()
            .find(|one| one["properties"]["privateIPAddress"] == address);
        let pools = &one.unwrap()["properties"]["loadBalancerBackendAddressPools"];
        pools.as_array().map_or(0, Vec::len)
    }

    pub(crate) fn puts(&self) -> usize {
        self.calls.iter().filter(|call| call.starts_with("PUT")).count()
    }

    /// Puts an address on a machine, as somebody else would.
    pub(crate) fn put(&mut self, machine: &str, address: &str) {
        let interface = self.interfaces.get_mut(&format!("nic-{machine}")).unwrap();
        let all = interface["properties"]["ipConfigurations"]
            .as_array_mut()
            .unwrap();
        all.push(json!({"name": "theirs", "properties": {"privateIPAddress": address, "primary": false}}));
    }
}

/// The server.
pub(crate) struct Arm {
    pub(crate) url: String,
    azure: Arc<Mutex<Azure>>,
    server: JoinHandle<()>,
}

impl Drop for Arm {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Arm {
    /// With these machines and their own addresses.
    pub(crate) async fn with(machines: &[(&str, &str)]) -> Arm {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let mut azure = Azure {
            url: url.clone(),
            ..Azure::default()
        };
        for (name, address) in machines {
            let interface = json!({
                "id": format!("{GROUP}/providers/Microsoft.Network/networkInterfaces/nic-{name}"),
                "etag": "0", "location": "westeurope", "properties": {"provisioningState": "Succeeded",
                "ipConfigurations": [{"name": "pipConfig", "properties": {
                    "privateIPAddress": address, "primary": true,
                    "subnet": {"id": format!("{GROUP}/providers/Microsoft.Network/virtualNetworks/vnet/subnets/worker")},
                    "loadBalancerBackendAddressPools": [{"id": "/lb/pool"}],
                }}]},
            });
            azure.interfaces.insert(format!("nic-{name}"), interface);
        }
        let azure = Arc::new(Mutex::new(azure));
        let router = Router::new().fallback(answer).with_state(azure.clone());
        let server = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Arm { url, azure, server }
    }

    pub(crate) fn azure(&self) -> MutexGuard<'_, Azure> {
        self.azure.lock().unwrap()
    }

    /// The `providerID` of the node on a machine.
    pub(crate) fn provider_id(machine: &str) -> String {
        format!("azure://{GROUP}/providers/Microsoft.Compute/virtualMachines/{machine}")
    }
}

async fn answer(
    State(azure): State<Arc<Mutex<Azure>>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: String,
) -> Response {
    let path = uri.path().to_ascii_lowercase();
    let mut azure = azure.lock().unwrap();
    if path == "/tenant/oauth2/v2.0/token" {
        return token(&azure, &body);
    }
    let last = path.rsplit('/').next().unwrap().to_owned();
    let call = format!("{method} {last}");
    if azure.gate.as_ref().is_some_and(|gate| !gate(&call)) {
        return gone();
    }
    azure.calls.push(call);
    if azure.stack && path == "/metadata/endpoints" {
        let authentication = json!({"loginEndpoint": format!("{}/", azure.url), "audiences": [AUDIENCE]});
        let text = json!({"galleryEndpoint": "https://gallery.example/", "authentication": authentication});
        return text.to_string().into_response();
    }
    let is_old = |query: &str| query.contains("=2018-11-01") || query.contains("=2020-06-01");
    if azure.stack && !last.starts_with("op-") && !uri.query().is_some_and(is_old) {
        return fault(400, "NoRegisteredProviderFound", "not of this version");
    }
    let bearer = headers.get("authorization").and_then(|value| value.to_str().ok());
    if bearer != Some(&format!("Bearer {TOKEN}")) {
        return fault(401, "InvalidAuthenticationToken", "who are you");
    }
    if azure.throttle > 0 {
        azure.throttle -= 1;
        let mut answer = fault(429, "TooManyRequests", "later");
        answer.headers_mut().insert("retry-after", "0".parse().unwrap());
        return answer;
    }
    match (method, last.as_str()) {
        (Method::GET, "virtualmachines") => machines(&azure, uri.query().unwrap()),
        (Method::GET, "networkinterfaces") => {
            let all: Vec<&Value> = azure.interfaces.values().collect();
            json!({"value": all}).to_string().into_response()
        }
        (Method::GET, "vnet") => network(&azure),
        (Method::GET, name) if name.starts_with("op-") => operation(&mut azure, name),
        (Method::GET, name) => azure.interfaces[name].to_string().into_response(),
        (Method::PUT, name) => write(&mut azure, name, &headers, &body),
        (method, name) => panic!("{method} {name} is not asked of Azure"),
    }
}

fn token(azure: &Azure, form: &str) -> Response {
    let scope = match azure.stack {
        true => "scope=https%3A%2F%2Fmanagement.contoso.example%2F4de1%2F.default",
        false => "scope=http%3A%2F%2F127.0.0.1",
    };
    let right = form.contains("client_id=client&")
        && form.contains("client_secret=hidden-secret")
        && form.contains("grant_type=client_credentials")
        && form.contains(scope);
    match right {
        true => json!({"token_type": "Bearer", "expires_in": 3599, "access_token": TOKEN})
            .to_string()
            .into_response(),
        false => {
            let text = json!({"error": "invalid_client", "error_description": "AADSTS7000215: Invalid client secret"});
            (StatusCode::UNAUTHORIZED, text.to_string()).into_response()
        }
    }
}

/// Two machines a page.
fn machines(azure: &Azure, query: &str) -> Response {
    let skip = query
        .split("skip=")
        .nth(1)
        .map_or(0, |text| text.parse().unwrap());
    let names: Vec<&String> = azure.interfaces.keys().collect();
    let page = names.iter().skip(skip).take(2).map(|nic| {
        let name = nic.trim_start_matches("nic-");
        let interface = &azure.interfaces[*nic]["id"];
        // Azure writes the names of groups as it likes.
        let id = format!(
            "{}/providers/Microsoft.Compute/virtualMachines/{name}",
            GROUP.to_uppercase()
        );
        json!({"id": id, "properties": {"networkProfile": {"networkInterfaces": [{"id": interface}]}}})
    });
    let mut list = json!({"value": page.collect::<Vec<_>>()});
    if skip + 2 < names.len() {
        list["nextLink"] = json!(format!(
            "{}{GROUP}/providers/Microsoft.Compute/virtualMachines?api-version=2020-06-01&skip={}",
            azure.url,
            skip + 2
        ));
    }
    list.to_string().into_response()
}

fn network(azure: &Azure) -> Response {
    let mut used = Vec::new();
    for interface in azure.interfaces.values() {
        for one in interface["properties"]["ipConfigurations"].as_array().unwrap() {
            let id = format!(
                "{}/ipConfigurations/{}",
                interface["id"].as_str().unwrap(),
                one["name"].as_str().unwrap()
            );
            used.push(
                json!({"id": id, "properties": {"privateIPAddress": one["properties"]["privateIPAddress"]}}),
            );
        }
    }
    for address in &azure.strangers {
        let id = format!("{GROUP}/providers/Microsoft.Network/networkInterfaces/database/ipConfigurations/a");
        used.push(json!({"id": id, "properties": {"privateIPAddress": address}}));
    }
    let subnets = json!([{"id": "worker", "properties": {"ipConfigurations": used}}]);
    json!({"id": "vnet", "properties": {"subnets": subnets}})
        .to_string()
        .into_response()
}

fn operation(azure: &mut Azure, name: &str) -> Response {
    let (_, left) = azure.operations.get_mut(name).unwrap();
    let state = if *left > 0 { "InProgress" } else { "Succeeded" };
    *left = left.saturating_sub(1);
    let mut answer = json!({"status": state}).to_string().into_response();
    answer.headers_mut().insert("retry-after", "0".parse().unwrap());
    answer
}

fn write(azure: &mut Azure, name: &str, headers: &HeaderMap, body: &str) -> Response {
    if azure.race > 0 {
        azure.race -= 1;
        azure.version += 1;
        let version = azure.version.to_string();
        azure.interfaces.get_mut(name).unwrap()["etag"] = json!(version);
    }
    let version = headers.get("if-match").unwrap().to_str().unwrap();
    if azure.interfaces[name]["etag"] != version {
        return fault(412, "PreconditionFailed", "changed meanwhile");
    }
    // One operation at a time, and it goes on whether anybody asks after it or not.
    let mut running = azure.operations.values_mut();
    if let Some((_, left)) = running.find(|(interface, left)| interface == name && *left > 0) {
        *left -= 1;
        let mut answer = fault(409, "AnotherOperationInProgress", "wait for it");
        answer.headers_mut().insert("retry-after", "0".parse().unwrap());
        return answer;
    }
    let mut wanted: Value = serde_json::from_str(body).unwrap();
    let mut others: BTreeSet<String> = azure.strangers.clone();
    for (_, interface) in azure.interfaces.iter().filter(|(other, _)| *other != name) {
        let all = interface["properties"]["ipConfigurations"].as_array().unwrap();
        let text = |one: &Value| one["properties"]["privateIPAddress"].as_str().unwrap().to_owned();
        others.extend(all.iter().map(text));
    }
    for one in wanted["properties"]["ipConfigurations"].as_array().unwrap() {
        let properties = &one["properties"];
        let address = properties["privateIPAddress"].as_str().unwrap();
        if others.contains(address) {
            let message = format!("IP address {address} is already allocated");
            return fault(400, "PrivateIPAddressIsAllocated", &message);
        }
        if azure.outbound_rule
            && properties["primary"] != true
            && properties.get("loadBalancerBackendAddressPools").is_some()
        {
            let code = "OutboundRuleCannotBeUsedWithBackendAddressPoolThatIsReferencedBySecondaryIpConfigs";
            return fault(400, code, "OutboundRule cannot be used with this pool");
        }
    }
    azure.version += 1;
    wanted["etag"] = json!(azure.version.to_string());
    let operation = format!("op-{}", azure.version);
    azure.operations.insert(operation.clone(), (name.to_owned(), 2));
    azure.interfaces.insert(name.to_owned(), wanted);
    if azure.lose > 0 {
        azure.lose -= 1;
        return gone();
    }
    let text = json!({"properties": {"provisioningState": "Updating"}}).to_string();
    let mut answer = (StatusCode::CREATED, text).into_response();
    let place = format!("{}/operations/{operation}", azure.url).parse().unwrap();
    answer.headers_mut().insert("azure-asyncoperation", place);
    answer.headers_mut().insert("retry-after", "0".parse().unwrap());
    answer
}

/// An answer that breaks off before its first byte.
fn gone() -> Response {
    let broken = futures_util::stream::once(async { Err::<String, _>(std::io::Error::other("gone")) });
    Response::new(Body::from_stream(broken))
}

fn fault(status: u16, code: &str, message: &str) -> Response {
    let text = json!({"error": {"code": code, "message": message}}).to_string();
    (StatusCode::from_u16(status).unwrap(), text).into_response()
}
