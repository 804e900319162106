//! Checksums of the data behind an answer, for SQLite. Its pages have none: neither SQLite nor its
//! `integrity_check` finds a flipped bit in a text.

use crc32fast::Hasher;

use super::{Row, StoredResult};

/// The checksum of a row: everything that is fixed once the call has ended, and the number of calls
/// that the row counts.
pub(super) fn row_checksum(row: &Row) -> u32 {
    let mut sum = Checksum::default();
    sum.add_bytes(row.id.as_bytes());
    for text in [&row.tool, &row.caller, &row.arguments] {
        sum.add_bytes(text.as_bytes());
    }
    for text in [
        &row.run_id,
        &row.tool_use_id,
        &row.result,
        &row.meta,
        &row.idempotency_key,
        &row.fingerprint,
    ] {
        sum.add_optional(text.as_ref().map(|text| text.as_bytes()));
    }
    for word in [row.state.as_str(), row.effect.as_str(), row.cache.as_str()] {
        sum.add_bytes(word.as_bytes());
    }
    sum.add_optional(row.kind.map(|kind| kind.as_str().as_bytes()));
    sum.add_optional(row.origin.as_ref().map(|id| &id.as_bytes()[..]));
    sum.add_bytes(&row.attempts.to_le_bytes());
    sum.add_bytes(&row.started_at.as_millisecond().to_le_bytes());
    sum.add_optional(
        row.duration_us
            .map(i64::to_le_bytes)
            .as_ref()
            .map(|bytes| &bytes[..]),
    );
    // Without a parent or a detail nothing is added, so rows from before these columns existed keep
    // their checksum.
    row.parent
        .iter()
        .for_each(|parent| sum.add_bytes(parent.as_bytes()));
    row.detail
        .iter()
        .for_each(|detail| sum.add_optional(Some(detail.as_bytes())));
    shared_row_checksum(sum.0.finalize(), row.count)
}

/// The checksum of a row with this count, from its checksum with a count of one.
pub(super) fn shared_row_checksum(single: u32, count: u64) -> u32 {
    if count == 1 {
        return single;
    }
    let mut sum = Checksum::default();
    sum.add_bytes(&single.to_le_bytes());
    sum.add_bytes(&count.to_le_bytes());
    sum.0.finalize()
}

pub(super) fn result_checksum(stored: &StoredResult) -> u32 {
    let mut sum = Checksum::default();
    sum.add_bytes(&stored.key);
    sum.add_bytes(stored.tool.as_bytes());
    sum.add_bytes(stored.origin.as_bytes());
    sum.add_bytes(stored.result.as_bytes());
    sum.add_bytes(&stored.stored_at.as_millisecond().to_le_bytes());
    sum.add_bytes(&stored.expires_at.as_millisecond().to_le_bytes());
    sum.0.finalize()
}

#[derive(Default)]
struct Checksum(Hasher);

impl Checksum {
    /// Adds bytes after their length, so that moving bytes from one value to the next changes the
    /// checksum.
    fn add_bytes(&mut self, bytes: &[u8]) {
        self.0.update(&(bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
    }

    fn add_optional(&mut self, bytes: Option<&[u8]>) {
        self.0.update(&[u8::from(bytes.is_some())]);
        self.add_bytes(bytes.unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use jiff::ToSpan;

    use super::super::State;
    use super::super::contract::{ended_row, now, row};
    use super::*;
    use crate::call::{CacheStatus, Effect, ErrorKind, InvocationId};

    #[test]
    fn every_field_changes_the_checksum() {
        let original = (*ended_row(&row("t", "a", now()), State::Succeeded)).clone();
        let text = |text: &str| Some(text.into());
        let changed: Vec<Row> = vec![
            Row {
                id: InvocationId::new(),
                ..original.clone()
            },
            Row {
                tool: "u".into(),
                ..original.clone()
            },
            Row {
                caller: "b".into(),
                ..original.clone()
            },
            Row {
                tool: "ta".into(),
                caller: "".into(),
                ..original.clone()
            },
            Row {
                arguments: "{}".into(),
                ..original.clone()
            },
            Row {
                run_id: None,
                ..original.clone()
            },
            Row {
                tool_use_id: text(""),
                ..original.clone()
            },
            Row {
                result: text("{}"),
                ..original.clone()
            },
            Row {
                meta: text(""),
                ..original.clone()
            },
            Row {
                idempotency_key: text("k"),
                ..original.clone()
            },
            Row {
                fingerprint: text("k"),
                ..original.clone()
            },
            Row {
                state: State::Failed,
                ..original.clone()
            },
            Row {
                effect: Effect::Read,
                ..original.clone()
            },
            Row {
                cache: CacheStatus::Hit,
                ..original.clone()
            },
            Row {
                kind: Some(ErrorKind::Internal),
                ..original.clone()
            },
            Row {
                origin: Some(original.id),
                ..original.clone()
            },
            Row {
                parent: Some(original.id),
                ..original.clone()
            },
            Row {
                detail: text("the tool is disabled"),
                ..original.clone()
            },
            Row {
                attempts: 2,
                ..original.clone()
            },
            Row {
                started_at: now() + 1.millisecond(),
                ..original.clone()
            },
            Row {
                duration_us: None,
                ..original.clone()
            },
            Row {
                count: 2,
                ..original.clone()
            },
            Row {
                count: 3,
                ..original.clone()
            },
        ];
        let sums: HashSet<u32> = changed
            .iter()
            .chain([&original])
            .map(row_checksum)
            .collect();
        assert_eq!(sums.len(), changed.len() + 1);
        assert_eq!(row_checksum(&original), row_checksum(&original.clone()));
    }

    #[test]
    fn shared_checksum_derives_from_the_single_one() {
        let one = Row {
            count: 1,
            ..row("t", "a", now())
        };
        assert_eq!(
            shared_row_checksum(row_checksum(&one), 1),
            row_checksum(&one)
        );
        assert_eq!(
            shared_row_checksum(row_checksum(&one), 7),
            row_checksum(&Row {
                count: 7,
                ..one.clone()
            })
        );
    }
}
