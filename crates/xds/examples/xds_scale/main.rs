//! What the Envoy engine costs as backends grow, as the benchmark measures it:
//! `xds_scale ENVOY BACKENDS ENDPOINTS CHANGES`.
//!
//! Every backend has ENDPOINTS endpoints; one more is real and has one, which moves. In turn: documents become a
//! snapshot and resources; these are pushed to a client that does nothing but accept them; then to a real Envoy, through
//! which connections are made until one arrives. At last the endpoint moves CHANGES times, and connections tell when it
//! has. One line of JSON says how long each took.

mod client;
mod control;
mod traffic;
mod world;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use oooi_proxy::snapshot::Snapshot;
use oooi_xds::resources::Resources;
use serde_json::json;

use client::Bare;
use control::Control;
use traffic::Place;
use world::World;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Where Envoy listens: loopback, and nobody else's.
const GATEWAY: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 92, 1, 1));
const PORT: u16 = 8443;
const PATIENCE: Duration = Duration::from_secs(60);
const REPEATS: usize = 7;

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [envoy, backends, endpoints, changes] = arguments.as_slice() else {
        return Err("usage: xds_scale ENVOY BACKENDS ENDPOINTS CHANGES".into());
    };
    let (backends, endpoints, changes) = (backends.parse()?, endpoints.parse()?, changes.parse()?);
    let places = [Place::open("127.92.2.1", b'a')?, Place::open("127.92.2.2", b'b')?];
    let mut world = World::new(backends, endpoints, PORT, places[0].address)?;

    let [assembled, built] = median_of(|| build(&world));
    let snapshot = world.take_all();
    let pushed = push(snapshot.clone())?;

    let control = Control::start(vec![GATEWAY])?;
    let admin = control.envoy(PathBuf::from(envoy))?;
    until("Envoy to be ready", || control.is_ready(admin))?;
    let hello = traffic::hello(world::NAME)?;
    let gateway = SocketAddr::new(GATEWAY, PORT);
    let envoy_has_it = control.deliver(snapshot, control::ENVOY)?;
    until("the first connection", || {
        traffic::ask(gateway, &hello) == Some(b'a')
    })?;

    let mut moves = Moves::default();
    let (sent, cpu) = (control.sent(), control.cpu()?);
    for turn in 1..=changes {
        let place = &places[turn % 2];
        let start = Instant::now();
        control.send(world.move_to(place.address)?);
        moves.assembled.push(start.elapsed());
        until("the move to reach connections", || {
            traffic::ask(gateway, &hello) == Some(place.letter)
        })?;
        moves.arrived.push(start.elapsed());
    }
    until("Envoy to have answered", || control.is_settled(control::ENVOY))?;
    let count = changes.max(1) as f64;
    let resources = (control.sent() - sent) as f64 / count;
    let control_cpu = (control.cpu()? - cpu).as_secs_f64() * 1e6 / count;
    control.end()?;

    let [moved, arrived] = [&mut moves.assembled, &mut moves.arrived].map(|times| median(times));
    let longest = moves.arrived.last().copied().unwrap_or_default();
    println!(
        "{}",
        json!({
            "backends": backends, "endpoints": endpoints,
            "assemble ms": millis(assembled), "build ms": millis(built), "push ms": millis(pushed),
            "built and pushed ms": millis(assembled + pushed), "envoy ms": millis(envoy_has_it),
            "change assemble us": moved.as_secs_f64() * 1e6, "change control us": control_cpu,
            "change resources": resources,
            "change ms": millis(arrived), "change most ms": millis(longest),
        })
    );
    Ok(())
}

#[derive(Default)]
struct Moves {
    assembled: Vec<Duration>,
    arrived: Vec<Duration>,
}

/// From documents to a snapshot, and from that to resources.
fn build(world: &World) -> [Duration; 2] {
    let start = Instant::now();
    let snapshot = world.assemble();
    let assembled = start.elapsed();
    let start = Instant::now();
    let resources = Resources::next(&Resources::default(), &snapshot, &[GATEWAY]);
    let built = start.elapsed();
    std::hint::black_box(resources);
    [assembled, built]
}

/// From a snapshot until a client that only accepts has answered for everything: building included.
fn push(snapshot: Arc<Snapshot>) -> Result<Duration, Failure> {
    let control = Control::start(vec![GATEWAY])?;
    let bare = Bare::start(control.address)?;
    until("the bare client to be connected", || {
        control.is_settled(client::NODE)
    })?;
    let took = control.deliver(snapshot, client::NODE)?;
    bare.end()?;
    control.end()?;
    Ok(took)
}

fn median_of(mut measure: impl FnMut() -> [Duration; 2]) -> [Duration; 2] {
    let all: Vec<[Duration; 2]> = (0..REPEATS).map(|_| measure()).collect();
    [0, 1].map(|which| median(&mut all.iter().map(|one| one[which]).collect::<Vec<_>>()))
}

/// The middle one; the times are in order afterwards.
fn median(times: &mut [Duration]) -> Duration {
    times.sort();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Asks again and again, with a pause too short to show in the figures.
fn until(what: &str, mut condition: impl FnMut() -> bool) -> Result<(), Failure> {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        if Instant::now() > deadline {
            return Err(format!("waited {PATIENCE:?} in vain for {what}").into());
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    Ok(())
}
