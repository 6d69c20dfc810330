//! The readers of the resource manager's answers, for whoever hands them any text.

use std::net::Ipv4Addr;

use serde_json::Value;

use super::answer::{self, Interface, List, Machine, Network, Resource, Token};
use super::{edit, operation};
use crate::Pools;

/// Hands a text to every reader.
pub fn read(text: &str) {
    if let Ok(list) = answer::read::<List<Resource<Machine>>>(text) {
        let _ = list
            .value
            .iter()
            .filter_map(|one| one.properties.interface())
            .count();
    }
    if let Ok(list) = answer::read::<List<Resource<Interface>>>(text) {
        for one in &list.value {
            let _ = (one.properties.addresses().count(), one.properties.subnet());
        }
    }
    if let Ok(network) = answer::read::<Resource<Network>>(text) {
        let _ = network.properties.used().count();
    }
    let _ = answer::read::<Token>(text);
    let _ = answer::fault(text);
    for status in [200, 202] {
        let _ = operation::progress(status, text);
    }
}

/// An interface as it came, and after an address was added and taken away again. None if the text is no interface, or
/// has the address already.
pub fn there_and_back(text: &str, address: Ipv4Addr) -> Option<(Value, Value)> {
    let interface: Value = answer::read(text).ok()?;
    let with = edit::with(&interface, &[(address, Pools::AsPrimary)].into()).ok()??;
    let without = edit::without(&with, &[address].into()).ok()?;
    // An address that was added can be taken away: nothing at all would be a fault, and is shown as one.
    Some((interface, without.unwrap_or(Value::Null)))
}
