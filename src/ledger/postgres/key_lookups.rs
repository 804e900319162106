//! Looks up the holders of idempotency keys. Lookups that wait at the same time become one query on one
//! connection, so many calls with keys do not wait for the few connections of the pool.

use jiff::Timestamp;
use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, PgPool, Result, Row as _};
use tokio::sync::{mpsc, oneshot};

use super::super::read::{decode_row, whole_columns};
use super::super::sql::Dialect;
use super::super::{Error, Row};
use super::commit::storable;
use super::fault::{self, QUERY_TIMEOUT};
use super::fetch::to_row;

/// Lookups in one query.
const MAX_LOOKUPS: usize = 128;
/// Each row is found by its index, however many keys and calls there are. Between the two parts are the
/// columns of the call.
const FIND: [&str; 2] = [
    "select found.*, wanted.n from unnest($1::text[], $2::text[], $3::text[], $4::bigint[]) \
     with ordinality as wanted (key, caller, tool, at, n) \
     cross join lateral (select invocation from key_holder where idempotency_key = wanted.key and caller = wanted.caller \
     and tool = wanted.tool and held_until > wanted.at limit 1) as holder cross join lateral (select ",
    " from invocation where id = holder.invocation limit 1) as found",
];

/// Sends lookups to the task that runs them.
pub(super) struct KeyLookups(mpsc::Sender<Lookup>);

/// Why a lookup has no answer.
pub(super) enum LookupError {
    /// All connections were in use for too long. The lookup may be repeated.
    Busy,
    /// The query failed.
    Failed(Error),
}

/// A lookup that waits for its answer.
struct Lookup {
    key: String,
    caller: String,
    tool: String,
    at: i64,
    reply: oneshot::Sender<std::result::Result<Option<Row>, LookupError>>,
}

impl KeyLookups {
    /// The handle, and the task's work, which ends with the handle.
    pub(super) fn new(pool: PgPool) -> (Self, impl Future<Output = ()>) {
        let (sender, waiting) = mpsc::channel(MAX_LOOKUPS);
        (Self(sender), run(pool, waiting))
    }

    /// The call that holds a key.
    pub(super) async fn find(
        &self,
        caller: &str,
        tool: &str,
        key: &str,
        now: Timestamp,
    ) -> std::result::Result<Option<Row>, LookupError> {
        let (reply, answer) = oneshot::channel();
        let lookup = Lookup {
            key: storable(key).into_owned(),
            caller: storable(caller).into_owned(),
            tool: storable(tool).into_owned(),
            at: now.as_millisecond(),
            reply,
        };
        let closed = LookupError::Failed(Error::Closed);
        if self.0.send(lookup).await.is_err() {
            return Err(closed);
        }
        answer.await.unwrap_or(Err(closed))
    }
}

async fn run(pool: PgPool, mut waiting: mpsc::Receiver<Lookup>) {
    let mut lookups = Vec::new();
    while waiting.recv_many(&mut lookups, MAX_LOOKUPS).await > 0 {
        // A caller that has reached its deadline waits no longer.
        lookups.retain(|lookup| !lookup.reply.is_closed());
        if lookups.is_empty() {
            continue;
        }
        match fault::within(QUERY_TIMEOUT, find_all(&pool, &lookups)).await {
            Ok(found) => answer(lookups.drain(..), &found),
            Err(error) => {
                for lookup in lookups.drain(..) {
                    let _ = lookup.reply.send(Err(explain(&error)));
                }
            }
        }
    }
}

async fn find_all(pool: &PgPool, lookups: &[Lookup]) -> Result<Vec<PgRow>> {
    let column = |part: fn(&Lookup) -> &str| lookups.iter().map(part).collect::<Vec<&str>>();
    let times: Vec<i64> = lookups.iter().map(|lookup| lookup.at).collect();
    let sql = FIND.join(&whole_columns(Dialect::Postgres));
    sqlx::query(AssertSqlSafe(sql))
        .bind(column(|lookup| &lookup.key))
        .bind(column(|lookup| &lookup.caller))
        .bind(column(|lookup| &lookup.tool))
        .bind(times)
        .fetch_all(pool)
        .await
}

/// Sends each lookup its row. A row that cannot be read concerns only its own lookup.
fn answer(lookups: impl Iterator<Item = Lookup>, found: &[PgRow]) {
    let mut replies: Vec<_> = lookups.map(|lookup| Some(lookup.reply)).collect();
    for row in found {
        let number = row.try_get::<i64, _>("n").ok();
        let place = number.and_then(|number| usize::try_from(number - 1).ok());
        let reply = place.and_then(|place| replies.get_mut(place)?.take());
        if let Some(reply) = reply {
            let row = decode_row(&to_row(row)).map(Some);
            let _ = reply.send(row.map_err(|error| LookupError::Failed(error.into())));
        }
    }
    for reply in replies.into_iter().flatten() {
        let _ = reply.send(Ok(None));
    }
}

fn explain(error: &sqlx::Error) -> LookupError {
    match error {
        sqlx::Error::PoolTimedOut => LookupError::Busy,
        error => LookupError::Failed(fault::query_error(error)),
    }
}
