//! The program's log, on standard error.

use std::io::{self, IsTerminal as _};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::log::{Format, LogWriter};

/// The format of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub(super) enum LogFormat {
    /// For people on a terminal, JSON elsewhere.
    #[default]
    Auto,
    /// For people.
    Human,
    /// One JSON object on each line.
    Json,
}

/// Starts the log. The returned writer is for other lines of the log.
pub(super) fn start(filter: EnvFilter, requested: LogFormat) -> io::Result<LogWriter> {
    let colour = io::stderr().is_terminal();
    let format = match requested {
        LogFormat::Auto if !colour => Format::Json,
        LogFormat::Json => Format::Json,
        LogFormat::Auto | LogFormat::Human => Format::Human { colour },
    };
    let writer = LogWriter::spawn(io::stderr(), format)?;
    let lines = writer.clone();
    let log = tracing_subscriber::registry()
        .with(filter)
        .with(writer.forward_layer());
    let text = tracing_subscriber::fmt::layer().with_writer(move || lines.clone());
    match format {
        Format::Json => {
            let text = text.json().flatten_event(true);
            log.with(text.with_current_span(false).with_span_list(false))
                .init();
        }
        Format::Human { colour } => log.with(text.with_ansi(colour)).init(),
    }
    Ok(writer)
}
