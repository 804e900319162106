use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use jiff::Timestamp;
use serde_json::Value;

use super::*;
use crate::call::{Caller, Effect, ErrorKind, JsonObject, ToolName};
use crate::ledger::State;

/// A writer whose reader reads only when allowed. Each write is one text.
struct GatedWriter {
    written: SyncSender<String>,
    permits: Receiver<()>,
}

impl io::Write for GatedWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _ = self.permits.recv();
        let _ = self
            .written
            .send(String::from_utf8(bytes.to_vec()).unwrap());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn log(min_level: LevelFilter) -> (CallLog, Receiver<String>, SyncSender<()>) {
    let ((written, read), (permit, wait)) = (sync_channel(4096), sync_channel(4096));
    let writer = LogWriter::spawn(
        GatedWriter {
            written,
            permits: wait,
        },
        Format::Json,
    )
    .unwrap();
    (CallLog::lines(writer, min_level), read, permit)
}

fn call(log: &CallLog, kind: Option<ErrorKind>) {
    let caller = Arc::new(Caller::anonymous());
    let mut arguments = JsonObject::new();
    arguments.insert("password".into(), "an-argument".into());
    let invocation = Invocation::new(
        ToolName::parse("t").unwrap(),
        arguments,
        caller,
        Timestamp::UNIX_EPOCH,
    );
    let row = Row::from_invocation(&invocation, Effect::Read, State::Succeeded);
    log.log_ended(
        &invocation,
        &Row {
            kind,
            duration_us: Some(1500),
            result: Some("a-result".into()),
            ..row
        },
    );
}

#[tokio::test]
async fn lines_keep_order_and_respect_the_level() {
    let (log, read, permit) = log(LevelFilter::WARN);
    drop(permit);
    for kind in [
        None,
        Some(ErrorKind::Overloaded),
        Some(ErrorKind::InvalidArguments),
        Some(ErrorKind::Internal),
    ] {
        call(&log, kind);
    }
    log.flush().await;
    let text: String = read.try_iter().collect();
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let levels: Vec<_> = lines
        .iter()
        .map(|line| (&line["level"], &line["kind"]))
        .collect();
    assert_eq!(
        levels,
        [
            (&"WARN".into(), &"overloaded".into()),
            (&"ERROR".into(), &"internal".into())
        ]
    );
    assert_eq!(lines[0]["timestamp"], "1970-01-01T00:00:00.0015Z");
    assert!(!text.contains("an-argument") && !text.contains("a-result"));
}

#[tokio::test]
async fn slow_reader_gets_count_of_lost_lines() {
    let (log, read, permit) = log(LevelFilter::INFO);
    let calls = 3 * writer::QUEUE_CAPACITY;
    for _ in 0..calls {
        call(&log, None);
    }
    let lost = log.lost_lines();
    // The thread may hold one batch, and another batch waits.
    assert!(lost >= writer::QUEUE_CAPACITY as u64, "{lost}");
    drop(permit);
    log.flush().await;
    let text: String = read.try_iter().collect();
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let (reports, written): (Vec<_>, Vec<_>) =
        lines.iter().partition(|line| line["lines"].is_u64());
    assert_eq!(written.len() as u64 + lost, calls as u64);
    assert_eq!(
        reports
            .iter()
            .filter_map(|line| line["lines"].as_u64())
            .sum::<u64>(),
        lost
    );
}

#[test]
fn error_kinds_have_the_right_level() {
    use ErrorKind::{Cancelled, Internal, LedgerUnavailable, UpstreamFailed, UsageLimitReached};
    let level = |kind| ended_call::level_for(kind);
    assert_eq!(
        (level(None), level(Some(UsageLimitReached))),
        (Level::INFO, Level::INFO)
    );
    assert_eq!(
        (level(Some(Cancelled)), level(Some(UpstreamFailed))),
        (Level::INFO, Level::WARN)
    );
    assert_eq!(
        (level(Some(LedgerUnavailable)), level(Some(Internal))),
        (Level::ERROR, Level::ERROR)
    );
}
