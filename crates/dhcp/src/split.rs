//! Which of several replicas answers a client (RFC 3074).
//!
//! Every replica hashes the client's identifier to the same bucket, and each bucket belongs to one replica. When
//! a client has waited for [`TAKEOVER`] seconds its own replica seems to be gone, and every other one answers.

/// After so many seconds without an answer any replica serves the client.
pub const TAKEOVER: u16 = 4;

/// The mixing table of RFC 3074, section 6.
#[rustfmt::skip]
const MIX: [u8; 256] = [
    251, 175, 119, 215,  81,  14,  79, 191, 103,  49, 181, 143, 186, 157,   0, 232,
     31,  32,  55,  60, 152,  58,  17, 237, 174,  70, 160, 144, 220,  90,  57, 223,
     59,   3,  18, 140, 111, 166, 203, 196, 134, 243, 124,  95, 222, 179, 197,  65,
    180,  48,  36,  15, 107,  46, 233, 130, 165,  30, 123, 161, 209,  23,  97,  16,
     40,  91, 219,  61, 100,  10, 210, 109, 250, 127,  22, 138,  29, 108, 244,  67,
    207,   9, 178, 204,  74,  98, 126, 249, 167, 116,  34,  77, 193, 200, 121,   5,
     20, 113,  71,  35, 128,  13, 182,  94,  25, 226, 227, 199,  75,  27,  41, 245,
    230, 224,  43, 225, 177,  26, 155, 150, 212, 142, 218, 115, 241,  73,  88, 105,
     39, 114,  62, 255, 192, 201, 145, 214, 168, 158, 221, 148, 154, 122,  12,  84,
     82, 163,  44, 139, 228, 236, 205, 242, 217,  11, 187, 146, 159,  64,  86, 239,
    195,  42, 106, 198, 118, 112, 184, 172,  87,   2, 173, 117, 176, 229, 247, 253,
    137, 185,  99, 164, 102, 147,  45,  66, 231,  52, 141, 211, 194, 206, 246, 238,
     56, 110,  78, 248,  63, 240, 189,  93,  92,  51,  53, 183,  19, 171,  72,  50,
     33, 104, 101,  69,   8, 252,  83, 120,  76, 135,  85,  54, 202, 125, 188, 213,
     96, 235, 136, 208, 162, 129, 190, 132, 156,  38,  47,   1,   7, 254,  24,   4,
    216, 131,  89,  21,  28, 133,  37, 153, 149,  80, 170,  68,   6, 169, 234, 151,
];

/// The bucket of a client.
#[allow(
    clippy::indexing_slicing,
    reason = "a byte cannot be out of the table's bounds"
)]
pub fn bucket(id: &[u8]) -> u8 {
    // The RFC starts with the length; identifiers here have at most 255 bytes.
    let length = id.len() as u8;
    id.iter()
        .rev()
        .fold(length, |hash, byte| MIX[usize::from(hash ^ byte)])
}

/// Whether replica `own` of `count` answers a client that has waited for `secs` seconds.
pub fn serves(own: usize, count: usize, id: &[u8], secs: u16) -> bool {
    count <= 1 || secs >= TAKEOVER || usize::from(bucket(id)) * count / 256 == own
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mixing_table_has_every_value_once() {
        let mut values = MIX;
        values.sort_unstable();
        assert!(
            values
                .iter()
                .enumerate()
                .all(|(at, value)| at == usize::from(*value))
        );
    }

    #[test]
    fn exactly_one_replica_answers_at_first_and_every_one_after_a_while() {
        for count in 1..=5 {
            let mut served = vec![0; count];
            for client in 0..5000_u32 {
                let id = client.to_be_bytes();
                let answering: Vec<usize> = (0..count).filter(|own| serves(*own, count, &id, 3)).collect();
                assert_eq!(answering.len(), 1);
                served[answering[0]] += 1;
                assert!((0..count).all(|own| serves(own, count, &id, TAKEOVER)));
            }
            let (least, most) = (served.iter().min().unwrap(), served.iter().max().unwrap());
            assert!(most - least < 5000 / count / 4, "{served:?}");
        }
    }
}
