//! Which addresses a running server is asked at.

use std::net::SocketAddr;
use std::sync::Arc;

use super::Shared;
use super::listen::{Bound, ListenError, Listeners};

/// The addresses of a server, to be changed while it runs.
#[derive(Clone)]
pub struct Addresses {
    pub(super) shared: Arc<Shared>,
}

/// What changes for one core.
pub(super) struct Move {
    pub(super) open: Vec<Bound>,
    pub(super) close: Vec<SocketAddr>,
}

impl Addresses {
    /// Serves these addresses, as [`Listeners::bind`] takes them, and gives those that are new. Nothing is lost
    /// at addresses that stay: their sockets do. Where one cannot be had, all stays as it was.
    pub fn replace(
        &self,
        wanted: &[SocketAddr],
        possible: &[SocketAddr],
    ) -> Result<Vec<SocketAddr>, ListenError> {
        let before = self.shared.addresses.borrow().clone();
        let mut kept = before.clone();
        kept.retain(|address| wanted.contains(address) || possible.contains(address));
        let listeners = Listeners::beside(kept, wanted, possible, self.shared.beats.len())?;
        let mut new = listeners.addresses().to_vec();
        new.retain(|address| !before.contains(address));
        self.shared.move_to(listeners);
        Ok(new)
    }
}

impl Shared {
    /// Hands new sockets to the cores, and takes those of addresses that are gone away.
    pub(super) fn move_to(&self, listeners: Listeners) {
        let addresses = listeners.addresses().to_vec();
        let mut gone = self.addresses.borrow().clone();
        gone.retain(|address| !addresses.contains(address));
        for (core, open) in self.cores.iter().zip(listeners.cores) {
            let close = gone.clone();
            let _ = core.send(Move { open, close }); // the core has ended, and the server with it
        }
        self.addresses.send_replace(addresses);
    }
}
