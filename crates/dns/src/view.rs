//! Who sees what.
//!
//! A [`Horizon`] holds everything that one state of the configuration answers. [`Horizon::view`] chooses by
//! the address that was asked and the client's own: at an address of the VLAN its clients see the names of
//! the control plane at the gateway, and nobody else sees anything; at any other address (the pod network)
//! the same names lead to the internal service, or are only forwarded where there is none.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use crate::config::{Config, Internal};
use crate::names::Names;
use crate::wire::name::{self, Name};
use crate::zone::{Translation, Zone};

/// One state of everything that the server answers; never changes.
#[derive(Debug)]
pub struct Horizon {
    config: Arc<Config>,
    vlan: Zone,
    pods: Option<Zone>,
    forwards: ForwardTable,
}

/// What one client sees at one address.
#[derive(Clone, Copy, Debug)]
pub struct View<'h> {
    /// Which of the two it is.
    pub kind: ViewKind,
    /// The own names.
    pub zone: Option<&'h Zone>,
    /// Where all else goes.
    pub forwards: &'h ForwardTable,
}

/// The two views, as a label of metrics and logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ViewKind {
    /// The isolated network of the nodes.
    Vlan,
    /// The pod network of the management cluster.
    Pods,
}

impl ViewKind {
    /// Both, in the order of their numbers.
    pub const ALL: [ViewKind; 2] = [ViewKind::Vlan, ViewKind::Pods];

    /// The label's value.
    pub fn label(self) -> &'static str {
        match self {
            ViewKind::Vlan => "vlan",
            ViewKind::Pods => "pods",
        }
    }
}

impl Horizon {
    /// Puts a state together. `resolved` are the addresses of the internal service where the configuration
    /// names one, or nothing while they are unknown.
    pub fn build(config: Arc<Config>, names: &Names, resolved: Option<&[IpAddr]>) -> Horizon {
        let own;
        let translation = match (&config.internal, resolved) {
            (None, _) => None,
            (Some(Internal::Address(address)), _) => {
                own = [*address];
                Some(Translation::To(&own))
            }
            (Some(Internal::Service(_)), Some(resolved)) => Some(Translation::To(resolved)),
            (Some(Internal::Service(_)), None) => Some(Translation::Pending),
        };
        Horizon {
            vlan: Zone::build(&config, names, Translation::None),
            pods: translation.map(|translation| Zone::build(&config, names, translation)),
            forwards: ForwardTable::new(&config),
            config,
        }
    }

    /// The view of `client` at `asked`; nothing where this client is to be refused there.
    pub fn view(&self, asked: IpAddr, client: IpAddr) -> Result<View<'_>, ViewKind> {
        // An address of the VLAN that the manifest does not name any more may still be bound for a moment:
        // it must not tell the VLAN what is for pods.
        let vlan = matches!(asked, IpAddr::V4(address)
            if self.config.servers.contains(&address) || self.config.network.contains(&address));
        let forwards = &self.forwards;
        if !vlan {
            return Ok(View {
                kind: ViewKind::Pods,
                zone: self.pods.as_ref(),
                forwards,
            });
        }
        match client {
            IpAddr::V4(address) if self.config.network.contains(&address) => Ok(View {
                kind: ViewKind::Vlan,
                zone: Some(&self.vlan),
                forwards,
            }),
            _ => Err(ViewKind::Vlan),
        }
    }

    /// The configuration that this state came from.
    pub fn config(&self) -> &Arc<Config> {
        &self.config
    }

    /// How many names have records of their own on the VLAN.
    pub fn own_names(&self) -> usize {
        self.vlan.len()
    }
}

/// Which list of upstreams a name belongs to: the longest zone wins.
#[derive(Debug)]
pub struct ForwardTable {
    zones: HashMap<Name, usize>,
    default: Option<usize>,
}

impl ForwardTable {
    fn new(config: &Config) -> ForwardTable {
        let mut table = ForwardTable {
            zones: HashMap::new(),
            default: None,
        };
        for (index, forward) in config.forwards.iter().enumerate() {
            if forward.zone == Name::root() {
                table.default = Some(index);
            } else {
                table.zones.insert(forward.zone.clone(), index);
            }
        }
        table
    }

    /// The number of the list in the configuration, and the octets of its zone.
    pub fn find(&self, name: &[u8]) -> Option<(usize, usize)> {
        if !self.zones.is_empty() {
            for parent in name::ancestors(name) {
                if let Some(&index) = self.zones.get(parent) {
                    return Some((index, parent.len()));
                }
            }
        }
        self.default.map(|index| (index, 1))
    }

    /// Nothing is ever forwarded.
    pub fn is_empty(&self) -> bool {
        self.zones.is_empty() && self.default.is_none()
    }
}
