//! Addresses that can be given away.

use std::net::Ipv4Addr;

use crate::{Range, Set};

/// Some addresses, of which some are free.
///
/// Reserved addresses are in the pool but nobody's to take: a gateway, a neighbour's server. What is taken stays
/// taken until it is given back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    range: Range,
    reserved: Set,
    free: Set,
}

/// Why one address cannot be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unavailable {
    /// It is no part of the pool.
    #[error("{address} is not one of {range}")]
    Outside {
        /// The address.
        address: Ipv4Addr,
        /// What the pool holds.
        range: Range,
    },
    /// It is kept back.
    #[error("{0} is reserved")]
    Reserved(Ipv4Addr),
    /// Somebody has it.
    #[error("{0} is taken")]
    Taken(Ipv4Addr),
}

impl Pool {
    /// A pool with everything free.
    pub fn new(range: Range) -> Self {
        Pool {
            range,
            reserved: Set::new(),
            free: Set::from_iter([range]),
        }
    }

    /// Keeps addresses back for ever. Parts that lie outside the pool do no harm.
    pub fn reserve(&mut self, range: impl Into<Range>) {
        let range = range.into();
        self.free.remove(range);
        self.reserved.extend(range.intersection(self.range));
    }

    /// Takes one address, if it is free.
    pub fn take(&mut self, address: Ipv4Addr) -> Result<(), Unavailable> {
        if !self.range.contains(address) {
            let range = self.range;
            return Err(Unavailable::Outside { address, range });
        }
        if self.reserved.contains(address) {
            return Err(Unavailable::Reserved(address));
        }
        if !self.free.contains(address) {
            return Err(Unavailable::Taken(address));
        }
        self.free.remove(address);
        Ok(())
    }

    /// Takes the lowest free address. With none, the pool is exhausted.
    pub fn take_lowest(&mut self) -> Option<Ipv4Addr> {
        self.take_nth(0)
    }

    /// Takes the free address that has `n` lower free ones. Whoever wants a random one draws `n` below
    /// [`free`](Self::free)`().len()`: chance stays outside.
    pub fn take_nth(&mut self, n: u64) -> Option<Ipv4Addr> {
        let address = self.free.nth(n)?;
        self.free.remove(address);
        Some(address)
    }

    /// Gives an address back. One that is reserved, or of no part of the pool, stays as it is.
    pub fn give_back(&mut self, address: Ipv4Addr) {
        if self.range.contains(address) && !self.reserved.contains(address) {
            self.free.insert(address);
        }
    }

    /// What is free.
    pub fn free(&self) -> &Set {
        &self.free
    }

    /// How many addresses can be given away at most: all but the reserved ones.
    pub fn capacity(&self) -> u64 {
        self.range.len() - self.reserved.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(range: &str) -> Pool {
        Pool::new(range.parse().unwrap())
    }

    #[test]
    fn the_last_free_address_is_issued() {
        let mut pool = pool("10.0.0.1-10.0.0.2");
        assert_eq!(pool.take_lowest(), Some(Ipv4Addr::new(10, 0, 0, 1)));
        assert_eq!(pool.take_lowest(), Some(Ipv4Addr::new(10, 0, 0, 2)));
        assert_eq!(pool.take_lowest(), None);
    }

    #[test]
    fn an_address_that_cannot_be_had_says_why() {
        let mut pool = pool("10.0.0.1-10.0.0.9");
        pool.reserve("10.0.0.0-10.0.0.1".parse::<Range>().unwrap());
        pool.take(Ipv4Addr::new(10, 0, 0, 2)).unwrap();
        let mut say = |last| pool.take(Ipv4Addr::new(10, 0, 0, last)).unwrap_err().to_string();
        assert_eq!(say(1), "10.0.0.1 is reserved");
        assert_eq!(say(2), "10.0.0.2 is taken");
        assert_eq!(say(10), "10.0.0.10 is not one of 10.0.0.1-10.0.0.9");
        assert_eq!(pool.capacity(), 8);
    }

    #[test]
    fn what_is_given_back_is_free_again_and_a_reservation_is_not() {
        let mut pool = pool("10.0.0.1-10.0.0.2");
        pool.reserve(Ipv4Addr::new(10, 0, 0, 1));
        let given = pool.take_lowest().unwrap();
        pool.give_back(given);
        pool.give_back(Ipv4Addr::new(10, 0, 0, 1));
        pool.give_back(Ipv4Addr::new(10, 0, 0, 3));
        assert_eq!(pool.free().to_string(), "10.0.0.2");
    }

    #[test]
    fn a_pool_of_sixteen_million_addresses_is_a_few_intervals() {
        let mut pool = pool("10.0.0.1-10.255.255.254");
        for third in 0..=255 {
            pool.take(Ipv4Addr::new(10, 7, third, 9)).unwrap();
        }
        assert_eq!(pool.free().ranges().count(), 257);
        assert_eq!(
            pool.take_nth((1 << 24) - 2 - 256 - 1),
            Some(Ipv4Addr::new(10, 255, 255, 254))
        );
    }
}
