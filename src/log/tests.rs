use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use jiff::Timestamp;
use serde_json::Value;

use super::*;
use crate::call::{Caller, Effect, ErrorKind, JsonObject, ToolName};
use crate::ledger::State;

/// A writer whose reader reads only when allowed. Each write is one text.
struct Slow {
    written: SyncSender<String>,
    may: Receiver<()>,
}

impl io::Write for Slow {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _ = self.may.recv();
        let _ = self.written.send(String::from_utf8(bytes.to_vec()).unwrap());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn log(least: LevelFilter) -> (CallLog, Receiver<String>, SyncSender<()>) {
    let ((written, read), (may, wait)) = (sync_channel(4096), sync_channel(4096));
    let writer = LogWriter::spawn(Slow { written, may: wait }, Format::Json).unwrap();
    (CallLog::lines(writer, least), read, may)
}

fn call(log: &CallLog, kind: Option<ErrorKind>) {
    let caller = Arc::new(Caller::anonymous());
    let mut arguments = JsonObject::new();
    arguments.insert("password".into(), "an-argument".into());
    let invocation = Invocation::new(ToolName::parse("t").unwrap(), arguments, caller, Timestamp::UNIX_EPOCH);
    let row = Row::begun(&invocation, Effect::Read, State::Succeeded);
    log.ended(&invocation, &Row { kind, duration_us: Some(1500), result: Some("a-result".into()), ..row });
}

#[tokio::test]
async fn lines_come_in_order_up_to_the_level_that_is_wanted() {
    let (log, read, may) = log(LevelFilter::WARN);
    drop(may);
    for kind in [None, Some(ErrorKind::Overloaded), Some(ErrorKind::InvalidArguments), Some(ErrorKind::Internal)] {
        call(&log, kind);
    }
    log.flush().await;
    let text: String = read.try_iter().collect();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let said: Vec<_> = lines.iter().map(|line| (&line["level"], &line["kind"])).collect();
    assert_eq!(said, [(&"WARN".into(), &"overloaded".into()), (&"ERROR".into(), &"internal".into())]);
    assert_eq!(lines[0]["timestamp"], "1970-01-01T00:00:00.0015Z");
    assert!(!text.contains("an-argument") && !text.contains("a-result"));
}

#[tokio::test]
async fn a_reader_that_does_not_read_stops_nobody_and_is_told_what_it_missed() {
    let (log, read, may) = log(LevelFilter::INFO);
    let calls = 3 * writer::QUEUE;
    for _ in 0..calls {
        call(&log, None);
    }
    let lost = log.lost();
    // The thread may hold one batch, and another batch waits.
    assert!(lost >= writer::QUEUE as u64, "{lost}");
    drop(may);
    log.flush().await;
    let text: String = read.try_iter().collect();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (told, written): (Vec<_>, Vec<_>) = lines.iter().partition(|line| line["lines"].is_u64());
    assert_eq!(written.len() as u64 + lost, calls as u64);
    assert_eq!(told.iter().filter_map(|line| line["lines"].as_u64()).sum::<u64>(), lost);
}

#[test]
fn every_kind_of_failure_has_the_level_of_who_must_act() {
    use ErrorKind::{Cancelled, Internal, LedgerUnavailable, UpstreamFailed, UsageLimitReached};
    let level = |kind| ended::level_of(kind);
    assert_eq!((level(None), level(Some(UsageLimitReached))), (Level::INFO, Level::INFO));
    assert_eq!((level(Some(Cancelled)), level(Some(UpstreamFailed))), (Level::INFO, Level::WARN));
    assert_eq!((level(Some(LedgerUnavailable)), level(Some(Internal))), (Level::ERROR, Level::ERROR));
}
