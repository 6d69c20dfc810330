//! What was seen → what it means. Pure: no clock, no socket, no client.

pub mod cluster;
pub mod dhcp;
pub mod dns;
pub mod link;
pub mod mtu;
pub mod service;

/// Things in a row, or a word for none.
fn list<T: ToString>(things: &[T]) -> String {
    if things.is_empty() {
        return "none".into();
    }
    things
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(", ")
}
