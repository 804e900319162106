//! `toolcrib export`: recorded calls, the oldest first, as JSON lines or CSV.
//!
//! - `ledger_pages.rs` reads a ledger, `server_pages.rs` a running server.
//! - `csv_columns.rs` selects what a table has.

mod csv_columns;
mod ledger_pages;
mod selection;
mod server_pages;

use std::io::{self, BufWriter, ErrorKind, Write};

use serde_json::Value;

use self::ledger_pages::LedgerPages;
use self::selection::Selection;
use self::server_pages::ServerPages;
use super::Failure;
use super::client::ServerArgs;
use super::failure::describe_io_error;
use super::ledger_source::LedgerArgs;
use crate::call::Clock;
use crate::call::units::parse_time;
use crate::environment::Environment;

/// Arguments of `export`.
#[derive(clap::Args)]
pub(super) struct ExportArgs {
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    ledger: LedgerArgs,
    /// Only calls of this tool.
    #[arg(long)]
    tool: Option<String>,
    /// Only calls that started at or after this time, or within this span, such as 15m.
    #[arg(long, value_name = "TIME|SPAN")]
    since: Option<String>,
    /// Only calls that started before this time, or before this span, such as 15m.
    #[arg(long, value_name = "TIME|SPAN")]
    until: Option<String>,
    /// Format of the output.
    #[arg(long, value_enum, default_value_t)]
    format: ExportFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
enum ExportFormat {
    /// One JSON object for each call, with its result.
    #[default]
    Jsonl,
    /// A table with a header, without results.
    Csv,
}

/// The calls, page by page. Only one page is in memory.
enum Pages {
    Ledger(LedgerPages),
    Server(ServerPages),
}

impl Pages {
    /// The next calls; empty after the last.
    async fn next(&mut self) -> Result<Vec<Value>, Failure> {
        match self {
            Self::Ledger(pages) => pages.next().await,
            Self::Server(pages) => pages.next().await,
        }
    }
}

pub(super) async fn run(args: ExportArgs, environment: &Environment) -> Result<(), Failure> {
    let now = Clock::system().now();
    let time = |option: &str, text: Option<&str>| {
        text.map(|text| parse_time(option, text, now))
            .transpose()
            .map_err(|message| Failure::Usage(format!("--{message}")))
    };
    let selection = Selection {
        since: time("since", args.since.as_deref())?,
        until: time("until", args.until.as_deref())?.map_or(now, |until| until.min(now)),
        tool: args.tool,
    };
    let pages = match args.server.client()? {
        Some(client) => Pages::Server(ServerPages::new(client, selection)),
        None => Pages::Ledger(LedgerPages::new(
            args.ledger.open(environment).await?,
            selection,
        )),
    };
    // The reader may need only the first calls. It is no failure that it closes the pipe then.
    match write_calls(pages, args.format).await {
        Err(WriteError::Output(error)) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        Err(WriteError::Output(error)) => Err(Failure::Failed(format!(
            "toolcrib: standard output: {}",
            describe_io_error(&error)
        ))),
        Err(WriteError::Input(failure)) => Err(failure),
        Ok(()) => Ok(()),
    }
}

enum WriteError {
    Input(Failure),
    Output(io::Error),
}

impl From<Failure> for WriteError {
    fn from(failure: Failure) -> Self {
        Self::Input(failure)
    }
}

impl From<io::Error> for WriteError {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

impl From<csv::Error> for WriteError {
    fn from(error: csv::Error) -> Self {
        Self::Output(io::Error::other(error))
    }
}

async fn write_calls(mut pages: Pages, format: ExportFormat) -> Result<(), WriteError> {
    let mut output = BufWriter::new(io::stdout());
    if format == ExportFormat::Csv {
        output.write_all(&csv_columns::header()?)?;
    }
    loop {
        let calls = pages.next().await?;
        if calls.is_empty() {
            break;
        }
        for call in calls {
            match format {
                ExportFormat::Jsonl => writeln!(output, "{call}")?,
                ExportFormat::Csv => output.write_all(&csv_columns::line(&call)?)?,
            }
        }
        output.flush()?;
    }
    Ok(output.flush()?)
}
