//! Unpredictable numbers for ids, spellings and the choice of sockets (RFC 5452).

/// Random octets of the operating system, fetched a few hundred at a time.
pub(super) struct Random {
    octets: [u8; 512],
    used: usize,
}

impl Random {
    pub(super) fn new() -> Random {
        Random {
            octets: [0; 512],
            used: 512,
        }
    }

    /// The next octets. Fails only where the system has no randomness at all: then nothing may be asked.
    pub(super) fn take<const N: usize>(&mut self) -> Result<[u8; N], getrandom::Error> {
        if self.used + N > self.octets.len() {
            getrandom::fill(&mut self.octets)?;
            self.used = 0;
        }
        let mut taken = [0; N];
        taken.copy_from_slice(&self.octets[self.used..self.used + N]);
        self.octets[self.used..self.used + N].fill(0);
        self.used += N;
        Ok(taken)
    }

    /// Spells a name at random (0x20): a forger must guess the spelling, too. Each letter takes one bit.
    pub(super) fn spell(&mut self, name: &mut [u8]) -> Result<(), getrandom::Error> {
        let bits = self.take::<32>()?;
        for (at, octet) in name.iter_mut().enumerate() {
            // Length octets are below 64 and no letters.
            if octet.is_ascii_alphabetic() && bits[at / 8 % 32] >> (at % 8) & 1 == 1 {
                *octet ^= 0x20;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spelling_differs_and_means_the_same() {
        let mut random = Random::new();
        let name = b"\x20abcdefghijklmnopqrstuvwxyzabcdef\x03com\x00";
        let mut spelt = *name;
        random.spell(&mut spelt).unwrap();
        assert!(spelt.eq_ignore_ascii_case(name));
        let mut again = *name;
        random.spell(&mut again).unwrap();
        assert_ne!(spelt, again, "35 letters spelt alike twice");
    }
}
