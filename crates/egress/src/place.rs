//! Which node carries each address, where we choose it ourselves.
//!
//! What is well placed stays. What lies on a node that cannot carry it any more, or on none, goes to the node with the
//! fewest addresses. Then addresses move from the fullest node to the emptiest of the same group until none has two
//! more than another: with what was there, no fewer moves reach that.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

/// Nodes that can stand in for each other: the healthy ones with the label of a network.
pub type Groups = Vec<BTreeSet<String>>;

/// An address that needs a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The address.
    pub address: Ipv4Addr,
    /// Whose it is. Two of one namespace share a node only where evenness asks for it.
    pub namespace: String,
    /// Which of the groups can carry it.
    pub group: usize,
}

/// Why an address has no good node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unplaced {
    /// There is no healthy node for it.
    NoNode,
    /// Every node for it is full.
    Full,
}

/// Where every address is to be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// The node of each address.
    pub on: BTreeMap<Ipv4Addr, String>,
    /// Addresses without a good node. Those that were on a node stay there: nothing is gained by taking them away.
    pub unplaced: BTreeMap<Ipv4Addr, Unplaced>,
}

/// Places all addresses. `room` is how many a node can carry, where that is limited; `current` is where they are.
pub fn place(
    groups: &Groups,
    room: &BTreeMap<String, u32>,
    wanted: &[Wanted],
    current: &BTreeMap<Ipv4Addr, String>,
) -> Placement {
    let mut wanted: Vec<&Wanted> = wanted.iter().collect();
    wanted.sort_by_key(|one| one.address);
    wanted.dedup_by_key(|one| one.address);
    let mut board = Board {
        groups,
        room,
        on: BTreeMap::new(),
    };
    let mut homeless = Vec::new();
    for one in wanted {
        let stays = current
            .get(&one.address)
            .filter(|node| board.group(one).contains(*node));
        match stays.filter(|node| board.has_room(node)) {
            Some(node) => board.put(node.clone(), one),
            None => homeless.push(one),
        }
    }
    // Evening out may make room for what found none before.
    let mut waiting = homeless.clone();
    loop {
        let before = waiting.len();
        waiting.retain(|one| !board.settle(one));
        board.part(&homeless);
        while let Some((address, from, to)) = board.next_move() {
            board.shift(address, &from, to);
        }
        if waiting.len() == before || waiting.is_empty() {
            break;
        }
    }
    let why = |one: &Wanted| match board.group(one).is_empty() {
        true => Unplaced::NoNode,
        false => Unplaced::Full,
    };
    let unplaced: BTreeMap<Ipv4Addr, Unplaced> = waiting.iter().map(|one| (one.address, why(one))).collect();
    let mut on: BTreeMap<Ipv4Addr, String> = BTreeMap::new();
    for (node, load) in board.on {
        on.extend(load.into_keys().map(|address| (address, node.clone())));
    }
    let stay = unplaced
        .keys()
        .filter_map(|address| Some((*address, current.get(address)?.clone())));
    on.extend(stay);
    Placement { on, unplaced }
}

struct Board<'a> {
    groups: &'a Groups,
    room: &'a BTreeMap<String, u32>,
    on: BTreeMap<String, BTreeMap<Ipv4Addr, &'a Wanted>>,
}

impl<'a> Board<'a> {
    fn group(&self, one: &Wanted) -> &'a BTreeSet<String> {
        static NONE: BTreeSet<String> = BTreeSet::new();
        self.groups.get(one.group).unwrap_or(&NONE)
    }

    fn load(&self, node: &str) -> usize {
        self.on.get(node).map_or(0, BTreeMap::len)
    }

    fn has_room(&self, node: &str) -> bool {
        self.room
            .get(node)
            .is_none_or(|room| self.load(node) < *room as usize)
    }

    fn put(&mut self, node: String, one: &'a Wanted) {
        self.on.entry(node).or_default().insert(one.address, one);
    }

    /// Whether the node carries an address of the same namespace.
    fn shares(&self, node: &str, one: &Wanted) -> bool {
        let load = self.on.get(node);
        load.is_some_and(|load| {
            load.values()
                .any(|other| other.namespace == one.namespace && other.address != one.address)
        })
    }

    /// The node with the fewest addresses; of several one that has none of the same namespace; of these the first.
    fn best(&self, one: &Wanted) -> Option<String> {
        let open = self.group(one).iter().filter(|node| self.has_room(node));
        open.min_by_key(|node| (self.load(node), self.shares(node, one), *node))
            .cloned()
    }

    /// Puts an address on the best node, or on a full one that can pass something on. False if there is none.
    fn settle(&mut self, one: &'a Wanted) -> bool {
        if let Some(node) = self.best(one) {
            self.put(node, one);
            return true;
        }
        let passed_on = self.group(one).iter().find_map(|full| {
            let load = self.on.get(full)?.values();
            load.filter_map(|other| Some((full.clone(), other.address, self.best(other)?)))
                .next()
        });
        match passed_on {
            Some((full, address, to)) => {
                self.shift(address, &full, to);
                self.put(full, one);
                true
            }
            None => false,
        }
    }

    /// Swaps newly placed addresses so that two of one namespace part. Nothing that was there before moves.
    fn part(&mut self, placed: &[&'a Wanted]) {
        for one in placed {
            let Some(here) = self.node(one).filter(|node| self.shares(node, one)) else {
                continue;
            };
            let suits = |other: &&&'a Wanted| {
                self.node(other).is_some_and(|there| {
                    there != here
                        && self.group(one).contains(&there)
                        && self.group(other).contains(&here)
                        && !self.shares(&there, one)
                        && !self.shares(&here, other)
                })
            };
            if let Some(other) = placed.iter().find(suits).copied()
                && let Some(there) = self.node(other)
            {
                self.shift(one.address, &here, there.clone());
                self.shift(other.address, &there, here);
            }
        }
    }

    fn node(&self, one: &Wanted) -> Option<String> {
        let nodes = self.group(one).iter();
        nodes
            .into_iter()
            .find(|node| {
                self.on
                    .get(*node)
                    .is_some_and(|load| load.contains_key(&one.address))
            })
            .cloned()
    }

    /// A move that evens out the two most uneven nodes of a group.
    fn next_move(&self) -> Option<(Ipv4Addr, String, String)> {
        (0..self.groups.len()).find_map(|group| self.move_within(group))
    }

    fn move_within(&self, group: usize) -> Option<(Ipv4Addr, String, String)> {
        let nodes = self.groups.get(group)?;
        let to = nodes
            .iter()
            .filter(|node| self.has_room(node))
            .min_by_key(|node| (self.load(node), *node))?;
        // The fullest first; one that carries nothing of this group has nothing to give.
        let mut fuller: Vec<&String> = nodes
            .iter()
            .filter(|node| self.load(node) >= self.load(to) + 2)
            .collect();
        fuller.sort_by_key(|node| (usize::MAX - self.load(node), *node));
        fuller.into_iter().find_map(|from| {
            let movable = self.on.get(from)?.values().filter(|one| one.group == group);
            let one = movable.min_by_key(|one| (self.shares(to, one), one.address))?;
            Some((one.address, from.clone(), to.clone()))
        })
    }

    fn shift(&mut self, address: Ipv4Addr, from: &str, to: String) {
        if let Some(one) = self.on.get_mut(from).and_then(|load| load.remove(&address)) {
            self.put(to, one);
        }
    }
}
