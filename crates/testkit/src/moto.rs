//! EC2 on loopback: moto's server, which answers every call that is made here as EC2 does. It does not hold anybody to
//! limits, nor to one interface an address: a test that needs these puts a layer in front of it.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    thread,
};

use crate::{Error, Parts, error::Context, process::spawn};

/// What moto says before the address that it listens on.
const LISTENS: &str = "Running on http://";

/// A server that ends with this value, or with the process.
pub struct Moto {
    child: Child,
    authority: String,
}

impl Moto {
    /// Starts one on a free port, and returns once it listens.
    pub fn start() -> Result<Self, Error> {
        let program = Parts::find()?.program("moto");
        let mut command = Command::new(&program);
        command.args(["-H", "127.0.0.1", "-p", "0"]);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut child = spawn(command).context(|| format!("cannot start {}", program.display()))?;
        let mut said = String::new();
        let Some(output) = child.stderr.take() else {
            return Err(Error::NotBuilt("moto has no output".into()));
        };
        let mut lines = BufReader::new(output).lines();
        for line in lines.by_ref() {
            let line = line.context(|| "cannot read what moto says".to_owned())?;
            if let Some((_, authority)) = line.split_once(LISTENS) {
                let authority = authority.trim().to_owned();
                // What is not read would stop it.
                thread::spawn(move || lines.for_each(drop));
                return Ok(Self { child, authority });
            }
            said += &line;
            said.push('\n');
        }
        let _ = child.wait();
        Err(Error::NotBuilt(format!("moto ended before it listened: {said}")))
    }

    /// Where it listens, such as `127.0.0.1:40000`.
    pub fn authority(&self) -> &str {
        &self.authority
    }
}

impl Drop for Moto {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
