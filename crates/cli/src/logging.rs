//! Logs on standard error, for people or for programs.

use clap::ValueEnum;
use tracing_subscriber::EnvFilter;

use crate::terminal;

/// How and how much to log.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// How log lines look
    #[arg(long, value_enum, default_value_t = Format::Text, global = true)]
    log_format: Format,
    /// How much is logged: error, warn, info, debug or trace, or a filter such as `info,oooi_dns=debug` [default: info;
    /// for commands that tell a story of their own: warn]
    #[arg(long, env = "OOOI_LOG", global = true)]
    log_level: Option<String>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    /// For people
    Text,
    /// One JSON object a line
    Json,
}

/// Starts logging, at `default` unless asked otherwise. A filter that cannot be read is said, and `default` used.
pub(crate) fn start(options: &Options, default: &str) {
    let wanted = options.log_level.as_deref().unwrap_or(default);
    let (filter, refused) = match EnvFilter::try_new(wanted) {
        Ok(filter) => (filter, None),
        Err(error) => (EnvFilter::new(default), Some(error)),
    };
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    match options.log_format {
        Format::Text => {
            builder.with_ansi(terminal::colours(&std::io::stderr())).init();
        }
        Format::Json => builder.json().init(),
    }
    if let Some(error) = refused {
        tracing::warn!(filter = wanted, %error, "the log filter cannot be read: logging at {default}");
    }
}
