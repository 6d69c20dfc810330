//! The hot functions of DNS, to count their instructions: `hot_dns own|hit COUNT` (see bench/regress.py).

use std::hint::black_box;
use std::net::IpAddr;
use std::sync::Arc;

use oooi_api::dns_server::{DnsNetworkConfig, DnsServerSpec, DnsStaticEntry};
use oooi_dns::answer::{self, Decision};
use oooi_dns::cache::{Age, Cache, Entry, Hit, Key};
use oooi_dns::view::Horizon;
use oooi_dns::wire::name::Name;
use oooi_dns::wire::query::Query;
use oooi_dns::wire::reply::{Asked, Reply};
use oooi_dns::{Config, Names};

type Failure = Box<dyn std::error::Error>;

const A: u16 = 1;
const HELD: usize = 1000;

fn question(name: &str) -> Result<Vec<u8>, Failure> {
    let mut message = vec![0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    message.extend(Name::parse(name)?.wire());
    message.extend([0, 1, 0, 1]);
    Ok(message)
}

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [what, count] = arguments.as_slice() else {
        return Err("usage: hot_dns own|hit COUNT".into());
    };
    match what.as_str() {
        "own" => own(count.parse()?),
        "hit" => hit(count.parse()?),
        _ => Err(format!("{what} is neither own nor hit").into()),
    }
}

/// A question for an own name, from its bytes to those of the answer.
fn own(count: usize) -> Result<(), Failure> {
    let entry = |hostname: &str| DnsStaticEntry {
        hostname: hostname.into(),
        ip: "192.0.2.4".into(),
        additional_ips: vec![],
    };
    let config = Config::from_spec(&DnsServerSpec {
        hosted_cluster_domain: "bench.example".into(),
        network_config: DnsNetworkConfig {
            server_ip: "192.0.2.3/24".into(),
            proxy_ip: "192.0.2.4".into(),
            dns_port: 53,
            ..DnsNetworkConfig::default()
        },
        static_entries: vec![entry("api.bench.example"), entry("*.apps.bench.example")],
        cache_ttl: "30s".into(),
        ..DnsServerSpec::default()
    })?;
    let horizon = Horizon::build(Arc::new(config), &Names::default(), None);
    let (server, client) = (IpAddr::from([192, 0, 2, 3]), IpAddr::from([192, 0, 2, 20]));
    let message = question("console.apps.bench.example")?;
    let mut out = [0; 512];
    for turn in 0..count {
        let query = Query::parse(black_box(&message)).map_err(|_| "no question")?;
        let view = horizon.view(server, client).map_err(|_| "no view")?;
        let Decision::Own(zone, found) = answer::decide(&view, &query) else {
            return Err("not an own name".into());
        };
        black_box(answer::write(&mut out, 512, &query, (zone, found), false, turn));
    }
    Ok(())
}

/// A question that the cache answers, from its bytes to those of the answer.
fn hit(count: usize) -> Result<(), Failure> {
    let cache = Cache::new(16 << 20);
    let mut messages = Vec::new();
    for number in 0..HELD {
        let name = format!("n{number}.example.org");
        let message = question(&name)?;
        let query = Query::parse(&message).map_err(|_| "no question")?;
        cache.store(Key::of(&query).octets(), &Arc::new(Entry::new(reply(&name)?, 0)));
        messages.push(message);
    }
    let mut out = [0; 512];
    // Each in turn: where a name lies in the table is another in each run, and one alone may be easy or hard to find.
    for message in messages.iter().cycle().take(count) {
        let query = Query::parse(black_box(message)).map_err(|_| "no question")?;
        let Hit::Fresh { entry, age, .. } = cache.find(&Key::of(&query), 10) else {
            return Err("not in the cache".into());
        };
        black_box(entry.write(&mut out, 512, &query, Age::Fresh(age)));
    }
    Ok(())
}

/// An upstream's answer of two addresses.
fn reply(name: &str) -> Result<Reply, Failure> {
    let mut message = question(name)?;
    message[2] |= 0x80;
    message[7] = 2;
    for last in 1..=2 {
        message.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 14, 16, 0, 4, 192, 0, 2, last]);
    }
    let asked = Asked {
        id: 7,
        name: Name::parse(name)?.wire().into(),
        kind: A,
        dnssec_ok: false,
        spelling: true,
    };
    Ok(Reply::read(&message, &asked, 3600).map_err(|error| format!("{error:?}"))?)
}
