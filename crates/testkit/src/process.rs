//! Processes that cannot outlive the runner.
//!
//! A parent-death signal fires when the *thread* that started the child ends, and a test's thread ends
//! with its test. So one keeper thread starts every child; it lives as long as this process. A child
//! leads a process group of its own, so that a Ctrl-C meant for the runner reaches it through the
//! runner's end and not half-way before it.

use std::{
    fs::{self, File},
    io::{self, Read, Seek, SeekFrom, Write},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{OnceLock, mpsc},
    thread,
};

use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};

use crate::{Error, error::Context};

struct Job {
    command: Command,
    started: mpsc::Sender<io::Result<Child>>,
}

/// Starts a command that the kernel kills when this process ends, however it ends. It leads a process
/// group of its own.
pub fn spawn(mut command: Command) -> io::Result<Child> {
    static KEEPER: OnceLock<mpsc::Sender<Job>> = OnceLock::new();
    let keeper = KEEPER.get_or_init(|| {
        let (jobs, queue) = mpsc::channel::<Job>();
        thread::spawn(move || {
            for mut job in queue {
                // A receiver that has gone away has no use for the child: it dies with this process.
                let _ = job.started.send(job.command.spawn());
            }
        });
        jobs
    });
    let runner = getpid();
    let die_with_runner = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // The runner may have ended before the line above: then no signal would ever come.
        if getppid() == Some(runner) {
            Ok(())
        } else {
            Err(io::ErrorKind::BrokenPipe.into())
        }
    };
    #[allow(
        unsafe_code,
        reason = "the closure makes two system calls and touches no lock or memory"
    )]
    unsafe {
        command.pre_exec(die_with_runner);
    }
    command.process_group(0);
    let (started, answer) = mpsc::channel();
    keeper
        .send(Job { command, started })
        .map_err(|_| io::ErrorKind::BrokenPipe)?;
    answer.recv().map_err(|_| io::ErrorKind::BrokenPipe)?
}

/// A component with its log. Dropping it kills and reaps it.
pub(crate) struct Process {
    name: String,
    log: PathBuf,
    child: Child,
}

impl Process {
    /// Starts `command`, with both outputs in `logs/NAME.log`.
    pub(crate) fn start(name: &str, mut command: Command, logs: &Path) -> Result<Self, Error> {
        let log = logs.join(format!("{name}.log"));
        let file = File::create(&log).context(|| format!("cannot create {}", log.display()))?;
        let both = file
            .try_clone()
            .context(|| format!("cannot open {} twice", log.display()))?;
        command.stdin(Stdio::null()).stdout(file).stderr(both);
        let program = command.get_program().to_string_lossy().into_owned();
        let child = spawn(command).context(|| format!("cannot start {name} ({program})"))?;
        Ok(Self {
            name: name.to_owned(),
            log,
            child,
        })
    }

    /// The process id, in the namespace of the runner.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// An error if the component is gone: nobody should wait for its answer.
    pub(crate) fn check(&mut self) -> Result<(), Error> {
        match self
            .child
            .try_wait()
            .context(|| format!("cannot wait for {}", self.name))?
        {
            None => Ok(()),
            Some(status) => Err(Error::Ended {
                name: self.name.clone(),
                status,
                log: tail(&self.log, 30),
            }),
        }
    }

    /// Waits for the end of a process that ends by itself, or was killed.
    pub(crate) fn wait(&mut self) -> io::Result<ExitStatus> {
        self.child.wait()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only for a child that is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The last lines of a file, for a report; a file that cannot be read says why.
pub(crate) fn tail(path: &Path, lines: usize) -> String {
    const MOST: u64 = 64 * 1024;
    let read = || -> io::Result<String> {
        let mut file = File::open(path)?;
        let size = file.metadata()?.len();
        file.seek(SeekFrom::Start(size.saturating_sub(MOST)))?;
        let mut bytes = Vec::new();
        file.take(MOST).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    match read() {
        Ok(text) => {
            let all: Vec<&str> = text.lines().collect();
            all[all.len().saturating_sub(lines)..].join("\n")
        }
        Err(error) => format!("({}: {error})", path.display()),
    }
}

/// The last lines of every log of a testbed, each under its name.
pub(crate) fn tails(logs: &Path, lines: usize) -> String {
    let mut paths: Vec<PathBuf> = fs::read_dir(logs)
        .map(|entries| entries.flatten().map(|entry| entry.path()).collect())
        .unwrap_or_default();
    paths.sort();
    paths
        .iter()
        .map(|path| format!("--- {}\n{}\n", path.display(), tail(path, lines)))
        .collect()
}

/// Runs a command to its end and gives its standard output; a failure carries all that it said.
pub(crate) fn output(command: Command) -> Result<String, Error> {
    output_of(command, "")
}

/// Runs a command with `input` as its standard input, and gives its standard output; a failure carries all that
/// it said.
pub fn output_of(mut command: Command, input: &str) -> Result<String, Error> {
    let shown = format!("{command:?}").replace('"', "");
    let mut run = || -> io::Result<_> {
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn()?;
        if let Some(mut stdin) = child.stdin.take() {
            match stdin.write_all(input.as_bytes()) {
                // It did not want to read: what it says counts.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
                written => written?,
            }
        }
        child.wait_with_output()
    };
    let output = run().context(|| format!("cannot run {shown}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = [output.stdout, output.stderr].concat();
    Err(Error::Command {
        command: shown,
        status: output.status,
        output: String::from_utf8_lossy(&said).into_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_outlives_the_thread_that_asked_for_it() {
        let asking = thread::spawn(|| {
            let mut command = Command::new("cat");
            command.stdin(Stdio::piped()).stdout(Stdio::piped());
            (rustix::thread::gettid(), spawn(command).unwrap())
        });
        let (thread, mut child) = asking.join().unwrap();
        // `join` returns a little before the kernel sends the signals for a thread's death; when the
        // thread is no longer listed, they have been sent.
        let listed = format!("/proc/self/task/{}", thread.as_raw_nonzero());
        while Path::new(&listed).exists() {
            thread::yield_now();
        }
        child.stdin.take().unwrap().write_all(b"alive").unwrap();
        assert_eq!(io::read_to_string(child.stdout.take().unwrap()).unwrap(), "alive");
        child.wait().unwrap();
    }

    #[test]
    fn a_component_that_ended_shows_its_last_words() {
        let logs = std::env::temp_dir().join(format!("oooi-process-{}", std::process::id()));
        fs::create_dir_all(&logs).unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "echo why it failed; exit 3"]);
        let mut process = Process::start("sample", command, &logs).unwrap();
        process.wait().unwrap();
        let error = process.check().unwrap_err().to_string();
        fs::remove_dir_all(&logs).unwrap();
        assert!(
            error.contains("sample") && error.contains("exit status: 3"),
            "{error}"
        );
        assert!(error.contains("why it failed"), "{error}");
    }

    #[test]
    fn a_command_that_fails_says_what_it_said() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo out; echo err >&2; exit 1"]);
        let error = output(command).unwrap_err().to_string();
        assert!(error.contains("out\n") && error.contains("err\n"), "{error}");
    }
}
