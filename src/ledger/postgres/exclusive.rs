//! A database that no replica uses.

use std::sync::Arc;

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use sqlx::{Connection as _, Executor as _, PgConnection};
use uuid::Uuid;

use super::super::transfer::End;
use super::super::{Error, Settings, sql};
use super::address::Address;
use super::lease::GRACE;
use super::servers::Servers;
use super::settle::settle_replica;
use super::{fault, open};
use crate::call::InvocationId;

/// The lock under which replicas register. It is kept to the end of the session, so none can start.
const LOCK: &str = "select pg_advisory_lock(1413698114, 2)";
/// A session that has just ended may hold the lock for a moment.
const LIMIT_WAIT: &str = "set lock_timeout to '5s'";
/// One transaction has the whole ledger, and waits for the other side.
const UNLIMITED: &str = "set lock_timeout to 0; set statement_timeout to 0; set idle_in_transaction_session_timeout to 0";
const REPLICAS: &str = "select boot, host from replica where ended_at is null order by started_at";
/// Partitions for the days of the calls. Older calls share one, because a transaction holds a lock for
/// each partition and each of its indexes.
const MAX_PARTITIONS: i64 = 100;
const ADD_PARTITION: &str =
    "select add_partitions_1((to_timestamp($1::bigint / 1000.0) at time zone 'utc')::date, 1)";

/// A connection to a database that no replica uses, as long as the connection lasts.
pub(in crate::ledger) struct Exclusive {
    connection: PgConnection,
    /// Host, port and database.
    place: String,
}

impl Exclusive {
    /// Connects, migrates the schema, and settles the calls of crashed replicas.
    pub(in crate::ledger) async fn open(
        settings: &Settings,
        now: Timestamp,
    ) -> Result<Self, Error> {
        let servers = Arc::new(Servers::new(Address::parse(&settings.url, &settings.base)?));
        let place = servers.place().to_owned();
        let unusable = |error: sqlx::Error| Error::unusable(&place, fault::reason(&error));
        open::open_database(&servers).await?.close().await;
        let mut connection = servers.connect().await.map_err(unusable)?;
        connection.execute(LIMIT_WAIT).await.map_err(unusable)?;
        let in_use = |by: String| Error::InUse {
            place: place.clone(),
            by,
        };
        connection.execute(LOCK).await.map_err(|error| {
            if fault::is_locked(&error) {
                in_use("another move".into())
            } else {
                unusable(error)
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

#[async_trait]
impl End for Exclusive {
    fn connection(&mut self) -> &mut dyn sql::Fetch {
        &mut self.connection
    }

    fn explain(&self) -> fn(&sqlx::Error) -> Error {
        fault::query_error
    }

    fn place(&self) -> String {
        self.place.clone()
    }

    fn describe(&self) -> String {
        format!("postgres {}", self.place)
    }

    /// Adds partitions from the day of the oldest call on, which stay if the move fails.
    async fn begin(&mut self, oldest: Option<InvocationId>, now: Timestamp) -> sqlx::Result<()> {
        if let Some(oldest) = oldest.and_then(|id| id.created_at()) {
            let day = SignedDuration::from_hours(24);
            let days = (now.duration_since(oldest).as_hours() / 24 + 1).clamp(0, MAX_PARTITIONS);
            for before in (0..=days).rev() {
                let at = now.as_millisecond() - before * day.as_millis() as i64;
                let add = sqlx::query(ADD_PARTITION).bind(at);
                add.execute(&mut self.connection).await?;
            }
        }
        // Hours that were counted without calls.
        let begin = sqlx::raw_sql("begin; delete from usage_hour");
        begin.execute(&mut self.connection).await.map(drop)
    }

    fn drift(&self) -> &'static str {
        "select verify_counters_1()"
    }

    async fn commit(&mut self) -> sqlx::Result<()> {
        let commit = sqlx::raw_sql("commit").execute(&mut self.connection);
        commit.await.map(drop)
    }

    async fn close(self: Box<Self>) {
        let _ = self.connection.close().await;
    }
}

/// The hosts of the replicas that still run.
async fn running_replicas(
    connection: &mut PgConnection,
    now: Timestamp,
) -> Result<Vec<String>, sqlx::Error> {
    let replicas = sqlx::query_as::<_, (Uuid, String)>(REPLICAS);
    let replicas = replicas.fetch_all(&mut *connection).await?;
    let mut running = Vec::new();
    for (boot, host) in replicas {
        let settled = settle_replica(&mut *connection, boot, None, now).await?;
        if settled.is_none() {
            running.push(host);
        }
    }
    Ok(running)
}
