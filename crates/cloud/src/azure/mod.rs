//! Microsoft Azure: interfaces of virtual machines by the resource manager.
//!
//! An interface is written as a whole. It is read first, sent back with our addresses changed and with the version that
//! was read, so that nobody's change in between is lost; then its operation is followed to its end.

mod answer;
mod edit;
mod ids;
mod operation;
mod place;
#[cfg(feature = "testing")]
pub mod testing;
mod token;

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::header::{AUTHORIZATION, CONTENT_TYPE, ETAG, IF_MATCH, RETRY_AFTER};
use http::{HeaderMap, Method, Request};
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::{Error, shown};
use crate::http::{Answer, Http, body};
use crate::pace::Pace;
use crate::persist::{Failed, Kind, persist};
use crate::{Cloud, Environment, Machine, Pools, SecretReader, Unable, View};
use answer::{Interface, List, Network, Resource};
use operation::{Progress, progress};
use place::Endpoints;
pub use place::Place;
use token::Tokens;

/// Calls a second that the resource manager is asked at most, and how many at once.
const PACE: (u32, u32) = (5, 10);

/// Addresses that an interface can have, its own included.
const ADDRESSES: u32 = 256;

/// So often an interface is read again and written again, when others change it meanwhile.
const REPEATS: usize = 4;

/// An operation that takes longer has an unknown end: the next look tells.
const LONGEST_OPERATION: Duration = Duration::from_secs(180);

/// What Azure says where a pool has outbound rules, and what to do about it.
const OUTBOUND_RULE: (&str, &str) = (
    "OutboundRule",
    "; the annotation egressip-ipam-operator.redhat-cop.io/azure-egress-load-balancer: none on the EgressIPAM keeps its \
     addresses out of load balancers",
);

/// The resource manager of one of the clouds of Azure.
pub struct Azure {
    http: Http,
    /// Where it is asked, or why that is not known.
    endpoints: Result<Endpoints, String>,
    tokens: Tokens,
    pace: std::sync::Mutex<Pace>,
}

impl Azure {
    /// The resource manager of a cloud of Azure.
    pub fn new(http: Http, place: &Place, secret: SecretReader, environment: &Environment) -> Self {
        let endpoints = Endpoints::of(place, environment);
        let known = endpoints.as_ref().ok();
        let login = known.and_then(|known| known.login.clone());
        Azure {
            tokens: Tokens {
                http: http.clone(),
                secret,
                manager: known.map(|known| known.manager.clone()).unwrap_or_default(),
                login: tokio::sync::OnceCell::new_with(login),
                kept: tokio::sync::Mutex::default(),
            },
            http,
            endpoints,
            pace: std::sync::Mutex::new(Pace::new(PACE.0, PACE.1, Instant::now())),
        }
    }

    /// Where the cloud is asked.
    fn endpoints(&self) -> Result<&Endpoints, Error> {
        self.endpoints.as_ref().map_err(|why| Error::Unreachable {
            call: "the resource manager".into(),
            why: why.clone(),
        })
    }

    /// Asks until there is an answer that tells something. `if_match` is the version that a write is for.
    async fn ask(
        &self,
        method: Method,
        url: &str,
        content: Option<&Value>,
        if_match: Option<&str>,
    ) -> Result<Answer, Error> {
        let kind = match method == Method::GET {
            true => Kind::Read,
            false => Kind::Write,
        };
        let call = format!("{method} {}", called(url));
        // Nobody else gets our token, whatever an answer says.
        let manager = &self.endpoints()?.manager;
        if !url
            .strip_prefix(manager)
            .is_some_and(|rest| rest.starts_with('/'))
        {
            let why = format!("it is not at {manager}");
            return Err(Error::Unreachable { call, why });
        }
        persist(kind, &self.pace, || {
            self.once(&call, &method, url, content, if_match)
        })
        .await
    }

    async fn once(
        &self,
        call: &str,
        method: &Method,
        url: &str,
        content: Option<&Value>,
        if_match: Option<&str>,
    ) -> Result<Answer, Failed> {
        let bearer = self.tokens.bearer(Timestamp::now()).await?;
        let mut request = Request::builder()
            .method(method)
            .uri(url)
            .header(AUTHORIZATION, bearer);
        if let Some(version) = if_match {
            request = request.header(IF_MATCH, version);
        }
        let text = content.map(Value::to_string);
        if text.is_some() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        let request = request.body(body(text.unwrap_or_default()));
        let request = request.map_err(|error| Error::Unreachable {
            call: call.to_owned(),
            why: error.to_string(),
        })?;
        let answer = self.http.send(request).await.map_err(|lost| lost.error(call))?;
        if answer.status.is_success() {
            return Ok(answer);
        }
        let after = retry_after(&answer.headers);
        let error = fault(call, answer.status.as_u16(), &answer.text());
        if answer.status.as_u16() == 401 {
            self.tokens.forget().await;
        }
        Err(Failed { error, after })
    }

    async fn get<T: DeserializeOwned>(&self, url: &str) -> Result<T, Error> {
        let answer = self.ask(Method::GET, url, None, None).await?;
        answer::read(&answer.text()).map_err(|why| Error::Unknown {
            call: format!("GET {}", called(url)),
            why,
        })
    }

    async fn list<T: DeserializeOwned>(&self, path: &str, version: &str) -> Result<Vec<T>, Error> {
        let mut all = Vec::new();
        let mut url = format!("{}{path}?api-version={version}", self.endpoints()?.manager);
        loop {
            let List { value, next_link } = self.get::<List<T>>(&url).await?;
            all.extend(value);
            match next_link {
                Some(next) if !next.is_empty() => url = next,
                _ => return Ok(all),
            }
        }
    }

    async fn view(&self, ids: &BTreeSet<String>) -> Result<View, Error> {
        let Endpoints {
            manager, versions, ..
        } = self.endpoints()?;
        let groups: BTreeSet<String> = ids.iter().filter_map(|id| ids::group(id)).collect();
        let mut interface_of = BTreeMap::new();
        for group in &groups {
            let path = format!("{group}/providers/Microsoft.Compute/virtualMachines");
            for machine in self
                .list::<Resource<answer::Machine>>(&path, versions.machines)
                .await?
            {
                let id = machine.id.to_ascii_lowercase();
                if let Some(interface) = machine.properties.interface().filter(|_| ids.contains(&id)) {
                    interface_of.insert(id, interface.to_ascii_lowercase());
                }
            }
        }
        let groups: BTreeSet<String> = interface_of.values().filter_map(|id| ids::group(id)).collect();
        let mut interfaces = BTreeMap::new();
        for group in &groups {
            let path = format!("{group}/providers/Microsoft.Network/networkInterfaces");
            for interface in self.list::<Resource<Interface>>(&path, versions.networks).await? {
                interfaces.insert(interface.id.to_ascii_lowercase(), interface.properties);
            }
        }
        let mut view = View::default();
        let mut networks = BTreeSet::new();
        for (id, interface) in interface_of {
            let Some(found) = interfaces.get(&interface) else {
                continue;
            };
            networks.extend(found.subnet().and_then(ids::network));
            let own = found.addresses().find(|(_, primary)| *primary);
            let further = found.addresses().filter(|(_, primary)| !primary);
            let machine = Machine {
                id: id.clone(),
                interface,
                primary: own.map(|(address, _)| address),
                secondary: further.map(|(address, _)| address).collect(),
                capacity: Some(ADDRESSES - 1),
            };
            view.machines.insert(id, machine);
        }
        let own: BTreeSet<&str> = view.machines.values().map(|one| one.interface.as_str()).collect();
        for network in &networks {
            let url = format!(
                "{manager}{network}?api-version={}&$expand=subnets/ipConfigurations",
                versions.networks
            );
            let network: Resource<Network> = self.get(&url).await?;
            for (address, user) in network.properties.used() {
                let path = user.to_ascii_lowercase();
                let holder = path.split("/ipconfigurations/").next().unwrap_or_default();
                if !own.contains(holder) {
                    view.used.insert(address, shown(ids::last(holder)));
                }
            }
        }
        Ok(view)
    }

    /// Changes an interface, from what it is at that moment.
    async fn change(
        &self,
        machine: &Machine,
        change: impl Fn(&Value) -> Result<Option<Value>, String> + Send,
    ) -> Result<(), Error> {
        let Endpoints {
            manager, versions, ..
        } = self.endpoints()?;
        let url = format!("{manager}{}?api-version={}", machine.interface, versions.networks);
        let call = format!("PUT {}", called(&url));
        let began = Instant::now();
        for _ in 0..REPEATS {
            let answer = self.ask(Method::GET, &url, None, None).await?;
            let refused = |message: String| Error::Refused {
                call: call.clone(),
                code: "UnexpectedInterface".into(),
                message,
            };
            let interface: Value = answer::read(&answer.text()).map_err(refused)?;
            let Some(changed) = change(&interface).map_err(refused)? else {
                return Ok(());
            };
            let version = answer.headers.get(ETAG).and_then(|value| value.to_str().ok());
            let version = version.or(interface["etag"].as_str()).map(str::to_owned);
            match self
                .ask(Method::PUT, &url, Some(&changed), version.as_deref())
                .await
            {
                Ok(answer) => return self.follow(&call, &url, answer, began).await,
                // Somebody was faster: it is read again.
                Err(Error::Refused { code, .. }) if code == operation::CHANGED => {}
                Err(error) => return Err(error),
            }
        }
        Err(Error::Throttled { call })
    }

    /// Follows an operation to its end.
    async fn follow(&self, call: &str, url: &str, first: Answer, began: Instant) -> Result<(), Error> {
        let mut answer = first;
        let told = operation::place(&answer.headers);
        // Where an operation is named, it alone says when it is over.
        let mut is_asked = told.is_none();
        let mut at = told.unwrap_or_else(|| url.to_owned());
        loop {
            match progress(answer.status.as_u16(), &answer.text()) {
                Progress::Done if is_asked => return Ok(()),
                Progress::Done => {}
                Progress::Failed(code, message) => {
                    let status = 400;
                    let text = serde_json::json!({"error": {"code": code, "message": message}});
                    return Err(fault(call, status, &text.to_string()));
                }
                Progress::Runs => {}
            }
            if began.elapsed() > LONGEST_OPERATION {
                let why = format!("its operation is not over after {} s", began.elapsed().as_secs());
                let call = call.to_owned();
                return Err(Error::Unknown { call, why });
            }
            let pause = retry_after(&answer.headers).unwrap_or(Duration::from_secs(1));
            tokio::time::sleep(pause.min(Duration::from_secs(30))).await;
            // The write was taken: whatever happens to the question about it, its end is not known.
            answer = match self.ask(Method::GET, &at, None, None).await {
                Ok(answer) => answer,
                Err(error) => {
                    return Err(Error::Unknown {
                        call: call.to_owned(),
                        why: error.to_string(),
                    });
                }
            };
            is_asked = true;
            at = operation::place(&answer.headers).unwrap_or(at);
        }
    }
}

/// What an answer that is no success means.
fn fault(call: &str, status: u16, text: &str) -> Error {
    let (code, message) = answer::fault(text);
    let mut message = shown(&message);
    let call = call.to_owned();
    if code.contains(OUTBOUND_RULE.0) {
        message += OUTBOUND_RULE.1;
    }
    match status {
        429 => Error::Throttled { call },
        // Operations on one interface wait for each other.
        409 if operation::BUSY.contains(&code.as_str()) => Error::Throttled { call },
        401 | 403 => Error::Denied { call, code, message },
        412 => Error::Refused {
            call,
            code: operation::CHANGED.to_owned(),
            message,
        },
        400..500 => Error::Refused { call, code, message },
        _ => Error::Unknown {
            call,
            why: format!("{status} {code} {message}"),
        },
    }
}

/// How long the cloud wants to be left alone, in seconds. A date is passed over: Azure sends none.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?;
    text.trim().parse().ok().map(Duration::from_secs)
}

/// The last words of an address, to tell a person what was asked.
fn called(url: &str) -> String {
    let path = url.split('?').next().unwrap_or_default();
    let parts: Vec<&str> = path.rsplit('/').take(2).collect();
    shown(&parts.into_iter().rev().collect::<Vec<_>>().join("/"))
}

impl Cloud for Azure {
    fn name(&self) -> &'static str {
        "Azure"
    }

    fn machine_id(&self, provider_id: &str) -> Option<String> {
        ids::machine_id(provider_id)
    }

    fn cannot_carry(&self, provider_id: &str) -> Option<Unable> {
        ids::is_of_scale_set(provider_id).then_some(Unable {
            reason: "NodeInScaleSet",
            why: "is one of a scale set, whose interfaces cannot be changed one by one: let the nodeSelector pass it over",
        })
    }

    fn look<'a>(&'a self, ids: &'a BTreeSet<String>) -> BoxFuture<'a, Result<View, Error>> {
        self.view(ids).boxed()
    }

    fn assign<'a>(
        &'a self,
        machine: &'a Machine,
        addresses: &'a BTreeMap<Ipv4Addr, Pools>,
    ) -> BoxFuture<'a, Result<(), Error>> {
        self.change(machine, |interface| edit::with(interface, addresses))
            .boxed()
    }

    fn unassign<'a>(
        &'a self,
        machine: &'a Machine,
        addresses: &'a BTreeSet<Ipv4Addr>,
    ) -> BoxFuture<'a, Result<(), Error>> {
        self.change(machine, |interface| edit::without(interface, addresses))
            .boxed()
    }
}
