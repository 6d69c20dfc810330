//! An error in words: what failed and why, on one line, nothing said twice.
//!
//! The errors of this project are whole sentences: each holds its cause, because most are read in a log or a condition,
//! where nobody walks the chain. Those of some libraries leave the cause to the chain, and those of others do both. So
//! the chain is walked, and what was said already is left out.

/// The whole chain on one line.
pub(crate) fn of(error: &anyhow::Error) -> String {
    let mut words = error.to_string();
    for cause in error.chain().skip(1) {
        let cause = cause.to_string();
        if !words.contains(&cause) {
            words.push_str(": ");
            words.push_str(&cause);
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use std::io;

    use anyhow::Context;

    use super::*;

    fn refused() -> io::Error {
        io::Error::from_raw_os_error(1)
    }

    #[test]
    fn a_cause_that_the_error_holds_is_said_once() {
        let error = oooi_dhcp::socket::SocketError::Packet {
            interface: "eth1".into(),
            source: refused(),
        };
        let words = of(&anyhow::Error::from(error).context("the servers cannot be started"));
        assert_eq!(words.matches("Operation not permitted").count(), 1, "{words}");
        assert!(
            words.starts_with("the servers cannot be started: cannot open a packet socket on eth1: "),
            "{words}"
        );
    }

    #[test]
    fn a_cause_that_the_error_leaves_to_the_chain_is_said() {
        let words = of(&Err::<(), _>(refused())
            .context("the file cannot be read")
            .unwrap_err());
        assert_eq!(
            words,
            "the file cannot be read: Operation not permitted (os error 1)"
        );
    }
}
