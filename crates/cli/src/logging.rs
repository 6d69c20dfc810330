//! Logs on standard error, for people or for programs.

use std::sync::OnceLock;

use clap::ValueEnum;
use oooi_api::proxy_server::LogLevel;
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

/// Sets another filter. Empty where the level was given on the command line: it stays.
static RELOAD: OnceLock<Box<dyn Fn(EnvFilter) + Send + Sync>> = OnceLock::new();

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
    let reload: Box<dyn Fn(EnvFilter) + Send + Sync> = match options.log_format {
        Format::Text => {
            let colours = terminal::colours(&std::io::stderr());
            let builder = builder.with_ansi(colours).with_filter_reloading();
            let handle = builder.reload_handle();
            builder.init();
            Box::new(move |filter| drop(handle.reload(filter)))
        }
        Format::Json => {
            let builder = builder.json().with_filter_reloading();
            let handle = builder.reload_handle();
            builder.init();
            Box::new(move |filter| drop(handle.reload(filter)))
        }
    };
    if options.log_level.is_none() {
        let _ = RELOAD.set(reload); // logging is started once
    }
    if let Some(error) = refused {
        tracing::warn!(filter = wanted, %error, "the log filter cannot be read: logging at {default}");
    }
}

/// Logs as much as a resource says from now on, unless the command line says how much.
pub(crate) fn follow(level: LogLevel) {
    if let Some(reload) = RELOAD.get() {
        reload(EnvFilter::new(directive(level)));
    }
}

/// A level by the name that the filter knows. Nothing is graver than an error there.
fn directive(level: LogLevel) -> &'static str {
    match level {
        LogLevel::Trace => "trace",
        LogLevel::Debug => "debug",
        LogLevel::Info => "info",
        LogLevel::Warning => "warn",
        LogLevel::Error | LogLevel::Critical => "error",
    }
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    #[test]
    fn the_level_of_a_resource_applies_at_once() {
        let options = Options {
            log_format: Format::Text,
            log_level: None,
        };
        start(&options, "info");
        assert!(tracing::enabled!(Level::INFO) && !tracing::enabled!(Level::DEBUG));
        follow(LogLevel::Debug);
        assert!(tracing::enabled!(Level::DEBUG) && !tracing::enabled!(Level::TRACE));
        follow(LogLevel::Critical);
        assert!(tracing::enabled!(Level::ERROR) && !tracing::enabled!(Level::WARN));
    }
}
