//! Claims on idempotency keys, decided in the commit that reserves. A unique index prevents double
//! claims in any case; this code decides which caller gets which answer.

use std::collections::HashMap;

use super::super::sql::SqlRow;
use super::super::{ReserveError, Row};
use super::quota::ReserveResult;
use super::script::Script;
use crate::call::InvocationId;

/// The holders of these keys.
const READ_HOLDERS: &str = "select i.idempotency_key, i.caller, i.tool, i.id, i.key_until from json_each(?) as asked \
    join invocation as i on i.idempotency_key = asked.value->>0 and i.caller = asked.value->>1 \
    and i.tool = asked.value->>2 where i.key_until is not null";
/// Releases keys that have expired.
const RELEASE_KEYS: &str =
    "update invocation set key_until = null where id in (select unhex(value) from json_each(?))";

/// Idempotency key, caller, tool.
type Key = (String, String, String);

/// The keys that one batch claims.
#[derive(Default)]
pub(super) struct KeyClaims {
    holders: HashMap<Key, (InvocationId, i64)>,
    /// Calls whose expired keys a call of this batch takes over.
    expired_holders: Vec<InvocationId>,
}

/// Adds the query for the holders of these calls' keys. Returns whether there are any keys.
pub(super) fn add_holder_query<'a>(
    reserved: impl Iterator<Item = &'a Row>,
    script: &mut Script,
) -> bool {
    let claimed: Vec<Key> = reserved.filter_map(claimed_key).collect();
    script.add_with_rows(READ_HOLDERS, &claimed);
    !claimed.is_empty()
}

impl KeyClaims {
    /// Reads the result of [`add_holder_query`].
    pub(super) fn from_rows(rows: &[SqlRow]) -> Result<Self, sqlx::Error> {
        let read = |row: &SqlRow| {
            let key = (row.get(0)?, row.get(1)?, row.get(2)?);
            Ok((key, (row.get(3)?, row.get(4)?)))
        };
        let holders = rows.iter().map(read).collect::<Result<_, sqlx::Error>>()?;
        Ok(Self {
            holders,
            expired_holders: Vec::new(),
        })
    }

    /// Reserves for this row, unless another call holds its key.
    pub(super) fn claim(
        &mut self,
        row: &Row,
        reserve: impl FnOnce() -> (ReserveResult, Option<String>),
    ) -> (ReserveResult, Option<String>) {
        let Some(key) = claimed_key(row) else {
            return reserve();
        };
        let holder = self.holders.get(&key).copied();
        if let Some((holder, until)) = holder
            && until > row.started_at.as_millisecond()
        {
            return (Err(ReserveError::KeyClaimed(holder)), None);
        }
        let (answer, charged) = reserve();
        if answer.is_ok() {
            self.holders
                .insert(key, (row.id, Row::FOREVER.as_millisecond()));
            self.expired_holders
                .extend(holder.map(|(holder, _)| holder));
        }
        (answer, charged)
    }

    /// Releases the expired keys that this batch takes over.
    pub(super) fn add_release(&self, script: &mut Script) {
        let expired: Vec<String> = self
            .expired_holders
            .iter()
            .map(|id| hex::encode(id.as_bytes()))
            .collect();
        script.add_with_rows(RELEASE_KEYS, &expired);
    }
}

fn claimed_key(row: &Row) -> Option<Key> {
    let key = row.idempotency_key.as_ref()?;
    row.key_until.map(|_| {
        (
            key.to_string(),
            row.caller.to_string(),
            row.tool.to_string(),
        )
    })
}

#[cfg(test)]
mod tests {
    use jiff::ToSpan;

    use super::super::super::Reservation;
    use super::super::super::contract::{now, row};
    use super::*;

    fn row_with_key() -> Row {
        Row {
            idempotency_key: Some("k".into()),
            key_until: Some(Row::FOREVER),
            ..row("t", "a", now())
        }
    }

    fn claims_held_until(until: i64) -> (KeyClaims, InvocationId) {
        let holder = InvocationId::new();
        let holders = [(
            ("k".to_owned(), "a".to_owned(), "t".to_owned()),
            (holder, until),
        )]
        .into();
        (
            KeyClaims {
                holders,
                expired_holders: Vec::new(),
            },
            holder,
        )
    }

    #[test]
    fn holder_query_needs_a_claimed_key() {
        let mut script = Script::default();
        let named = Row {
            key_until: None,
            ..row_with_key()
        };
        let unkeyed = [row("t", "a", now()), named];
        assert!(!add_holder_query(unkeyed.iter(), &mut script));
        assert!(add_holder_query([row_with_key()].iter(), &mut script));
    }

    #[test]
    fn key_is_free_after_it_expires() {
        let admit = || (Ok(Reservation::default()), None);
        let (mut keys, holder) = claims_held_until((now() + 1.millisecond()).as_millisecond());
        let (answer, _) = keys.claim(&row_with_key(), admit);
        assert!(
            matches!(answer, Err(ReserveError::KeyClaimed(by)) if by == holder),
            "{answer:?}"
        );

        let (mut keys, holder) = claims_held_until(now().as_millisecond());
        let claims = row_with_key();
        assert!(keys.claim(&claims, admit).0.is_ok());
        assert_eq!(keys.expired_holders, [holder]);
        let (answer, _) = keys.claim(&row_with_key(), admit);
        assert!(
            matches!(answer, Err(ReserveError::KeyClaimed(by)) if by == claims.id),
            "{answer:?}"
        );
    }
}
