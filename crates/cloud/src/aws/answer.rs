//! What EC2 and STS answer. Pure; an answer that is cut off or not as expected is an error, never a shorter list.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use jiff::Timestamp;
use roxmltree::{Document, Node};

use super::sign::Keys;

/// What an answer lacks.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unreadable {
    #[error("the answer is not XML: {0}")]
    Xml(#[from] roxmltree::Error),
    #[error("the answer has no {0}")]
    Lacks(&'static str),
    #[error("`{text}` in the answer is not a {what}")]
    Value { text: String, what: &'static str },
}

/// A part of a list that comes in parts.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Page<T> {
    pub(super) items: Vec<T>,
    /// What the next part is asked for by; empty after the last.
    pub(super) next: String,
}

/// A machine.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Instance {
    pub(super) id: String,
    pub(super) type_: String,
    /// Its first interface; one that is ended has none.
    pub(super) interface: Option<Interface>,
}

/// An interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Interface {
    pub(super) id: String,
    pub(super) subnet: String,
    pub(super) primary: Option<Ipv4Addr>,
    pub(super) secondary: BTreeSet<Ipv4Addr>,
    /// What it is for, in its owner's words.
    pub(super) description: String,
}

/// What went wrong, in the words of AWS: a code and a sentence.
pub(super) fn fault(text: &str) -> Option<(String, String)> {
    let document = Document::parse(text).ok()?;
    let error = document
        .descendants()
        .find(|node| node.has_tag_name_any("Error"))?;
    let part = |name| error.one(name).map(Node::words).unwrap_or_default();
    Some((part("Code"), part("Message")))
}

/// Machines.
pub(super) fn instances(text: &str) -> Result<Page<Instance>, Unreadable> {
    let document = Document::parse(text)?;
    let root = document.root_element();
    let reservations = root
        .one("reservationSet")
        .ok_or(Unreadable::Lacks("reservationSet"))?;
    let mut items = Vec::new();
    for reservation in reservations.all("item") {
        let set = reservation
            .one("instancesSet")
            .ok_or(Unreadable::Lacks("instancesSet"))?;
        for instance in set.all("item") {
            let interfaces = instance
                .one("networkInterfaceSet")
                .into_iter()
                .flat_map(|set| set.all("item"));
            let first = interfaces.into_iter().find(|interface| {
                let attachment = interface.one("attachment");
                attachment
                    .and_then(|one| one.one("deviceIndex"))
                    .is_some_and(|index| index.words() == "0")
            });
            items.push(Instance {
                id: instance.need("instanceId")?,
                type_: instance.need("instanceType")?,
                interface: first.map(interface).transpose()?,
            });
        }
    }
    Ok(Page {
        items,
        next: next(root),
    })
}

/// Interfaces.
pub(super) fn interfaces(text: &str) -> Result<Page<Interface>, Unreadable> {
    let document = Document::parse(text)?;
    let root = document.root_element();
    let set = root
        .one("networkInterfaceSet")
        .ok_or(Unreadable::Lacks("networkInterfaceSet"))?;
    Ok(Page {
        items: set.all("item").map(interface).collect::<Result<_, _>>()?,
        next: next(root),
    })
}

fn interface(node: Node<'_, '_>) -> Result<Interface, Unreadable> {
    let mut interface = Interface {
        id: node.need("networkInterfaceId")?,
        subnet: node.need("subnetId")?,
        primary: None,
        secondary: BTreeSet::new(),
        description: node.one("description").map(Node::words).unwrap_or_default(),
    };
    let addresses = node
        .one("privateIpAddressesSet")
        .ok_or(Unreadable::Lacks("privateIpAddressesSet"))?;
    for one in addresses.all("item") {
        let text = one.need("privateIpAddress")?;
        let what = "IPv4 address";
        let address = text.parse().map_err(|_| Unreadable::Value { text, what })?;
        if one.one("primary").is_some_and(|node| node.words() == "true") {
            interface.primary = Some(address);
        } else {
            interface.secondary.insert(address);
        }
    }
    Ok(interface)
}

/// How many addresses an interface of each type can have, its own included.
pub(super) fn types(text: &str) -> Result<BTreeMap<String, u32>, Unreadable> {
    let document = Document::parse(text)?;
    let set = document
        .root_element()
        .one("instanceTypeSet")
        .ok_or(Unreadable::Lacks("instanceTypeSet"))?;
    let mut types = BTreeMap::new();
    for one in set.all("item") {
        let network = one.one("networkInfo").ok_or(Unreadable::Lacks("networkInfo"))?;
        let text = network.need("ipv4AddressesPerInterface")?;
        let count = text
            .parse()
            .map_err(|_| Unreadable::Value { text, what: "number" })?;
        types.insert(one.need("instanceType")?, count);
    }
    Ok(types)
}

/// Keys that are given for a while, and until when.
pub(super) fn role(text: &str) -> Result<(Keys, Timestamp), Unreadable> {
    let document = Document::parse(text)?;
    let given = document
        .descendants()
        .find(|node| node.has_tag_name_any("Credentials"))
        .ok_or(Unreadable::Lacks("Credentials"))?;
    let until = given.need("Expiration")?;
    let until = until.parse().map_err(|_| Unreadable::Value {
        text: until,
        what: "time",
    })?;
    let keys = Keys {
        id: given.need("AccessKeyId")?,
        secret: given.need("SecretAccessKey")?.into(),
        token: Some(given.need("SessionToken")?.into()),
    };
    Ok((keys, until))
}

/// Whether a write was done: its answer is whole, of this call, and does not say `false`.
pub(super) fn done(call: &str, text: &str) -> Result<(), Unreadable> {
    let document = Document::parse(text)?;
    let root = document.root_element();
    if root.tag_name().name().strip_suffix("Response") != Some(call) {
        return Err(Unreadable::Lacks("confirmation"));
    }
    match root.one("return").map(Node::words).as_deref() {
        None | Some("true") => Ok(()),
        Some(other) => Err(Unreadable::Value {
            text: other.to_owned(),
            what: "success",
        }),
    }
}

fn next(root: Node<'_, '_>) -> String {
    root.one("nextToken").map(Node::words).unwrap_or_default()
}

/// Elements by their names alone: the namespace is that of a version, and says nothing more.
trait Elements<'a, 'input: 'a>: Sized {
    fn has_tag_name_any(&self, name: &str) -> bool;
    fn all(self, name: &'static str) -> impl Iterator<Item = Node<'a, 'input>>;
    fn one(self, name: &'static str) -> Option<Node<'a, 'input>>;
    fn need(self, name: &'static str) -> Result<String, Unreadable>;
    fn words(self) -> String;
}

impl<'a, 'input: 'a> Elements<'a, 'input> for Node<'a, 'input> {
    fn has_tag_name_any(&self, name: &str) -> bool {
        self.tag_name().name() == name
    }

    fn all(self, name: &'static str) -> impl Iterator<Item = Node<'a, 'input>> {
        self.children().filter(move |node| node.has_tag_name_any(name))
    }

    fn one(self, name: &'static str) -> Option<Node<'a, 'input>> {
        self.all(name).next()
    }

    fn need(self, name: &'static str) -> Result<String, Unreadable> {
        self.one(name)
            .map(Elements::words)
            .filter(|text| !text.is_empty())
            .ok_or(Unreadable::Lacks(name))
    }

    fn words(self) -> String {
        self.text().unwrap_or_default().trim().to_owned()
    }
}
