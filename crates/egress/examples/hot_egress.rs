//! The hot functions of address management, to count their instructions: `hot_egress ipam|place COUNT` (see
//! bench/regress.py).

use std::collections::{BTreeMap, BTreeSet};
use std::hint::black_box;
use std::net::Ipv4Addr;

use oooi_egress::{Groups, Wanted, place};
use oooi_ipam::{Pool, Range};

type Failure = Box<dyn std::error::Error>;

const NODES: usize = 100;
const ADDRESSES: u32 = 500;

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [what, count] = arguments.as_slice() else {
        return Err("usage: hot_egress ipam|place COUNT".into());
    };
    match what.as_str() {
        "ipam" => ipam(count.parse()?),
        "place" => placement(count.parse()?),
        _ => Err(format!("{what} is neither ipam nor place").into()),
    }
}

/// The lowest free address of a pool with many gaps is taken and given back.
fn ipam(count: usize) -> Result<(), Failure> {
    let mut pool = Pool::new(Range::new(
        Ipv4Addr::new(10, 0, 0, 0),
        Ipv4Addr::new(10, 0, 255, 255),
    )?);
    for number in 0..ADDRESSES {
        pool.take(Ipv4Addr::from(0x0a00_0001 + 2 * number))?;
    }
    for _ in 0..count {
        let address = black_box(&mut pool).take_lowest().ok_or("a full pool")?;
        pool.give_back(address);
    }
    Ok(())
}

/// A node is lost: what it carried is spread over the others.
fn placement(count: usize) -> Result<(), Failure> {
    let node = |number: usize| format!("node-{number:03}");
    let groups: Groups = vec![(1..NODES).map(node).collect::<BTreeSet<_>>()];
    let wanted: Vec<Wanted> = (0..ADDRESSES)
        .map(|number| Wanted {
            address: Ipv4Addr::from(0x0a00_0000 + number),
            namespace: format!("n{number}"),
            group: 0,
        })
        .collect();
    let current: BTreeMap<Ipv4Addr, String> = wanted
        .iter()
        .enumerate()
        .map(|(number, one)| (one.address, node(number % NODES)))
        .collect();
    for _ in 0..count {
        let placement = place(black_box(&groups), &BTreeMap::new(), &wanted, &current);
        if !black_box(placement).unplaced.is_empty() {
            return Err("an address without a node".into());
        }
    }
    Ok(())
}
