//! The readers of EC2's and STS' answers, for whoever hands them any text.

use super::answer;

/// How much every reader made of a text.
#[derive(Debug, PartialEq, Eq)]
pub struct Read {
    /// Machines, if it is a list of them.
    pub machines: Option<usize>,
    /// Interfaces, if it is a list of them.
    pub interfaces: Option<usize>,
    /// Types of machines, if it is a list of them.
    pub types: Option<usize>,
    /// Whether it holds keys.
    pub keys: bool,
    /// Whether it says that a write was done.
    pub done: bool,
    /// The code of a fault.
    pub fault: Option<String>,
}

/// Hands a text to every reader.
pub fn read(text: &str) -> Read {
    Read {
        machines: answer::instances(text).ok().map(|page| page.items.len()),
        interfaces: answer::interfaces(text).ok().map(|page| page.items.len()),
        types: answer::types(text).ok().map(|types| types.len()),
        keys: answer::role(text).is_ok(),
        done: answer::done("AssignPrivateIpAddresses", text).is_ok(),
        fault: answer::fault(text).map(|(code, _)| code),
    }
}
