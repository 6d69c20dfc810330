//! The store of a single server: a file that only grows, and is written anew when most of it is old.
//!
//! Each batch is one frame, written and synchronised before any of its ACKs leaves. Only the last frame can be
//! unfinished after a crash, and nothing in it was acknowledged: it is cut off, and kept beside the journal. Damage
//! anywhere else is refused with the way out, never repaired in silence.
//!
//! Writing anew goes to another file, which takes the journal's name once it is synchronised; its header says how long it
//! was then, so that damage in its last frame does not pass for an unfinished one. A full disk loses
//! nothing: the batch is not acknowledged, the file is cut back to its last whole frame, the next batch tries again.
//!
//! A commit waits for the disk in the thread that polls it: run the server on a runtime of its own.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Seek, Write};
use std::net::Ipv4Addr;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use tracing::{info, warn};

use super::{Exception, LeaseStore, Loaded, StoreError, frame, record};
use crate::lease::Lease;
use crate::time::Timestamp;

/// The journal's name in the state directory.
pub const FILE: &str = "leases.journal";
const NEW: &str = "leases.journal.new";
const TORN: &str = "leases.journal.torn";
const LOCK: &str = "leases.lock";
/// How much may be added to a file before it is worth writing it anew.
const WORTH: u64 = 512 * 1024;

/// What is wrong with a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// It is something else.
    #[error("it is not a journal of leases")]
    NotAJournal,
    /// A later version of the program wrote it.
    #[error("it has format {found} and this program knows format {known}: run the version that wrote it")]
    Version {
        /// The version of the file.
        found: u32,
        /// The version of this program.
        known: u32,
    },
    /// A frame does not match its checksum though it was whole once: later ones do, or no crash can have cut it.
    #[error("it is damaged at byte {offset}, in what was stored for good")]
    Frame {
        /// Where the damage begins.
        offset: u64,
    },
}

/// Why a journal cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    /// It is damaged or no journal.
    #[error(
        "{path} cannot be used: {damage}. Restore it from a backup, or move it away to start without leases; \
         leaseConfig.migrationGrace lets clients keep their addresses meanwhile"
    )]
    Damaged {
        /// The file.
        path: String,
        /// What is wrong.
        damage: Damage,
    },
    /// Another server uses it.
    #[error("{path} is in use by another server: stop it, or give this one its own --state-dir")]
    Locked {
        /// The lock.
        path: String,
    },
}

/// An open journal.
#[derive(Debug)]
pub struct Journal {
    directory: PathBuf,
    file: File,
    /// Held as long as the journal is open.
    _lock: File,
    secret: u32,
    /// Where the next frame goes.
    end: u64,
    /// When the file reaches this length it is written anew.
    rewrite_at: u64,
    /// A synchronisation failed: what the file has is unknown until it is written anew.
    doubtful: bool,
    frame: Vec<u8>,
    loaded: Option<Loaded>,
}

impl Journal {
    /// Opens the journal of a state directory, and makes both if they are not there.
    pub fn open(directory: &Path) -> Result<Self, StoreError> {
        std::fs::create_dir_all(directory).map_err(io_error("cannot make", directory))?;
        let lock = lock(directory)?;
        let path = directory.join(FILE);
        if !path.try_exists().map_err(io_error("cannot look for", &path))? {
            write_anew(directory, secret(), &[])
                .and_then(|_| sync_names(directory))
                .map_err(io_error("cannot write", &path))?;
        }
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(&path)
            .map_err(io_error("cannot open", &path))?;
        let bytes = std::fs::read(&path).map_err(io_error("cannot read", &path))?;
        let replay = replay(&bytes).map_err(|damage| Unusable::Damaged {
            path: display(&path),
            damage,
        })?;
        if let Some(torn) = bytes
            .get(replay.end..)
            .filter(|rest| rest.iter().any(|byte| *byte != 0))
        {
            let beside = directory.join(TORN);
            std::fs::write(&beside, torn).map_err(io_error("cannot write", &beside))?;
            warn!(
                offset = replay.end, kept = %beside.display(),
                "the last batch of the journal is unfinished; nothing in it was acknowledged"
            );
        }
        let mut journal = Journal {
            directory: directory.to_owned(),
            file,
            _lock: lock,
            secret: replay.secret,
            end: replay.end as u64,
            rewrite_at: replay.end as u64 + WORTH,
            doubtful: false,
            frame: Vec::new(),
            loaded: None,
        };
        journal.cut().map_err(io_error("cannot cut", &path))?;
        let newest = replay
            .leases
            .values()
            .map(|lease| lease.since)
            .max()
            .unwrap_or_default();
        journal.loaded = Some(Loaded {
            leases: replay.leases.into_values().collect(),
            newest,
            updates: None,
        });
        Ok(journal)
    }

    /// Reads the leases of a state directory without opening it: a running server is not disturbed, and a batch
    /// that it is writing just now is not seen.
    pub fn read(directory: &Path) -> Result<Vec<Lease>, StoreError> {
        let path = directory.join(FILE);
        let bytes = std::fs::read(&path).map_err(io_error("cannot read", &path))?;
        match replay(&bytes) {
            Ok(replay) => Ok(replay.leases.into_values().collect()),
            Err(damage) => Err(Unusable::Damaged {
                path: display(&path),
                damage,
            }
            .into()),
        }
    }

    /// Makes leases durable.
    pub fn append(&mut self, leases: &[Lease]) -> Result<(), StoreError> {
        if leases.is_empty() {
            return Ok(());
        }
        if self.doubtful || self.end >= self.rewrite_at {
            self.rewrite()?;
        }
        frame::open(&mut self.frame);
        for lease in leases {
            record::encode(lease, &mut self.frame);
        }
        frame::seal(&mut self.frame, self.secret, self.end);
        if let Err(error) = self.file.write_all_at(&self.frame, self.end) {
            let path = self.directory.join(FILE);
            // Part of the frame may be there: cut it off, so that the file ends with a whole one.
            if let Err(error) = self.cut() {
                warn!(%error, path = %path.display(), "cannot cut an unfinished batch off");
                self.doubtful = true;
            }
            return Err(io_error("cannot write to", &path)(error));
        }
        if let Err(error) = rustix::fs::fdatasync(&self.file) {
            // The kernel may have dropped the pages and would call the next synchronisation a success.
            self.doubtful = true;
            return Err(io_error("cannot synchronise", &self.directory.join(FILE))(
                error.into(),
            ));
        }
        self.end += self.frame.len() as u64;
        Ok(())
    }

    /// Cuts the file back to its last whole frame.
    fn cut(&mut self) -> io::Result<()> {
        self.file.set_len(self.end)
    }

    /// Writes the file anew with the latest record of each address.
    fn rewrite(&mut self) -> Result<(), StoreError> {
        let path = self.directory.join(FILE);
        let result = self.try_rewrite(&path);
        if result.is_err() {
            // Not now; a journal that is merely long is still a journal.
            self.rewrite_at = self.end + WORTH;
        }
        match result {
            Err(error) if !self.doubtful => {
                warn!(%error, "the journal stays long: it could not be written anew");
                Ok(())
            }
            other => other,
        }
    }

    fn try_rewrite(&mut self, path: &Path) -> Result<(), StoreError> {
        let mut bytes = std::fs::read(path).map_err(io_error("cannot read", path))?;
        bytes.truncate(usize::try_from(self.end).unwrap_or(usize::MAX)); // past it nothing was acknowledged
        let replay = replay(&bytes).map_err(|damage| Unusable::Damaged {
            path: display(path),
            damage,
        })?;
        drop(bytes);
        if replay.end as u64 != self.end {
            let damage = Damage::Frame {
                offset: replay.end as u64,
            };
            return Err(Unusable::Damaged {
                path: display(path),
                damage,
            }
            .into());
        }
        let leases: Vec<Lease> = replay.leases.into_values().collect();
        let (file, end) =
            write_anew(&self.directory, self.secret, &leases).map_err(io_error("cannot write anew", path))?;
        let before = self.end;
        self.file = file;
        // Until its name is durable, a crash would bring the former file back, and lose what is added to this one.
        (self.end, self.rewrite_at, self.doubtful) = (end, end * 2 + WORTH, true);
        sync_names(&self.directory).map_err(io_error("cannot synchronise the folder of", path))?;
        self.doubtful = false;
        info!(
            before,
            after = end,
            leases = leases.len(),
            "the journal was written anew"
        );
        Ok(())
    }
}

impl LeaseStore for Journal {
    async fn load(&mut self) -> Result<Loaded, StoreError> {
        Ok(self.loaded.take().unwrap_or_default())
    }

    async fn commit(&mut self, leases: &[Lease]) -> Result<Vec<Exception>, StoreError> {
        self.append(leases).map(|()| Vec::new())
    }
}

/// Reads the bytes of a journal and returns how many leases it has, or what is wrong with it.
pub fn check(bytes: &[u8]) -> Result<usize, Damage> {
    replay(bytes).map(|replay| replay.leases.len())
}

struct Replay {
    secret: u32,
    /// Where the last whole frame ends.
    end: usize,
    leases: HashMap<Ipv4Addr, Lease>,
}

fn replay(bytes: &[u8]) -> Result<Replay, Damage> {
    let frame::Header { secret, durable } = frame::read_header(bytes)?;
    let mut replay = Replay {
        secret,
        end: frame::HEADER,
        leases: HashMap::new(),
    };
    while let Some(mut records) = frame::records(bytes, replay.end, secret) {
        let damage = Damage::Frame {
            offset: replay.end as u64,
        };
        let length = records.len();
        while !records.is_empty() {
            let (lease, rest) = record::decode(records).ok_or(damage)?;
            replay.leases.insert(lease.address, lease);
            records = rest;
        }
        replay.end += frame::FRAME + length;
    }
    let end = replay.end as u64;
    if end < durable || frame::next_sound(bytes, replay.end, secret).is_some() {
        return Err(Damage::Frame { offset: end });
    }
    Ok(replay)
}

/// Writes a journal beside the present one and gives it its name, which [`sync_names`] makes durable. Returns it and its
/// length.
fn write_anew(directory: &Path, secret: u32, leases: &[Lease]) -> io::Result<(File, u64)> {
    let new = directory.join(NEW);
    let mut file = File::create(&new)?;
    let mut end = frame::HEADER as u64;
    file.set_len(end)?;
    file.seek(io::SeekFrom::Start(end))?;
    let mut bytes = Vec::new();
    for batch in leases.chunks(512) {
        frame::open(&mut bytes);
        batch.iter().for_each(|lease| record::encode(lease, &mut bytes));
        frame::seal(&mut bytes, secret, end);
        file.write_all(&bytes)?;
        end += bytes.len() as u64;
    }
    let header = frame::Header { secret, durable: end };
    file.write_all_at(&frame::header(header), 0)?;
    file.sync_all()?;
    std::fs::rename(&new, directory.join(FILE))?;
    Ok((file, end))
}

/// Makes what files of a folder are called survive a crash.
fn sync_names(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

fn lock(directory: &Path) -> Result<File, StoreError> {
    let path = directory.join(LOCK);
    let file = OpenOptions::new()
        .create(true)
        .append(true)
        .open(&path)
        .map_err(io_error("cannot open", &path))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(Unusable::Locked { path: display(&path) }.into()),
        Err(error) => Err(io_error("cannot lock", &path)(error.into())),
    }
}

/// A number that clients cannot know.
fn secret() -> u32 {
    use std::hash::{BuildHasher, Hasher};
    let random = std::hash::RandomState::new().build_hasher().finish() ^ Timestamp::wall().0;
    (random >> 16) as u32
}

fn io_error(step: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StoreError {
    let path = display(path);
    move |source| StoreError::Io { step, path, source }
}

fn display(path: &Path) -> String {
    path.display().to_string()
}

#[cfg(test)]
#[path = "journal_tests.rs"]
mod tests;
