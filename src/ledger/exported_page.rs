//! A page of exported calls, put together from three queries.

use std::collections::HashMap;
use std::sync::Arc;

use super::{AttemptRow, RecordedCall, Row};
use crate::call::InvocationId;

/// The calls whose stored results answered other calls of the page.
pub(super) fn origins(rows: &[Row]) -> Vec<InvocationId> {
    let answered = rows.iter().filter(|row| row.result.is_none());
    answered.filter_map(|row| row.origin).collect()
}

/// Gives each row its failed attempts, which are sorted, and the result of its origin.
pub(super) fn join(
    rows: Vec<Row>,
    attempts: Vec<AttemptRow>,
    results: &HashMap<InvocationId, Option<Arc<str>>>,
) -> Vec<RecordedCall> {
    let mut by_call: HashMap<InvocationId, Vec<AttemptRow>> = HashMap::new();
    for attempt in attempts {
        by_call.entry(attempt.invocation).or_default().push(attempt);
    }
    let join_row = |row: Row| RecordedCall {
        attempts: by_call.remove(&row.id).unwrap_or_default(),
        origin_result: row.origin.and_then(|origin| results.get(&origin).cloned()?),
        row,
    };
    rows.into_iter().map(join_row).collect()
}
