//! One testbed for a whole test run, and its end.

use std::{
    any::Any,
    env, io,
    path::PathBuf,
    sync::{Mutex, Once},
};

use crate::{Error, error::Context};

/// The environment variable that names the state directory of the testbed that a run shares.
pub const SHARED: &str = "OOOI_TESTBED";

/// The state directory of the run's testbed, if there is one.
pub(crate) fn state() -> Option<PathBuf> {
    env::var_os(SHARED)
        .filter(|value| !value.is_empty())
        .map(PathBuf::from)
}

static KEPT: Mutex<Vec<Box<dyn Any + Send>>> = Mutex::new(Vec::new());

/// Keeps a testbed for all tests of this process and removes it when the process exits.
///
/// A `static` is never dropped, and the test harness ends by `exit`: so a handler of `exit` does it. A
/// process that is killed instead runs no handler; parent-death signals and the next run do the rest.
pub(crate) fn keep_until_exit(owned: Box<dyn Any + Send>) -> Result<(), Error> {
    static ONCE: Once = Once::new();
    let mut status = 0;
    ONCE.call_once(|| {
        #[allow(
            unsafe_code,
            reason = "atexit is given a function that lives as long as the program"
        )]
        unsafe {
            status = libc::atexit(release);
        }
    });
    if status != 0 {
        return Err(io::Error::from(io::ErrorKind::OutOfMemory))
            .context(|| "cannot register the end of the testbed");
    }
    if let Ok(mut kept) = KEPT.lock() {
        kept.push(owned);
    }
    Ok(())
}

extern "C" fn release() {
    if let Ok(mut kept) = KEPT.lock() {
        kept.clear();
    }
}
