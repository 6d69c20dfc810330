//! `oooi route`: routes by source in a pod whose network cannot see to them.

use std::net::Ipv4Addr;

use oooi_net::{Error, Network, take_up_net_admin};
use tracing::info;

use crate::{Outcome, block_on};

/// Let answers from an interface leave by it, also to clients beyond its network
///
/// A pod on two networks has one default route. This adds a table of routes for what leaves from the addresses of the
/// interface, and a rule for each of them; done again, it changes nothing. It needs NET_ADMIN and ends at once: the
/// operator runs it before a server where the network's own plugins cannot do the same.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The interface on the VLAN
    #[arg(long, value_name = "IF")]
    interface: String,
    /// The VLAN's own gateway
    #[arg(long, value_name = "ADDRESS")]
    gateway: Ipv4Addr,
}

/// Adds what is missing.
pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    take_up_net_admin();
    let routed = block_on(async {
        Ok(Network::open()?
            .route_by_source(&args.interface, args.gateway)
            .await)
    })?;
    match routed {
        Ok(addresses) => {
            let Args { interface, gateway } = args;
            info!(interface, %gateway, ?addresses, "answers leave by the interface that they belong to");
            Ok(Outcome::Done)
        }
        Err(error) if error.is_permission() => Err(anyhow::Error::from(error).context(
            "routes cannot be changed: run this as root, or give the container the capability NET_ADMIN",
        )),
        Err(error @ (Error::NoInterface(_) | Error::NotBeside(..))) => {
            eprintln!("oooi: {error}");
            Ok(Outcome::Invalid)
        }
        Err(error) => Err(error.into()),
    }
}
