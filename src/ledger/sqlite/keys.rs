//! Claims on idempotency keys, decided in the commit that reserves. A unique index prevents double claims in any case;
//! this code decides which caller gets which answer.

use std::collections::HashMap;

use sqlx::Row as _;
use sqlx::sqlite::SqliteRow;

use super::super::{ReserveError, Row};
use super::batch::Reserved;
use super::read;
use super::script::Script;
use crate::call::{Charge, InvocationId};

/// The holders of these keys.
const READ: &str = "select i.idempotency_key, i.caller, i.tool, i.id, i.key_until from json_each(?) as asked \
    join invocation as i on i.idempotency_key = asked.value->>0 and i.caller = asked.value->>1 \
    and i.tool = asked.value->>2 where i.key_until is not null";
/// Releases keys that have expired.
const RELEASE: &str = "update invocation set key_until = null where id in (select unhex(value) from json_each(?))";

/// Idempotency key, caller, tool.
type Key = (String, String, String);

/// The keys that one batch claims.
#[derive(Default)]
pub(super) struct Keys {
    holders: HashMap<Key, (InvocationId, i64)>,
    /// Calls whose expired keys a call of this batch takes over.
    over: Vec<InvocationId>,
}

/// Adds the query for the holders of these reservations' keys. Returns whether there are any keys.
pub(super) fn ask(reserves: &[(Row, Vec<Charge>)], script: &mut Script) -> bool {
    let asked: Vec<Key> = reserves.iter().filter_map(|(row, _)| key_of(row)).collect();
    script.add_with(READ, &asked);
    !asked.is_empty()
}

impl Keys {
    /// Reads the result of [`ask`].
    pub(super) fn read(rows: &[SqliteRow]) -> Result<Self, sqlx::Error> {
        let read = |row: &SqliteRow| {
            let key = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
            Ok((key, (read::id(row.try_get(3)?)?, row.try_get(4)?)))
        };
        let holders = rows.iter().map(read).collect::<Result<_, sqlx::Error>>()?;
        Ok(Self { holders, over: Vec::new() })
    }

    /// Reserves for this row, unless another call holds its key.
    pub(super) fn claim(
        &mut self,
        row: &Row,
        reserve: impl FnOnce() -> (Reserved, Option<String>),
    ) -> (Reserved, Option<String>) {
        let Some(key) = key_of(row) else { return reserve() };
        let holder = self.holders.get(&key).copied();
        if let Some((holder, until)) = holder
            && until > row.started_at.as_millisecond()
        {
            return (Err(ReserveError::Claimed(holder)), None);
        }
        let (answer, charged) = reserve();
        if answer.is_ok() {
            self.holders.insert(key, (row.id, Row::FOREVER.as_millisecond()));
            self.over.extend(holder.map(|(holder, _)| holder));
        }
        (answer, charged)
    }

    /// Releases the expired keys that this batch takes over.
    pub(super) fn release(&self, script: &mut Script) {
        let over: Vec<String> = self.over.iter().map(|id| hex::encode(id.as_bytes())).collect();
        script.add_with(RELEASE, &over);
    }
}

fn key_of(row: &Row) -> Option<Key> {
    let key = row.idempotency_key.as_ref()?;
    row.key_until.map(|_| (key.to_string(), row.caller.to_string(), row.tool.to_string()))
}

#[cfg(test)]
mod tests {
    use jiff::ToSpan;

    use super::super::super::Reservation;
    use super::super::super::contract::{now, row};
    use super::*;

    fn keyed() -> Row {
        Row { idempotency_key: Some("k".into()), key_until: Some(Row::FOREVER), ..row("t", "a", now()) }
    }

    fn held(until: i64) -> (Keys, InvocationId) {
        let holder = InvocationId::new();
        let holders = [(("k".to_owned(), "a".to_owned(), "t".to_owned()), (holder, until))].into();
        (Keys { holders, over: Vec::new() }, holder)
    }

    #[test]
    fn only_rows_that_claim_a_key_ask() {
        let mut script = Script::default();
        let named = Row { key_until: None, ..keyed() };
        assert!(!ask(&[(row("t", "a", now()), vec![]), (named, vec![])], &mut script));
        assert!(ask(&[(keyed(), vec![])], &mut script));
    }

    #[test]
    fn a_key_is_free_when_its_time_is_over() {
        let admit = || (Ok(Reservation::default()), None);
        let (mut keys, holder) = held((now() + 1.millisecond()).as_millisecond());
        let (answer, _) = keys.claim(&keyed(), admit);
        assert!(matches!(answer, Err(ReserveError::Claimed(by)) if by == holder), "{answer:?}");

        let (mut keys, holder) = held(now().as_millisecond());
        let claims = keyed();
        assert!(keys.claim(&claims, admit).0.is_ok());
        assert_eq!(keys.over, [holder]);
        let (answer, _) = keys.claim(&keyed(), admit);
        assert!(matches!(answer, Err(ReserveError::Claimed(by)) if by == claims.id), "{answer:?}");
    }
}
