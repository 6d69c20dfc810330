//! The resolvers of the host, from its `resolv.conf`.

use std::net::{IpAddr, SocketAddr};

/// The resolvers that a `resolv.conf` names, in its order. Other lines, and addresses with a scope, which
/// no pod has, are passed over.
pub fn resolvers(text: &str) -> Vec<SocketAddr> {
    let mut found = Vec::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        if words.next() != Some("nameserver") {
            continue;
        }
        let Some(address) = words.next().and_then(|word| word.parse::<IpAddr>().ok()) else {
            continue;
        };
        let address = SocketAddr::new(address, 53);
        if !found.contains(&address) {
            found.push(address);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nameservers_are_read_in_order_and_once() {
        let text = "# made by hand\nsearch ns.svc\nnameserver 172.30.0.10\nnameserver fd00::10\n\
                    nameserver 172.30.0.10\nnameserver nonsense\nnameserver\noptions ndots:5\n";
        let expected: [SocketAddr; 2] = [
            "172.30.0.10:53".parse().unwrap(),
            "[fd00::10]:53".parse().unwrap(),
        ];
        assert_eq!(resolvers(text), expected);
    }
}
