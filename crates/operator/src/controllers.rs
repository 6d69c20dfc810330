//! The controllers by name, for whoever wants only some of them.

use std::fmt;
use std::str::FromStr;

/// A controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Controller {
    /// HostedCluster → Infra.
    HostedCluster,
    /// Infra → its components.
    Infra,
    /// DHCPServer → what runs it.
    DhcpServer,
    /// DNSServer → what runs it.
    DnsServer,
    /// ProxyServer → what runs it.
    ProxyServer,
    /// EgressIPAM → egress addresses of namespaces.
    EgressIpam,
}

impl Controller {
    /// Every one of them.
    pub const ALL: [Controller; 6] = [
        Controller::HostedCluster,
        Controller::Infra,
        Controller::DhcpServer,
        Controller::DnsServer,
        Controller::ProxyServer,
        Controller::EgressIpam,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Controller::HostedCluster => "hosted-cluster",
            Controller::Infra => "infra",
            Controller::DhcpServer => "dhcp-server",
            Controller::DnsServer => "dns-server",
            Controller::ProxyServer => "proxy-server",
            Controller::EgressIpam => "egress-ipam",
        }
    }
}

impl fmt::Display for Controller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// There is no such controller.
#[derive(Debug, thiserror::Error)]
#[error("there is no controller `{0}`; there are {all}", all = Controller::ALL.map(Controller::name).join(", "))]
pub struct Unknown(String);

impl FromStr for Controller {
    type Err = Unknown;

    fn from_str(text: &str) -> Result<Self, Unknown> {
        let found = Controller::ALL
            .into_iter()
            .find(|controller| controller.name() == text);
        found.ok_or_else(|| Unknown(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_controller_is_found_by_its_name_and_a_wrong_name_is_told_the_right_ones() {
        for controller in Controller::ALL {
            assert_eq!(controller.name().parse::<Controller>().unwrap(), controller);
        }
        let error = "dns".parse::<Controller>().unwrap_err().to_string();
        assert!(error.contains("`dns`") && error.contains("dns-server"), "{error}");
    }
}
