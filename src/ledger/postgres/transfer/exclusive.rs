//! A database that no replica uses.

use std::sync::Arc;

use jiff::Timestamp;
use sqlx::{Executor as _, PgConnection};
use uuid::Uuid;

use super::super::address::Address;
use super::super::lease::GRACE;
use super::super::servers::Servers;
use super::super::{fault, open};
use crate::call::KEY_RETENTION;
use crate::ledger::{Error, Settings};

/// The lock under which replicas register. It is kept to the end of the session, so none can start.
const LOCK: &str = "select pg_advisory_lock(1413698114, 2)";
/// A session that has just ended may hold the lock for a moment.
const LIMIT_WAIT: &str = "set lock_timeout to '5s'";
/// PostgreSQL, appendix A: the lock was not available in time.
const LOCK_NOT_AVAILABLE: &str = "55P03";
/// One transaction has the whole ledger, and waits for the other side.
const UNLIMITED: &str = "set lock_timeout to 0; set statement_timeout to 0; set idle_in_transaction_session_timeout to 0";
const REPLICAS: &str = "select boot, host from replica where ended_at is null order by started_at";
/// Settles a replica that has crashed, as any other replica would. Null: it still runs.
const SETTLE: &str = "select settle_replica_1($1, null, $2, $3)";

/// A connection to a database that no replica uses, as long as the connection lasts.
pub(super) struct Exclusive {
    pub(super) connection: PgConnection,
    /// Host, port and database.
    pub(super) place: String,
}

impl Exclusive {
    /// Connects, migrates the schema, and settles the calls of crashed replicas.
    pub(super) async fn open(settings: &Settings, now: Timestamp) -> Result<Self, Error> {
        let servers = Arc::new(Servers::new(Address::parse(&settings.url, &settings.base)?));
        let place = servers.place().to_owned();
        let unusable = |error: sqlx::Error| Error::Unusable {
            place: place.clone(),
            reason: fault::reason(&error),
        };
        open::open_database(&servers).await?.close().await;
        let mut connection = servers.connect().await.map_err(unusable)?;
        connection.execute(LIMIT_WAIT).await.map_err(unusable)?;
        let in_use = |by: String| Error::InUse {
            place: place.clone(),
            by,
        };
        connection.execute(LOCK).await.map_err(|error| {
            let found = error.as_database_error();
            let code = found.and_then(|found| found.code());
            let is_held = code.as_deref() == Some(LOCK_NOT_AVAILABLE);
            drop(code);
            match is_held {
                true => in_use("another move".into()),
                false => unusable(error),
            }
        })?;
        connection.execute(UNLIMITED).await.map_err(unusable)?;
        let running = running_replicas(&mut connection, now)
            .await
            .map_err(unusable)?;
        if !running.is_empty() {
            let seconds = GRACE.as_secs();
            let hosts = running.join(", ");
            return Err(in_use(format!(
                "a replica on {hosts} (a crashed one counts for {seconds} s)"
            )));
        }
        Ok(Self { connection, place })
    }
}

/// The hosts of the replicas that still run.
async fn running_replicas(
    connection: &mut PgConnection,
    now: Timestamp,
) -> Result<Vec<String>, sqlx::Error> {
    let replicas = sqlx::query_as::<_, (Uuid, String)>(REPLICAS);
    let replicas = replicas.fetch_all(&mut *connection).await?;
    let key_until = now
        .checked_add(KEY_RETENTION)
        .map_or(i64::MAX, |until| until.as_millisecond());
    let mut running = Vec::new();
    for (boot, host) in replicas {
        let settled = sqlx::query_scalar::<_, Option<i64>>(SETTLE)
            .bind(boot)
            .bind(i64::try_from(GRACE.as_millis()).unwrap_or(i64::MAX))
            .bind(key_until);
        if settled.fetch_one(&mut *connection).await?.is_none() {
            running.push(host);
        }
    }
    Ok(running)
}
