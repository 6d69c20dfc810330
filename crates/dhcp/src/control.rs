//! What people ask of a running server: a socket beside its journal.
//!
//! The server holds the journal's lock, so whoever wants to release a lease has to ask it. One line in, one line
//! out: `release 192.168.100.10` is answered by `released`, `no lease`, `not stored`, or `what?`.

use std::io;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{mpsc, oneshot};
use tracing::warn;

/// The socket's name in the state directory.
pub const FILE: &str = "control.sock";
/// Longer than that nobody has to wait.
const PATIENCE: Duration = Duration::from_secs(5);

/// Something to do for a person.
#[derive(Debug)]
pub enum Command {
    /// Free an address; the answer comes when that is stored, or cannot be.
    Release(Ipv4Addr, oneshot::Sender<Released>),
}

/// What came of freeing an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Released {
    /// It is free, and stored as free.
    Stored,
    /// Nobody had it.
    NoLease,
    /// It could not be stored: whoever had it has it still.
    NotStored,
}

impl Released {
    const ALL: [Released; 3] = [Released::Stored, Released::NoLease, Released::NotStored];

    /// The answer on the socket.
    fn line(self) -> &'static str {
        match self {
            Released::Stored => "released",
            Released::NoLease => "no lease",
            Released::NotStored => "not stored",
        }
    }
}

/// Listens in a state directory until the receiver is dropped. Must be called inside a tokio runtime.
///
/// The file's permissions are those of the directory's user alone.
pub fn listen(directory: &Path) -> io::Result<mpsc::Receiver<Command>> {
    use std::os::unix::fs::PermissionsExt;
    let path = directory.join(FILE);
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(&path)?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
    let (sender, receiver) = mpsc::channel(8);
    tokio::spawn(async move {
        // One at a time: it is for people.
        while !sender.is_closed() {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = sender.closed() => break,
            };
            let served = match accepted {
                Ok((stream, _)) => tokio::time::timeout(PATIENCE, serve(stream, &sender)).await,
                Err(error) => Ok(Err(error)),
            };
            if let Ok(Err(error)) = served {
                warn!(%error, "a command could not be served");
            }
        }
    });
    Ok(receiver)
}

async fn serve(mut stream: UnixStream, commands: &mpsc::Sender<Command>) -> io::Result<()> {
    let (reader, mut writer) = stream.split();
    let mut line = String::new();
    BufReader::new(reader.take(256)).read_line(&mut line).await?;
    let address = line
        .trim()
        .strip_prefix("release ")
        .and_then(|address| address.parse().ok());
    let answer = match address {
        None => "what?",
        Some(address) => {
            let (sender, answer) = oneshot::channel();
            let gone = |_| io::Error::from(io::ErrorKind::BrokenPipe);
            commands
                .send(Command::Release(address, sender))
                .await
                .map_err(|_| io::ErrorKind::BrokenPipe)?;
            answer.await.map_err(gone)?.line()
        }
    };
    writer.write_all(format!("{answer}\n").as_bytes()).await
}

/// Asks the server of a state directory to free an address.
pub fn release(directory: &Path, address: Ipv4Addr) -> io::Result<Released> {
    use std::io::{BufRead, Write};
    let mut stream = std::os::unix::net::UnixStream::connect(directory.join(FILE))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    writeln!(stream, "release {address}")?;
    let mut answer = String::new();
    std::io::BufReader::new(&stream).read_line(&mut answer)?;
    let answer = answer.trim();
    let known = Released::ALL
        .into_iter()
        .find(|released| released.line() == answer);
    known.ok_or_else(|| io::Error::other(format!("the server answered `{answer}`")))
}
