//! What names a client.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// The identifier of a client: bytes that it chose, or its hardware type and address.
///
/// The latter is what most clients send, too. It has seven bytes, which take no memory of their own.
#[derive(Clone)]
pub struct ClientId(Kept);

#[derive(Clone)]
enum Kept {
    Short { length: u8, bytes: [u8; SHORT] },
    Long(Arc<[u8]>),
}

/// What fits beside the mark of an `Arc` that is none.
const SHORT: usize = 7;

impl<B: AsRef<[u8]>> From<B> for ClientId {
    fn from(id: B) -> Self {
        let id = id.as_ref();
        let mut bytes = [0; SHORT];
        ClientId(match bytes.get_mut(..id.len()) {
            Some(start) => {
                start.copy_from_slice(id);
                let length = id.len() as u8; // at most SHORT by the line above
                Kept::Short { length, bytes }
            }
            None => Kept::Long(id.into()),
        })
    }
}

impl Deref for ClientId {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Kept::Short { length, bytes } => bytes.get(..usize::from(*length)).unwrap_or(bytes),
            Kept::Long(id) => id,
        }
    }
}

impl PartialEq for ClientId {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for ClientId {}

impl fmt::Debug for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identifier_of_any_length_is_kept_as_it_is() {
        let bytes: Vec<u8> = (0..=255).collect();
        for length in 0..bytes.len() {
            let id = ClientId::from(&bytes[..length]);
            assert_eq!((*id).to_vec(), bytes[..length]);
            assert_eq!(id, id.clone());
            assert_ne!(id, ClientId::from(&bytes[..length + 1]));
        }
    }

    #[test]
    fn the_common_identifier_takes_no_more_than_a_pointer_with_a_length() {
        assert_eq!(size_of::<ClientId>(), size_of::<Arc<[u8]>>());
    }
}
