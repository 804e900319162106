//! `toolcrib import invocations`: adds calls that `toolcrib export` has written to a ledger.

use std::fs::File;
use std::io::{BufRead, BufReader, Read as _, stdin};
use std::path::{Path, PathBuf};

use serde_json::json;

use super::super::Failure;
use super::super::failure::describe_io_error;
use super::super::ledger_source::LedgerArgs;
use super::super::output::print_json;
use crate::audit::Entry;
use crate::call::Clock;
use crate::environment::Environment;
use crate::http::read_imported_call;
use crate::ledger::{self, Ledger, RecordedCall};

/// Most calls of a commit.
const MAX_BATCH: usize = 256;
/// A commit with more text than this, in bytes, takes no further call.
const MAX_BATCH_BYTES: usize = 4 << 20;
/// Most bytes of a line, so that a file without lines does not fill the memory.
const MAX_LINE_BYTES: u64 = 256 << 20;

/// Arguments of `import invocations`.
#[derive(clap::Args)]
pub(in crate::cli) struct InvocationsArgs {
    /// The JSON lines that `toolcrib export` has written; `-` reads standard input.
    file: PathBuf,
    #[command(flatten)]
    ledger: LedgerArgs,
}

/// What the import has done so far.
#[derive(Default)]
struct Progress {
    imported: u64,
    skipped: u64,
}

pub(super) async fn import_calls(
    args: InvocationsArgs,
    environment: &Environment,
) -> Result<(), Failure> {
    let name = args.file.display().to_string();
    let unreadable =
        |error: std::io::Error| Failure::Usage(format!("{name}: {}", describe_io_error(&error)));
    // The file is opened first: a wrong name must not make a new ledger.
    let lines: Box<dyn BufRead> = match args.file.as_path() {
        file if file == Path::new("-") => Box::new(BufReader::new(stdin())),
        file => Box::new(BufReader::new(File::open(file).map_err(unreadable)?)),
    };
    let settings = args.ledger.settings(environment)?;
    let ledger = ledger::open(&settings, Clock::system().now()).await?;
    let mut progress = Progress::default();
    let imported = import_lines(lines, &name, &*ledger, &mut progress).await;
    ledger.close().await;
    imported.map_err(|failure| explain(failure, &progress))?;
    print_json(&json!({"imported": progress.imported, "skipped": progress.skipped}));
    Ok(())
}

/// Adds to the message of a failure what stays in the ledger.
fn explain(failure: Failure, progress: &Progress) -> Failure {
    let Progress { imported, skipped } = progress;
    let note = format!(
        "{imported} calls before it were imported, {skipped} were known; another import skips them"
    );
    match failure {
        Failure::Usage(message) => Failure::Usage(format!("{message}\n{note}")),
        Failure::Failed(message) => Failure::Failed(format!("{message}\n{note}")),
        other => other,
    }
}

async fn import_lines(
    mut lines: Box<dyn BufRead>,
    name: &str,
    ledger: &dyn Ledger,
    progress: &mut Progress,
) -> Result<(), Failure> {
    let (mut batch, mut bytes, mut line) = (Vec::new(), 0, Vec::new());
    let mut entries: Vec<Entry> = Vec::new();
    for number in 1_u64.. {
        let wrong = |message: String| Failure::Usage(format!("{name}:{number}: {message}"));
        line.clear();
        let read = lines
            .by_ref()
            .take(MAX_LINE_BYTES)
            .read_until(b'\n', &mut line)
            .map_err(|error| wrong(describe_io_error(&error)))?;
        if read == 0 {
            break;
        }
        if read as u64 == MAX_LINE_BYTES {
            return Err(wrong("the line is longer than 256 MiB".into()));
        }
        if line.trim_ascii().is_empty() {
            continue;
        }
        let call = match read_imported_call(&line) {
            Ok(call) => call,
            Err(message) => {
                let entry = serde_json::from_slice(&line).map_err(|_| {
                    wrong(format!(
                        "{message}; each line is a call as `toolcrib export --format jsonl` writes it"
                    ))
                })?;
                entries.push(entry);
                continue;
            }
        };
        batch.push(call);
        bytes += line.len();
        if batch.len() == MAX_BATCH || bytes > MAX_BATCH_BYTES {
            commit(ledger, std::mem::take(&mut batch), progress).await?;
            bytes = 0;
        }
    }
    commit(ledger, batch, progress).await?;
    let read = entries.len() as u64;
    let added = ledger.import_audit(entries).await.map_err(not_taken)?;
    progress.imported += added;
    progress.skipped += read - added;
    Ok(())
}

fn not_taken(error: ledger::Error) -> Failure {
    Failure::Failed(format!("toolcrib: the ledger does not take this: {error}"))
}

async fn commit(
    ledger: &dyn Ledger,
    batch: Vec<RecordedCall>,
    progress: &mut Progress,
) -> Result<(), Failure> {
    if batch.is_empty() {
        return Ok(());
    }
    let calls = batch.len() as u64;
    let added = ledger.import_calls(batch).await.map_err(not_taken)?;
    progress.imported += added;
    progress.skipped += calls - added;
    Ok(())
}
