//! How large packets may be on the way to an address.

use std::net::Ipv4Addr;

use futures_util::future::join_all;

use crate::client::echo::Echo;
use crate::diagnose::mtu::Seen;

/// What every path of IPv4 takes.
const SMALL: u16 = 576;

/// Looks at the paths to all of these at once.
pub(super) async fn look(mtu: u16, targets: &[Ipv4Addr]) -> Vec<(Ipv4Addr, Seen)> {
    join_all(targets.iter().map(async |target| {
        // Without the right to ping nothing can be said, which is no finding.
        let seen = path(mtu, *target).await.unwrap_or(Seen::Mute);
        (*target, seen)
    }))
    .await
}

async fn path(mtu: u16, target: Ipv4Addr) -> std::io::Result<Seen> {
    let mut echo = Echo::new(target)?;
    if !echo.fits(SMALL).await? {
        return Ok(Seen::Mute);
    }
    if echo.fits(mtu).await? {
        return Ok(Seen::Whole);
    }
    let (mut passes, mut vanishes) = (SMALL, mtu);
    while vanishes - passes > 1 {
        let middle = passes + (vanishes - passes) / 2;
        if echo.fits(middle).await? {
            passes = middle;
        } else {
            vanishes = middle;
        }
    }
    Ok(Seen::Narrow { largest: passes })
}
