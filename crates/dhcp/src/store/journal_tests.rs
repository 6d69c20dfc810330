use super::*;
use crate::lease::State;
use crate::testing::battery::{self, Harness, lease};
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

struct InDirectory(tempfile::TempDir);

impl Harness for InDirectory {
    type Store = Journal;

    async fn open(&self) -> Journal {
        Journal::open(self.0.path()).unwrap()
    }
}

fn directory() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn bytes(directory: &tempfile::TempDir) -> Vec<u8> {
    std::fs::read(directory.path().join(FILE)).unwrap()
}

fn leases(directory: &tempfile::TempDir) -> usize {
    Journal::open(directory.path())
        .unwrap()
        .loaded
        .take()
        .unwrap()
        .leases
        .len()
}

/// A journal with three batches of one lease each, and where each batch ends.
fn three() -> (tempfile::TempDir, Vec<u64>) {
    let directory = directory();
    let mut journal = Journal::open(directory.path()).unwrap();
    let mut ends = vec![journal.end];
    for n in 1..=3 {
        journal.append(&[lease(u16::from(n), n, State::Bound)]).unwrap();
        ends.push(journal.end);
    }
    (directory, ends)
}

#[tokio::test]
async fn the_journal_passes_the_battery_of_stores() {
    battery::run(|| InDirectory(directory())).await;
}

#[test]
fn every_cut_of_a_journal_keeps_the_batches_before_it() {
    let (source, ends) = three();
    let whole = bytes(&source);
    let last = usize::try_from(ends[3]).unwrap();
    for length in frame::HEADER..=last {
        for zeros in [0, 64] {
            let target = directory();
            let mut cut = whole[..length].to_vec();
            cut.resize(length + zeros, 0);
            std::fs::write(target.path().join(FILE), &cut).unwrap();
            let expected = ends.iter().skip(1).filter(|end| **end <= length as u64).count();
            assert_eq!(leases(&target), expected, "cut at {length}");
            if length % 16 != 0 {
                continue; // each append waits for the disk
            }
            // And the journal goes on from there.
            Journal::open(target.path())
                .unwrap()
                .append(&[lease(9, 9, State::Bound)])
                .unwrap();
            assert_eq!(leases(&target), expected + 1, "cut at {length}");
        }
    }
}

#[test]
fn a_torn_tail_is_kept_beside_the_journal() {
    let (directory, ends) = three();
    let mut torn = bytes(&directory);
    torn.truncate(usize::try_from(ends[3]).unwrap() - 5);
    std::fs::write(directory.path().join(FILE), &torn).unwrap();
    assert_eq!(leases(&directory), 2);
    assert_eq!(
        std::fs::read(directory.path().join(TORN)).unwrap(),
        torn[usize::try_from(ends[2]).unwrap()..]
    );
}

#[test]
fn damage_in_the_middle_is_refused_with_the_way_out_and_nothing_is_touched() {
    let (directory, ends) = three();
    let whole = bytes(&directory);
    for at in frame::HEADER..usize::try_from(ends[2]).unwrap() {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x10;
        std::fs::write(directory.path().join(FILE), &damaged).unwrap();
        let error = Journal::open(directory.path()).unwrap_err().to_string();
        assert!(
            error.contains("damaged at byte") && error.contains("move it away"),
            "{at}: {error}"
        );
        assert_eq!(bytes(&directory), damaged);
    }
}

/// A journal that was just written anew: all of its leases are in one frame, the last.
fn compacted() -> (tempfile::TempDir, Vec<u8>) {
    let (directory, _) = three();
    Journal::open(directory.path()).unwrap().rewrite().unwrap();
    let whole = bytes(&directory);
    assert_eq!(check(&whole), Ok(3));
    (directory, whole)
}

#[test]
fn damage_in_the_only_frame_of_a_journal_written_anew_is_refused() {
    let (_directory, whole) = compacted();
    for at in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x10;
        assert!(check(&damaged).is_err(), "a flip at {at}");
        assert!(check(&whole[..at]).is_err(), "a cut at {at}");
    }
}

#[test]
fn a_batch_after_a_journal_was_written_anew_may_be_unfinished() {
    let (directory, whole) = compacted();
    Journal::open(directory.path())
        .unwrap()
        .append(&[lease(9, 9, State::Bound)])
        .unwrap();
    let longer = bytes(&directory);
    for length in whole.len()..longer.len() {
        assert_eq!(check(&longer[..length]), Ok(3), "{length}");
    }
    assert_eq!(check(&longer), Ok(4));
}

#[test]
fn a_journal_of_before_says_nothing_of_its_length_and_is_read() {
    let (_directory, mut whole) = compacted();
    let secret = frame::read_header(&whole).unwrap().secret;
    whole[..frame::HEADER].copy_from_slice(&frame::header(frame::Header { secret, durable: 0 }));
    assert_eq!(check(&whole), Ok(3));
    whole.pop();
    assert_eq!(check(&whole), Ok(0), "its last frame may be unfinished");
}

#[test]
fn a_foreign_or_later_file_is_refused() {
    let (directory, _) = three();
    let path = directory.path().join(FILE);
    let mut later = bytes(&directory);
    later[8] = 2;
    std::fs::write(&path, &later).unwrap();
    assert!(
        Journal::open(directory.path())
            .unwrap_err()
            .to_string()
            .contains("format 2")
    );
    for foreign in [
        &b""[..],
        b"SQLite format 3\0 and more than thirty-two bytes of it",
    ] {
        std::fs::write(&path, foreign).unwrap();
        assert!(
            Journal::open(directory.path())
                .unwrap_err()
                .to_string()
                .contains("not a journal")
        );
    }
}

#[test]
fn a_client_cannot_write_a_frame_by_its_identifier() {
    let (directory, _) = three();
    let journal = Journal::open(directory.path()).unwrap();
    // Even one who knows the format and the place does not know the secret.
    let mut forged = Vec::new();
    frame::open(&mut forged);
    record::encode(&lease(77, 7, State::Bound), &mut forged);
    frame::seal(&mut forged, journal.secret.wrapping_add(1), journal.end + 1000);
    drop(journal);
    let mut torn = bytes(&directory);
    torn.extend(b"torn frame");
    torn.extend(&forged);
    std::fs::write(directory.path().join(FILE), &torn).unwrap();
    assert_eq!(leases(&directory), 3);
}

#[test]
fn one_server_at_a_time() {
    let (directory, _) = three();
    let journal = Journal::open(directory.path()).unwrap();
    assert!(
        Journal::open(directory.path())
            .unwrap_err()
            .to_string()
            .contains("another server")
    );
    assert_eq!(
        Journal::read(directory.path()).unwrap().len(),
        3,
        "reading needs no lock"
    );
    drop(journal);
    Journal::open(directory.path()).unwrap();
}

#[test]
fn a_long_journal_is_written_anew_and_loses_nothing() {
    let directory = directory();
    let mut journal = Journal::open(directory.path()).unwrap();
    let batch = |round: u64| -> Vec<Lease> {
        let renewed = |n: u16| Lease {
            since: Timestamp(round),
            ..lease(n, n as u8, State::Bound)
        };
        (1..=200).map(renewed).collect()
    };
    let mut shrank = 0;
    for round in 1..=200 {
        let before = journal.end;
        journal.append(&batch(round)).unwrap();
        shrank += usize::from(journal.end < before);
        assert!(bytes(&directory).len() < 2 * 1024 * 1024);
    }
    assert!(shrank >= 2, "{shrank}");
    drop(journal);
    let mut stored = Journal::open(directory.path())
        .unwrap()
        .loaded
        .take()
        .unwrap()
        .leases;
    stored.sort_by_key(|lease| lease.address);
    assert_eq!(stored, batch(200));
}

#[test]
fn a_full_disk_acknowledges_nothing_and_recovers_by_itself() {
    let directory = directory();
    let mut journal = Journal::open(directory.path()).unwrap();
    journal.append(&[lease(1, 1, State::Bound)]).unwrap();
    // A device that is always full stands for the disk.
    let real = std::mem::replace(
        &mut journal.file,
        OpenOptions::new().write(true).open("/dev/full").unwrap(),
    );
    let error = journal
        .append(&[lease(2, 2, State::Bound)])
        .unwrap_err()
        .to_string();
    assert!(error.contains("goes on by itself"), "{error}");
    journal.file = real;
    journal.append(&[lease(3, 3, State::Bound)]).unwrap();
    drop(journal);
    let mut stored = Journal::read(directory.path()).unwrap();
    stored.sort_by_key(|lease| lease.address);
    assert_eq!(stored, [lease(1, 1, State::Bound), lease(3, 3, State::Bound)]);
}

#[test]
fn a_directory_that_cannot_be_written_is_named() {
    let file = directory();
    let path = file.path().join("plain");
    std::fs::write(&path, "").unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    let error = Journal::open(&path).unwrap_err().to_string();
    assert!(error.contains("plain"), "{error}");
}

#[test]
fn records_survive_the_round_trip_and_every_prefix_is_refused() {
    let mut bytes = Vec::new();
    let written = Lease {
        expires: Timestamp(5).after(Duration::from_secs(1)),
        ..lease(300, 3, State::Declined)
    };
    record::encode(&written, &mut bytes);
    assert_eq!(record::decode(&bytes).unwrap(), (written, &[][..]));
    for length in 0..bytes.len() {
        assert!(record::decode(&bytes[..length]).is_none(), "{length}");
    }
}
