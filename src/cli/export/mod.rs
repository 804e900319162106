//! `toolcrib export`: recorded calls, the oldest first, as JSON lines or CSV.
//!
//! - `ledger_pages.rs` reads a ledger, `server_pages.rs` a running server.
//! - `csv_columns.rs` selects what a table has.

mod csv_columns;
mod ledger_pages;
mod server_pages;

use std::io::{self, BufWriter, ErrorKind, Write};

use serde_json::{Value, json};

use self::ledger_pages::LedgerPages;
use self::ledger_pages::Selection;
use self::server_pages::ServerPages;
use super::Failure;
use super::audit::AuditSource;
use super::client::ServerArgs;
use super::durations::parse_time_option;
use super::failure::describe_io_error;
use super::ledger_source::LedgerArgs;
use crate::call::Clock;
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
    /// Write the record of administration behind the calls. Needs jsonl, and an admin's key for a server.
    #[arg(long, conflicts_with_all = ["tool", "since", "until"])]
    audit: bool,
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
    if args.audit && args.format == ExportFormat::Csv {
        let message = "toolcrib: --audit needs --format jsonl: a table has only calls";
        return Err(Failure::Usage(message.into()));
    }
    let now = Clock::system().now();
    let time = |option, text: &Option<String>| parse_time_option(option, text.as_deref(), now);
    let selection = Selection {
        since: time("since", &args.since)?,
        until: time("until", &args.until)?.map_or(now, |until| until.min(now)),
        tool: args.tool.clone(),
    };
    let mut pages = match args.server.client()? {
        Some(client) => Pages::Server(ServerPages::new(client, selection)),
        None => Pages::Ledger(LedgerPages::new(
            args.ledger.open(environment).await?,
            selection,
        )),
    };
    let mut output = BufWriter::new(io::stdout());
    let mut written = write_header(&mut output, args.format);
    while is_open(written)? {
        let lines = pages.next().await?;
        if !lines.is_empty() {
            written = write_lines(&mut output, &lines, args.format);
            continue;
        }
        if args.audit {
            let source = AuditSource::open(&args.server, &args.ledger, environment).await?;
            let entries = source.read_all().await?;
            let lines: Vec<Value> = entries.iter().map(|entry| json!(entry)).collect();
            is_open(write_lines(&mut output, &lines, args.format))?;
        }
        break;
    }
    Ok(())
}

/// Whether the reader takes more.
fn is_open(written: io::Result<()>) -> Result<bool, Failure> {
    match written {
        Ok(()) => Ok(true),
        // The reader may need only the first calls. It is no failure that it closes the pipe then.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::Failed(format!(
            "toolcrib: standard output: {}",
            describe_io_error(&error)
        ))),
    }
}

fn write_header(output: &mut impl Write, format: ExportFormat) -> io::Result<()> {
    if format == ExportFormat::Csv {
        output.write_all(&csv_columns::header()?)?;
    }
    output.flush()
}

fn write_lines(output: &mut impl Write, lines: &[Value], format: ExportFormat) -> io::Result<()> {
    for call in lines {
        match format {
            ExportFormat::Jsonl => writeln!(output, "{call}")?,
            ExportFormat::Csv => output.write_all(&csv_columns::line(call)?)?,
        }
    }
    output.flush()
}
