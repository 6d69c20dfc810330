//! The layout of a journal: a header, then frames.
//!
//! A frame is one batch: marker, length, checksum, records. The checksum covers the length, the records and the
//! place of the frame, and starts from a secret of the file: bytes that a client chose (its identifier) can never
//! pass for a frame.

use super::journal::Damage;

/// The first bytes of every journal.
const MAGIC: [u8; 8] = *b"oooidhcp";
/// The version that this program writes.
const VERSION: u32 = 1;
/// The length of the header.
pub(super) const HEADER: usize = 32;
/// The length of what comes before the records of a frame.
pub(super) const FRAME: usize = 12;
const MARKER: [u8; 4] = *b"\xf5LSE";
/// A longer frame is not one.
const LONGEST: usize = 1 << 26;

/// What a header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// Where the checksums of the frames start from.
    pub(super) secret: u32,
    /// How many bytes were durable when the file got its name: no crash cuts it shorter. Zero in files of before, and no
    /// less true of them.
    pub(super) durable: u64,
}

/// The header of a journal as bytes.
pub(super) fn header(Header { secret, durable }: Header) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    let fields = MAGIC
        .into_iter()
        .chain(VERSION.to_le_bytes())
        .chain(secret.to_le_bytes())
        .chain(durable.to_le_bytes());
    header
        .iter_mut()
        .zip(fields)
        .for_each(|(byte, field)| *byte = field);
    let sum = crc32fast::hash(&header[..HEADER - 4]).to_le_bytes();
    header[HEADER - 4..].copy_from_slice(&sum);
    header
}

/// Reads the header of a journal.
pub(super) fn read_header(journal: &[u8]) -> Result<Header, Damage> {
    let (header, _) = journal.split_first_chunk::<HEADER>().ok_or(Damage::NotAJournal)?;
    let (body, sum) = header.split_last_chunk::<4>().ok_or(Damage::NotAJournal)?;
    let (magic, rest) = body.split_first_chunk::<8>().ok_or(Damage::NotAJournal)?;
    let (version, rest) = rest.split_first_chunk::<4>().ok_or(Damage::NotAJournal)?;
    let (secret, rest) = rest.split_first_chunk::<4>().ok_or(Damage::NotAJournal)?;
    let (durable, _) = rest.split_first_chunk::<8>().ok_or(Damage::NotAJournal)?;
    if *magic != MAGIC {
        return Err(Damage::NotAJournal);
    }
    if u32::from_le_bytes(*version) != VERSION {
        return Err(Damage::Version {
            found: u32::from_le_bytes(*version),
            known: VERSION,
        });
    }
    if crc32fast::hash(body) != u32::from_le_bytes(*sum) {
        return Err(Damage::Frame { offset: 0 });
    }
    Ok(Header {
        secret: u32::from_le_bytes(*secret),
        durable: u64::from_le_bytes(*durable),
    })
}

/// Makes room for the start of a frame, to be filled by [`seal`] once its records are appended.
pub(super) fn open(out: &mut Vec<u8>) {
    out.clear();
    out.extend(MARKER);
    out.extend([0; FRAME - 4]);
}

/// Fills in length and checksum of the frame in `out`, which will stand at `offset`.
pub(super) fn seal(out: &mut [u8], secret: u32, offset: u64) {
    if let Some((start, records)) = out.split_first_chunk_mut::<FRAME>() {
        let length = (records.len() as u32).to_le_bytes(); // a batch is far shorter than 4 GiB
        let sum = checksum(secret, offset, length, records).to_le_bytes();
        start[4..8].copy_from_slice(&length);
        start[8..12].copy_from_slice(&sum);
    }
}

/// The records of the frame at `offset`, if there is a sound one.
pub(super) fn records(journal: &[u8], offset: usize, secret: u32) -> Option<&[u8]> {
    let (start, rest) = journal.get(offset..)?.split_first_chunk::<FRAME>()?;
    let (marker, rest_of_start) = start.split_first_chunk::<4>()?;
    let (length, sum) = rest_of_start.split_first_chunk::<4>()?;
    let bytes = usize::try_from(u32::from_le_bytes(*length))
        .ok()
        .filter(|bytes| *bytes <= LONGEST)?;
    let records = rest.get(..bytes)?;
    let sound = *marker == MARKER && *sum == checksum(secret, offset as u64, *length, records).to_le_bytes();
    sound.then_some(records)
}

/// The place of the first sound frame after `offset`, wherever it starts.
pub(super) fn next_sound(journal: &[u8], offset: usize, secret: u32) -> Option<usize> {
    let later = journal.get(offset + 1..)?;
    let candidates = later
        .windows(MARKER.len())
        .enumerate()
        .filter(|(_, window)| **window == MARKER);
    candidates
        .map(|(at, _)| offset + 1 + at)
        .find(|at| records(journal, *at, secret).is_some())
}

fn checksum(secret: u32, offset: u64, length: [u8; 4], records: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(secret);
    hasher.update(&offset.to_le_bytes());
    hasher.update(&length);
    hasher.update(records);
    hasher.finalize()
}
