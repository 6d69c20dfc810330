//! What the terminal can show: the one place that asks.

use std::io::IsTerminal;
use std::os::fd::AsFd;

use oooi_doctor::style::Style;

/// How text looks best on standard output: plain where it is no terminal, and without colours where `NO_COLOR` is set
/// (<https://no-color.org>) or the terminal has none.
pub(crate) fn style() -> Style {
    let output = std::io::stdout();
    let size = rustix::termios::tcgetwinsize(&output);
    Style {
        colours: colours(&output),
        // A terminal that does not know its width says zero.
        width: size
            .ok()
            .map(|size| usize::from(size.ws_col))
            .filter(|width| *width > 0),
    }
}

/// Whether what is written there may have colours.
pub(crate) fn colours(output: &(impl IsTerminal + AsFd)) -> bool {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    output.is_terminal() && set("NO_COLOR").is_none() && set("TERM").is_none_or(|term| term != "dumb")
}
