//! Netlink in one namespace.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsRawFd;

use futures_util::{StreamExt, TryStreamExt};
use ipnet::Ipv4Net;
use rtnetlink::packet_route::address::AddressAttribute;
use rtnetlink::packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
use rtnetlink::{Handle, LinkBridge, LinkUnspec, LinkVeth, MulticastGroup, RouteMessageBuilder};

use crate::Namespace;

/// An operation on the network that failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Netlink cannot be spoken at all.
    #[error("netlink cannot be opened: {0}")]
    Open(#[from] io::Error),
    /// The kernel refused an operation.
    #[error("{operation}: {source}")]
    Refused {
        /// What was tried.
        operation: String,
        /// Why not.
        source: rtnetlink::Error,
    },
    /// There is no such interface.
    #[error("there is no interface {0} here: `ip link` lists what there is")]
    NoInterface(String),
    /// A gateway is on no network of the interface.
    #[error(
        "{0} is not in a network of {1}: `ip address` lists its addresses; name the gateway of one of those networks"
    )]
    NotBeside(Ipv4Addr, String),
    /// An interface that was there is there no more.
    #[error("the interface {0} is gone: bring it back, or start this on another one")]
    Gone(String),
}

impl Error {
    /// Whether the kernel said that what was to be made exists already.
    pub fn is_there_already(&self) -> bool {
        self.errno() == Some(rustix::io::Errno::EXIST)
    }

    /// Whether the kernel said that we may not.
    pub fn is_permission(&self) -> bool {
        matches!(
            self.errno(),
            Some(rustix::io::Errno::PERM | rustix::io::Errno::ACCESS)
        )
    }

    fn errno(&self) -> Option<rustix::io::Errno> {
        match self {
            Error::Refused {
                source: rtnetlink::Error::NetlinkError(error),
                ..
            } => Some(rustix::io::Errno::from_raw_os_error(
                error.raw_code().saturating_abs(),
            )),
            _ => None,
        }
    }
}

pub(crate) fn refused(operation: impl Into<String>) -> impl FnOnce(rtnetlink::Error) -> Error {
    let operation = operation.into();
    move |source| Error::Refused { operation, source }
}

/// How an interface is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// Whether it is switched on.
    pub is_up: bool,
    /// Whether something is on the other end.
    pub has_carrier: bool,
    /// The largest packet that it takes.
    pub mtu: u32,
    /// Its hardware address, if it is a station of an Ethernet.
    pub mac: Option<[u8; 6]>,
}

fn name_of(link: &LinkMessage) -> Option<String> {
    link.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::IfName(name) => Some(name.clone()),
        _ => None,
    })
}

/// The interfaces, addresses and routes of the namespace in which it was opened.
pub struct Network {
    pub(crate) netlink: Handle,
}

impl Network {
    /// Opens netlink in the namespace of this thread; must be called inside a runtime.
    pub fn open() -> Result<Self, Error> {
        let (connection, netlink, _) = rtnetlink::new_connection()?;
        tokio::spawn(connection);
        Ok(Network { netlink })
    }

    /// Ends when an interface is gone, with the error that says so. One that is not there is gone.
    pub async fn until_gone(name: &str) -> Error {
        let (connection, netlink, mut news) =
            match rtnetlink::new_multicast_connection(&[MulticastGroup::Link]) {
                Ok(made) => made,
                Err(error) => return error.into(),
            };
        tokio::spawn(connection);
        let network = Network { netlink };
        // Whatever changes after this look is news.
        while network.link(name).await.is_ok() {
            if news.next().await.is_none() {
                return io::Error::other("netlink fell silent").into();
            }
        }
        Error::Gone(name.to_owned())
    }

    async fn link(&self, name: &str) -> Result<LinkMessage, Error> {
        let found = self
            .netlink
            .link()
            .get()
            .match_name(name.to_owned())
            .execute()
            .try_next()
            .await;
        match found {
            Ok(Some(link)) => Ok(link),
            _ => Err(Error::NoInterface(name.to_owned())),
        }
    }

    /// The number of an interface.
    pub async fn index(&self, name: &str) -> Result<u32, Error> {
        Ok(self.link(name).await?.header.index)
    }

    /// The names of all interfaces but loopback.
    pub async fn interfaces(&self) -> Result<Vec<String>, Error> {
        let links: Vec<LinkMessage> = self
            .netlink
            .link()
            .get()
            .execute()
            .try_collect()
            .await
            .map_err(refused("list interfaces"))?;
        let outward = links
            .iter()
            .filter(|link| !link.header.flags.contains(LinkFlags::Loopback));
        Ok(outward.filter_map(name_of).collect())
    }

    /// How an interface is.
    pub async fn state(&self, name: &str) -> Result<Link, Error> {
        let message = self.link(name).await?;
        let flags = message.header.flags;
        let mut link = Link {
            is_up: flags.contains(LinkFlags::Up),
            has_carrier: flags.contains(LinkFlags::LowerUp),
            ..Link::default()
        };
        for attribute in message.attributes {
            match attribute {
                LinkAttribute::Mtu(mtu) => link.mtu = mtu,
                LinkAttribute::Address(octets) => link.mac = octets.try_into().ok(),
                _ => {}
            }
        }
        Ok(link)
    }

    /// Sets the largest packet of an interface.
    pub async fn set_mtu(&self, name: &str, mtu: u32) -> Result<(), Error> {
        let change = LinkUnspec::new_with_name(name).mtu(mtu).build();
        self.netlink
            .link()
            .change(change)
            .execute()
            .await
            .map_err(refused(format!("set the MTU of {name} to {mtu}")))
    }

    /// Sets an interface down.
    pub async fn set_down(&self, name: &str) -> Result<(), Error> {
        let down = LinkUnspec::new_with_name(name).down().build();
        self.netlink
            .link()
            .change(down)
            .execute()
            .await
            .map_err(refused(format!("set {name} down")))
    }

    /// Removes an interface.
    pub async fn remove(&self, name: &str) -> Result<(), Error> {
        let index = self.index(name).await?;
        self.netlink
            .link()
            .del(index)
            .execute()
            .await
            .map_err(refused(format!("remove {name}")))
    }

    /// Makes a bridge and sets it up.
    pub async fn add_bridge(&self, name: &str) -> Result<(), Error> {
        self.netlink
            .link()
            .add(LinkBridge::new(name).up().build())
            .execute()
            .await
            .map_err(refused(format!("add bridge {name}")))
    }

    /// Makes a veth pair: `name` here, `peer` in another namespace.
    pub async fn add_veth(&self, name: &str, peer: &str, namespace: &Namespace) -> Result<(), Error> {
        let operation = || format!("add veth {name} to {peer} in {}", namespace.name());
        // Both ends are made here and one is moved: interface names are only unique in a namespace, so the end that
        // moves has a name of its own until it has arrived.
        let travelling = format!("{name}.peer");
        let links = self.netlink.link();
        links
            .add(LinkVeth::new(name, &travelling).build())
            .execute()
            .await
            .map_err(refused(operation()))?;
        let index = self.index(&travelling).await?;
        let moved = LinkUnspec::new_with_index(index)
            .name(peer)
            .setns_by_fd(std::os::fd::AsFd::as_fd(namespace).as_raw_fd())
            .build();
        self.netlink
            .link()
            .change(moved)
            .execute()
            .await
            .map_err(refused(operation()))
    }

    /// Sets an interface up.
    pub async fn set_up(&self, name: &str) -> Result<(), Error> {
        let up = LinkUnspec::new_with_name(name).up().build();
        self.netlink
            .link()
            .change(up)
            .execute()
            .await
            .map_err(refused(format!("set {name} up")))
    }

    /// Makes an interface a port of a bridge and sets it up.
    pub async fn attach(&self, name: &str, bridge: &str) -> Result<(), Error> {
        let controller = self.index(bridge).await?;
        let port = LinkUnspec::new_with_name(name)
            .controller(controller)
            .up()
            .build();
        self.netlink
            .link()
            .change(port)
            .execute()
            .await
            .map_err(refused(format!("attach {name} to {bridge}")))
    }

    /// Adds an address to an interface.
    pub async fn add_address(&self, name: &str, address: Ipv4Net) -> Result<(), Error> {
        let index = self.index(name).await?;
        self.netlink
            .address()
            .add(index, IpAddr::V4(address.addr()), address.prefix_len())
            .execute()
            .await
            .map_err(refused(format!("add {address} to {name}")))
    }

    /// Removes an address from an interface; one that is not there is fine.
    pub async fn remove_address(&self, name: &str, address: Ipv4Addr) -> Result<(), Error> {
        let index = self.index(name).await?;
        let mut addresses = self
            .netlink
            .address()
            .get()
            .set_link_index_filter(index)
            .execute();
        while let Some(message) = addresses
            .try_next()
            .await
            .map_err(refused(format!("list addresses of {name}")))?
        {
            let is_it = message.attributes.iter().any(|attribute| {
                matches!(attribute, AddressAttribute::Local(IpAddr::V4(local)) if *local == address)
            });
            if is_it {
                let remove = self.netlink.address().del(message);
                return remove
                    .execute()
                    .await
                    .map_err(refused(format!("remove {address} from {name}")));
            }
        }
        Ok(())
    }

    /// The IPv4 addresses of an interface.
    pub async fn addresses(&self, name: &str) -> Result<Vec<Ipv4Net>, Error> {
        let index = self.index(name).await?;
        let mut messages = self
            .netlink
            .address()
            .get()
            .set_link_index_filter(index)
            .execute();
        let mut found = Vec::new();
        while let Some(message) = messages
            .try_next()
            .await
            .map_err(refused(format!("list addresses of {name}")))?
        {
            let prefix = message.header.prefix_len;
            let local = message.attributes.iter().find_map(|attribute| match attribute {
                AddressAttribute::Local(IpAddr::V4(local)) => Some(*local),
                _ => None,
            });
            found.extend(local.and_then(|local| Ipv4Net::new(local, prefix).ok()));
        }
        Ok(found)
    }

    /// Adds a route by a next hop.
    pub async fn add_route(&self, destination: Ipv4Net, gateway: Ipv4Addr) -> Result<(), Error> {
        let route = RouteMessageBuilder::<Ipv4Addr>::new()
            .destination_prefix(destination.network(), destination.prefix_len())
            .gateway(gateway)
            .build();
        let operation = format!("route {destination} via {gateway}");
        self.netlink
            .route()
            .add(route)
            .execute()
            .await
            .map_err(refused(operation))
    }
}
