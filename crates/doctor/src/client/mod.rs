//! What a node speaks while it boots: DHCP, DNS, TLS. The lab's nodes and the doctor share it.

pub mod dhcp;
pub mod dns;
pub mod echo;
pub mod tls;
