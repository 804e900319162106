//! Checksums of the data behind an answer. SQLite's pages have none: neither SQLite nor its `integrity_check` finds a
//! flipped bit in a text.

use crc32fast::Hasher;

use super::super::{Row, StoredResult};
use crate::call::InvocationId;

/// The content of a row does not match its checksum.
#[derive(Debug, thiserror::Error)]
#[error("the row of call {0} is damaged")]
pub(super) struct Damaged(pub(super) InvocationId);

/// The checksum of a row: everything that is fixed once the call has ended, and the number of calls that the row
/// counts.
pub(super) fn of_row(row: &Row) -> u32 {
    let mut sum = Sum::default();
    sum.bytes(row.id.as_bytes());
    for text in [&row.tool, &row.caller, &row.arguments] {
        sum.bytes(text.as_bytes());
    }
    for text in [&row.run_id, &row.tool_use_id, &row.result, &row.meta, &row.idempotency_key, &row.fingerprint] {
        sum.maybe(text.as_ref().map(|text| text.as_bytes()));
    }
    for word in [row.state.as_str(), row.effect.as_str(), row.cache.as_str()] {
        sum.bytes(word.as_bytes());
    }
    sum.maybe(row.kind.map(|kind| kind.as_str().as_bytes()));
    sum.maybe(row.origin.as_ref().map(|id| &id.as_bytes()[..]));
    sum.bytes(&row.attempts.to_le_bytes());
    sum.bytes(&row.started_at.as_millisecond().to_le_bytes());
    sum.maybe(row.duration_us.map(i64::to_le_bytes).as_ref().map(|bytes| &bytes[..]));
    // Without a parent nothing is added, so rows from before this column existed keep their checksum.
    row.parent.iter().for_each(|parent| sum.bytes(parent.as_bytes()));
    of_shared(sum.0.finalize(), row.count)
}

/// The checksum of a row with this count, from its checksum with a count of one.
pub(super) fn of_shared(of_one: u32, count: u64) -> u32 {
    if count == 1 {
        return of_one;
    }
    let mut sum = Sum::default();
    sum.bytes(&of_one.to_le_bytes());
    sum.bytes(&count.to_le_bytes());
    sum.0.finalize()
}

pub(super) fn of_result(stored: &StoredResult) -> u32 {
    let mut sum = Sum::default();
    sum.bytes(&stored.key);
    sum.bytes(stored.tool.as_bytes());
    sum.bytes(stored.origin.as_bytes());
    sum.bytes(stored.result.as_bytes());
    sum.bytes(&stored.stored_at.as_millisecond().to_le_bytes());
    sum.bytes(&stored.expires_at.as_millisecond().to_le_bytes());
    sum.0.finalize()
}

#[derive(Default)]
struct Sum(Hasher);

impl Sum {
    /// Adds bytes after their length, so that moving bytes from one value to the next changes the checksum.
    fn bytes(&mut self, bytes: &[u8]) {
        self.0.update(&(bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
    }

    fn maybe(&mut self, bytes: Option<&[u8]>) {
        self.0.update(&[u8::from(bytes.is_some())]);
        self.bytes(bytes.unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use jiff::ToSpan;

    use super::super::super::State;
    use super::super::super::contract::{ended, now, row};
    use super::*;
    use crate::call::{CacheStatus, Effect, ErrorKind};

    #[test]
    fn each_value_changes_the_sum() {
        let whole = (*ended(&row("t", "a", now()), State::Succeeded)).clone();
        let text = |text: &str| Some(text.into());
        let changed: Vec<Row> = vec![
            Row { id: InvocationId::new(), ..whole.clone() },
            Row { tool: "u".into(), ..whole.clone() },
            Row { caller: "b".into(), ..whole.clone() },
            Row { tool: "ta".into(), caller: "".into(), ..whole.clone() },
            Row { arguments: "{}".into(), ..whole.clone() },
            Row { run_id: None, ..whole.clone() },
            Row { tool_use_id: text(""), ..whole.clone() },
            Row { result: text("{}"), ..whole.clone() },
            Row { meta: text(""), ..whole.clone() },
            Row { idempotency_key: text("k"), ..whole.clone() },
            Row { fingerprint: text("k"), ..whole.clone() },
            Row { state: State::Failed, ..whole.clone() },
            Row { effect: Effect::Read, ..whole.clone() },
            Row { cache: CacheStatus::Hit, ..whole.clone() },
            Row { kind: Some(ErrorKind::Internal), ..whole.clone() },
            Row { origin: Some(whole.id), ..whole.clone() },
            Row { parent: Some(whole.id), ..whole.clone() },
            Row { attempts: 2, ..whole.clone() },
            Row { started_at: now() + 1.millisecond(), ..whole.clone() },
            Row { duration_us: None, ..whole.clone() },
            Row { count: 2, ..whole.clone() },
            Row { count: 3, ..whole.clone() },
        ];
        let sums: HashSet<u32> = changed.iter().chain([&whole]).map(of_row).collect();
        assert_eq!(sums.len(), changed.len() + 1);
        assert_eq!(of_row(&whole), of_row(&whole.clone()));
    }

    #[test]
    fn shared_rows_keep_the_sum_of_one() {
        let one = Row { count: 1, ..row("t", "a", now()) };
        assert_eq!(of_shared(of_row(&one), 1), of_row(&one));
        assert_eq!(of_shared(of_row(&one), 7), of_row(&Row { count: 7, ..one.clone() }));
    }
}
