//! The last answered calls of runs, which replicas tell each other by notifications. A lost one only
//! lets a repeated call pass.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD as BASE64;
use sqlx::{PgPool, Result};
use uuid::Uuid;

use super::super::AnsweredCall;
use crate::call::InvocationId;

/// The channel of the notifications.
pub(super) const CHANNEL: &str = "toolcrib_runs";
/// Notifications that a slow receiver may be behind.
pub(super) const CAPACITY: usize = 64;
/// Calls in one notification, whose text has less than 8000 bytes.
const MAX_CALLS: usize = 64;
/// Bytes of one call: the hashes of run and call, the id, and the age in milliseconds.
const CALL_BYTES: usize = 32 + 32 + 16 + 4;
/// Does nothing while there is no other replica.
const TELL: &str = "select pg_notify($1, text) from unnest($2::text[]) as text \
    where (select count(*) from replica where ended_at is null) > 1";

/// Sends the calls to all replicas.
pub(super) async fn tell(pool: &PgPool, own: Uuid, calls: &[AnsweredCall]) -> Result<()> {
    let texts: Vec<String> = calls
        .chunks(MAX_CALLS)
        .map(|calls| format_text(own, calls))
        .collect();
    sqlx::query(TELL)
        .bind(CHANNEL)
        .bind(texts)
        .execute(pool)
        .await
        .map(drop)
}

fn format_text(own: Uuid, calls: &[AnsweredCall]) -> String {
    let mut bytes = Vec::with_capacity(calls.len() * CALL_BYTES);
    for call in calls {
        let age = u32::try_from(call.age.as_millis()).unwrap_or(u32::MAX);
        bytes.extend_from_slice(&call.run);
        bytes.extend_from_slice(&call.call);
        bytes.extend_from_slice(call.invocation.as_bytes());
        bytes.extend_from_slice(&age.to_be_bytes());
    }
    format!("{own} {}", BASE64.encode(bytes))
}

/// Reads the text of a notification. `None` if it is of this process, or of a form that only a newer
/// version knows.
pub(super) fn parse(text: &str, own: Uuid) -> Option<Vec<AnsweredCall>> {
    let (sender, calls) = text.split_once(' ')?;
    if sender.parse::<Uuid>().ok()? == own {
        return None;
    }
    let bytes = BASE64.decode(calls).ok()?;
    let (calls, rest) = bytes.as_chunks::<CALL_BYTES>();
    rest.is_empty()
        .then(|| calls.iter().map(parse_call).collect::<Option<Vec<_>>>())?
}

fn parse_call(bytes: &[u8; CALL_BYTES]) -> Option<AnsweredCall> {
    let (run, rest) = bytes.split_first_chunk()?;
    let (call, rest) = rest.split_first_chunk()?;
    let (id, rest) = rest.split_first_chunk()?;
    let (age, _) = rest.split_first_chunk()?;
    Some(AnsweredCall {
        run: *run,
        call: *call,
        invocation: InvocationId::from_bytes(*id),
        age: Duration::from_millis(u32::from_be_bytes(*age).into()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notification_has_calls_of_other_replicas() {
        let calls: Vec<AnsweredCall> = (0..MAX_CALLS)
            .map(|n| AnsweredCall {
                run: [n as u8; 32],
                call: [255; 32],
                invocation: InvocationId::new(),
                age: Duration::from_millis(n as u64 * 1000),
            })
            .collect();
        let (sender, other) = (Uuid::now_v7(), Uuid::now_v7());
        let text = format_text(sender, &calls);
        assert!(text.len() < 8000, "{}", text.len());
        assert_eq!(parse(&text, other), Some(calls));
        assert_eq!(parse(&text, sender), None);
        for unknown in ["", "x", &text[1..], &text[..text.len() - 8]] {
            assert_eq!(parse(unknown, other), None, "{unknown}");
        }
    }
}
