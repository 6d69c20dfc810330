//! Amazon Web Services: EC2 by its Query API.

mod answer;
#[cfg(test)]
mod answer_tests;
mod ask;
mod credentials;
mod sign;
#[cfg(feature = "testing")]
pub mod testing;

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::PoisonError;
use std::time::Instant;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::{Request, Uri};
use jiff::Timestamp;

use crate::error::{Error, shown};
use crate::form::Form;
use crate::http::{Http, body};
use crate::pace::Pace;
use crate::persist::{Failed, Kind, persist};
use crate::{Cloud, Environment, Machine, Pools, SecretReader, View};
use answer::{Interface, Page, Unreadable};
use credentials::Credentials;
use sign::Scope;

/// Calls a second that EC2 is asked at most, and how many at once. It lets more through, but not for us alone.
const PACE: (u32, u32) = (10, 20);

/// Answers that mean "later".
const THROTTLED: [&str; 6] = [
    "RequestLimitExceeded",
    "Throttling",
    "ThrottlingException",
    "RequestThrottled",
    "TooManyRequestsException",
    "EC2ThrottledException",
];

/// Answers that mean that we are nobody here, or may not.
const DENIED: [&str; 10] = [
    "AuthFailure",
    "UnauthorizedOperation",
    "InvalidClientTokenId",
    "SignatureDoesNotMatch",
    "UnrecognizedClientException",
    "ExpiredToken",
    "RequestExpired",
    "MissingAuthenticationToken",
    "OptInRequired",
    "AccessDenied",
];

/// EC2 of one region.
pub struct Aws {
    http: Http,
    endpoint: String,
    host: String,
    region: String,
    credentials: Credentials,
    pace: std::sync::Mutex<Pace>,
    /// Addresses of an interface by machine type, its own included. They never change.
    types: std::sync::Mutex<BTreeMap<String, u32>>,
}

impl Aws {
    /// EC2 of a region.
    pub fn new(http: Http, region: &str, secret: SecretReader, environment: Environment) -> Self {
        let domain = match region.starts_with("cn-") {
            true => "amazonaws.com.cn",
            false => "amazonaws.com",
        };
        let url = |service: &str, chosen: &Option<String>| {
            let own = || format!("https://{service}.{region}.{domain}");
            let chosen = chosen.clone().unwrap_or_else(own);
            format!("{}/", chosen.trim_end_matches('/'))
        };
        let endpoint = url("ec2", &environment.ec2);
        let host = endpoint.parse::<Uri>().ok();
        let host = host.and_then(|uri| Some(uri.authority()?.as_str().to_owned()));
        Aws {
            host: host.unwrap_or_default(),
            endpoint,
            region: region.to_owned(),
            credentials: Credentials {
                http: http.clone(),
                secret,
                sts: url("sts", &environment.sts),
                environment,
                kept: tokio::sync::Mutex::default(),
            },
            http,
            pace: std::sync::Mutex::new(Pace::new(PACE.0, PACE.1, Instant::now())),
            types: std::sync::Mutex::default(),
        }
    }

    /// Asks until there is an answer that tells something, and gives what `read` makes of it.
    async fn call<T>(
        &self,
        call: &str,
        kind: Kind,
        form: &Form,
        read: impl Fn(&str) -> Result<T, Unreadable>,
    ) -> Result<T, Error> {
        if self.region.is_empty() {
            let why =
                "the region is not known: Infrastructure `cluster` has no status.platformStatus.aws.region";
            return Err(Error::Unreachable {
                call: call.to_owned(),
                why: why.into(),
            });
        }
        let once = || async { self.once(call, form).await.map_err(Failed::from) };
        let text = persist(kind, &self.pace, once).await?;
        read(&text).map_err(|error| Error::Unknown {
            call: call.to_owned(),
            why: error.to_string(),
        })
    }

    async fn once(&self, call: &str, form: &Form) -> Result<String, Error> {
        let now = Timestamp::now();
        let keys = self.credentials.keys(now).await?;
        let text = form.encode();
        let scope = Scope {
            host: &self.host,
            region: &self.region,
            service: "ec2",
        };
        let signed = sign::headers(&keys, &scope, sign::FORM, &text, now);
        let signed = signed.ok_or_else(|| Error::NoCredentials {
            cloud: "AWS",
            lacking: "the keys have characters that no key has: write them anew".into(),
        })?;
        let mut request = Request::post(&self.endpoint).header(http::header::CONTENT_TYPE, sign::FORM);
        for (name, value) in signed {
            request = request.header(name, value);
        }
        let request = request.body(body(text)).map_err(|error| Error::Unreachable {
            call: call.to_owned(),
            why: format!("{} is no endpoint: {error}", self.endpoint),
        })?;
        let answer = self.http.send(request).await.map_err(|lost| lost.error(call))?;
        let text = answer.text();
        if answer.status.is_success() {
            return Ok(text);
        }
        let (code, message) = answer::fault(&text).unwrap_or_default();
        let call = call.to_owned();
        let message = shown(&message);
        if THROTTLED.contains(&code.as_str()) || answer.status.as_u16() == 429 {
            return Err(Error::Throttled { call });
        }
        if DENIED.contains(&code.as_str()) {
            self.credentials.forget().await;
            return Err(Error::Denied { call, code, message });
        }
        if answer.status.is_server_error() || code.is_empty() {
            let why = format!("{} {code} {message}", answer.status);
            return Err(Error::Unknown { call, why });
        }
        Err(Error::Refused { call, code, message })
    }

    /// All parts of a list.
    async fn list<T>(
        &self,
        call: &str,
        ask: impl Fn(&str) -> Form,
        read: impl Fn(&str) -> Result<Page<T>, Unreadable>,
    ) -> Result<Vec<T>, Error> {
        let (mut all, mut next) = (Vec::new(), String::new());
        loop {
            let page = self.call(call, Kind::Read, &ask(&next), &read).await?;
            all.extend(page.items);
            next = page.next;
            if next.is_empty() {
                return Ok(all);
            }
        }
    }

    /// How many addresses an interface of a type can have, where AWS says so. What it does not say is no limit here:
    /// nought would look like a full machine.
    async fn capacities(&self, wanted: &BTreeSet<String>) -> BTreeMap<String, u32> {
        let known = || self.types.lock().unwrap_or_else(PoisonError::into_inner);
        let unknown: Vec<String> = {
            let known = known();
            wanted
                .iter()
                .filter(|one| !known.contains_key(*one))
                .cloned()
                .collect()
        };
        for some in unknown.chunks(ask::TYPES) {
            let form = ask::types(some.iter().map(String::as_str));
            match self
                .call("DescribeInstanceTypes", Kind::Read, &form, answer::types)
                .await
            {
                Ok(types) => known().extend(types),
                Err(error) => tracing::warn!(%error, "the capacity of some machines is not known"),
            }
        }
        known().clone()
    }

    async fn view(&self, ids: &BTreeSet<String>) -> Result<View, Error> {
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        let mut instances = Vec::new();
        for some in ids.chunks(ask::FILTERED) {
            let ask = |next: &str| ask::instances(some.iter().copied(), next);
            instances.extend(self.list("DescribeInstances", ask, answer::instances).await?);
        }
        let types = instances.iter().map(|one| one.type_.clone()).collect();
        let capacities = self.capacities(&types).await;
        let mut view = View::default();
        let mut subnets = BTreeSet::new();
        for instance in instances {
            let Some(interface) = instance.interface else {
                continue;
            };
            subnets.insert(interface.subnet);
            let capacity = capacities.get(&instance.type_).map(|all| all.saturating_sub(1));
            view.machines.insert(
                instance.id.clone(),
                Machine {
                    id: instance.id,
                    interface: interface.id,
                    primary: interface.primary,
                    secondary: interface.secondary,
                    capacity,
                },
            );
        }
        let own: BTreeSet<String> = view.machines.values().map(|one| one.interface.clone()).collect();
        let subnets: Vec<&str> = subnets.iter().map(String::as_str).collect();
        for some in subnets.chunks(ask::FILTERED) {
            let ask = |next: &str| ask::interfaces(some.iter().copied(), next);
            let interfaces = self
                .list("DescribeNetworkInterfaces", ask, answer::interfaces)
                .await?;
            for interface in interfaces.into_iter().filter(|one| !own.contains(&one.id)) {
                let user = user(&interface);
                let addresses = interface.primary.into_iter().chain(interface.secondary);
                view.used.extend(addresses.map(|address| (address, user.clone())));
            }
        }
        Ok(view)
    }
}

/// What to call an interface of others.
fn user(interface: &Interface) -> String {
    match interface.description.is_empty() {
        true => format!("network interface {}", interface.id),
        false => format!(
            "network interface {} ({})",
            interface.id,
            shown(&interface.description)
        ),
    }
}

impl Cloud for Aws {
    fn name(&self) -> &'static str {
        "AWS"
    }

    fn machine_id(&self, provider_id: &str) -> Option<String> {
        machine_id(provider_id)
    }

    fn look<'a>(&'a self, ids: &'a BTreeSet<String>) -> BoxFuture<'a, Result<View, Error>> {
        self.view(ids).boxed()
    }

    fn assign<'a>(
        &'a self,
        machine: &'a Machine,
        addresses: &'a BTreeMap<Ipv4Addr, Pools>,
    ) -> BoxFuture<'a, Result<(), Error>> {
        async move {
            let form = ask::assign(&machine.interface, addresses.keys());
            let call = "AssignPrivateIpAddresses";
            self.call(call, Kind::Write, &form, |text| answer::done(call, text))
                .await
        }
        .boxed()
    }

    fn unassign<'a>(
        &'a self,
        machine: &'a Machine,
        addresses: &'a BTreeSet<Ipv4Addr>,
    ) -> BoxFuture<'a, Result<(), Error>> {
        async move {
            let form = ask::unassign(&machine.interface, addresses);
            let call = "UnassignPrivateIpAddresses";
            self.call(call, Kind::Write, &form, |text| answer::done(call, text))
                .await
        }
        .boxed()
    }
}

/// The instance of `aws:///eu-north-1a/i-0123456789`.
fn machine_id(provider_id: &str) -> Option<String> {
    let path = provider_id.strip_prefix("aws://")?;
    let id = path.rsplit('/').next()?;
    let known = id
        .strip_prefix("i-")
        .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_alphanumeric()));
    known.then(|| id.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_instance_is_read_from_a_provider_id() {
        assert_eq!(machine_id("aws:///eu-north-1a/i-0ab1").as_deref(), Some("i-0ab1"));
        for wrong in [
            "",
            "aws://",
            "aws:///eu-north-1a/",
            "aws:///a/i-",
            "azure:///i-1",
            "aws:///a/i-1&x",
            "i-1",
        ] {
            assert_eq!(machine_id(wrong), None, "{wrong}");
        }
    }
}
