//! This process as a replica: its row in the database, its lock, and its connection for commits.

use std::sync::Arc;
use std::time::Instant;

use sqlx::postgres::PgConnectOptions;
use sqlx::{Connection, PgConnection};
use tokio::sync::watch;
use tokio::time::timeout;
use uuid::Uuid;

use super::batch::Batch;
use super::commit::{self, Decisions};
use super::lease::Lease;
use super::{fault, open};
use crate::call::KEY_RETENTION;
use crate::ledger::pending_durations::PendingDurations;

/// How long a commit may take. Its callers wait, and then get an error.
const COMMIT_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(5);

/// The lock of a replica, by its boot id.
const LOCK: &str =
    "select pg_try_advisory_lock(hashtextextended($1::text, 1413698114)), pg_backend_pid()";
/// Registers a replica in the lowest free slot.
const REGISTER: &str = "insert into replica (boot, slot, host, version, started_at) \
    select $1, min(slot), $2, $3, (extract(epoch from clock_timestamp()) * 1000)::bigint \
    from generate_series(0, (select count(*) from replica where ended_at is null)) as slot \
    where not exists (select 1 from replica r where r.slot = slot.slot and r.ended_at is null)";
/// Excludes commits of earlier connections by skipping a number. Waits for a commit that still runs.
const REATTACH: &str = "update replica set last_batch = replica.last_batch + 1, seen_at = clock_timestamp() \
    from (select last_batch from replica where boot = $1 for update) as before \
    where boot = $1 and ended_at is null returning before.last_batch";

/// This process as a replica.
pub(super) struct Replica {
    options: PgConnectOptions,
    boot: watch::Sender<Uuid>,
    lease: Arc<Lease>,
    connection: Option<PgConnection>,
    /// Process of the last connection in the server.
    backend: Option<i32>,
    last_batch: i64,
    /// The commit without an answer.
    open_batch: Option<i64>,
}

/// What a new connection has found.
pub(super) struct Attached {
    /// Whether the commit without an answer is in the database; `None` if there was no such commit.
    pub(super) open_batch_is_committed: Option<bool>,
    /// Whether another replica has settled this one, so that it has a new boot id.
    pub(super) was_settled: bool,
}

impl Replica {
    pub(super) fn new(options: PgConnectOptions, boot: Uuid, lease: Arc<Lease>) -> Self {
        Self {
            options,
            boot: watch::channel(boot).0,
            lease,
            connection: None,
            backend: None,
            last_batch: 0,
            open_batch: None,
        }
    }

    /// The id under which the database knows this process.
    pub(super) fn boot(&self) -> Uuid {
        *self.boot.borrow()
    }

    /// The current id, now and later.
    pub(super) fn watch_boot(&self) -> watch::Receiver<Uuid> {
        self.boot.subscribe()
    }

    pub(super) fn is_connected(&self) -> bool {
        self.connection.is_some()
    }

    /// Registers with a new connection.
    pub(super) async fn register(&mut self) -> Result<(), sqlx::Error> {
        let began = Instant::now();
        let mut connection = open::connect(&self.options).await?;
        let mut change = connection.begin().await?;
        sqlx::query("select pg_advisory_xact_lock(1413698114, 2)")
            .execute(&mut *change)
            .await?;
        sqlx::query(REGISTER)
            .bind(self.boot())
            .bind(rustix::system::uname().nodename().to_string_lossy())
            .bind(env!("CARGO_PKG_VERSION"))
            .execute(&mut *change)
            .await?;
        change.commit().await?;
        (self.last_batch, self.open_batch) = (0, None);
        self.hold_lock(&mut connection).await?;
        self.connection = Some(connection);
        self.lease.renew(began);
        Ok(())
    }

    /// Connects again after a failure.
    pub(super) async fn reattach(&mut self) -> Result<Attached, sqlx::Error> {
        self.disconnect();
        let began = Instant::now();
        let mut connection = open::connect(&self.options).await?;
        if let Some(backend) = self.backend {
            // The server may not have noticed that the old connection is gone. Without the right to
            // do this, the skipped number is enough.
            let _ = sqlx::query("select pg_terminate_backend($1)")
                .bind(backend)
                .execute(&mut connection)
                .await;
        }
        let before = sqlx::query_scalar::<_, i64>(REATTACH)
            .bind(self.boot())
            .fetch_optional(&mut connection)
            .await?;
        let found = match before {
            Some(before) => Some(before),
            None => {
                sqlx::query_scalar("select last_batch from replica where boot = $1")
                    .bind(self.boot())
                    .fetch_optional(&mut connection)
                    .await?
            }
        };
        let attached = Attached {
            open_batch_is_committed: self.open_batch.map(|open| found == Some(open)),
            was_settled: before.is_none(),
        };
        match before {
            Some(before) => {
                self.last_batch = before + 1;
                self.hold_lock(&mut connection).await?;
                self.connection = Some(connection);
                self.lease.renew(began);
            }
            None => {
                let _ = connection.close().await;
                self.boot.send_replace(Uuid::now_v7());
                self.register().await?;
            }
        }
        self.open_batch = None;
        Ok(attached)
    }

    async fn hold_lock(&mut self, connection: &mut PgConnection) -> Result<(), sqlx::Error> {
        let (_, backend) = sqlx::query_as::<_, (bool, i32)>(LOCK)
            .bind(self.boot())
            .fetch_one(connection)
            .await?;
        self.backend = Some(backend);
        Ok(())
    }

    /// Drops the connection. The next commit needs [`Replica::reattach`].
    pub(super) fn disconnect(&mut self) {
        self.connection = None;
    }

    /// Commits a batch. After an error without an answer of the server, the outcome is open until
    /// [`Replica::reattach`].
    pub(super) async fn commit(
        &mut self,
        running: u32,
        batch: &Batch,
        durations: Option<&PendingDurations>,
    ) -> Result<Decisions, sqlx::Error> {
        let (number, boot, began) = (self.last_batch + 1, self.boot(), Instant::now());
        let Some(connection) = self.connection.as_mut() else {
            return Err(fault::timeout_error());
        };
        let committing = commit::commit(connection, boot, number, running, batch, durations);
        let committed = match timeout(COMMIT_TIMEOUT, committing).await {
            Ok(committed) => committed,
            Err(_) => Err(fault::timeout_error()),
        };
        match &committed {
            Ok(_) => {
                self.last_batch = number;
                self.lease.renew(began);
            }
            Err(error) if fault::is_uncertain(error) => {
                self.open_batch = Some(number);
                self.disconnect();
            }
            Err(error) if fault::needs_connection(error) => self.disconnect(),
            Err(_) => {}
        }
        committed
    }

    /// Ends this replica. Calls that are still reserved become `unknown`.
    pub(super) async fn close(&mut self) {
        let Some(mut connection) = self.connection.take() else {
            return;
        };
        let until = jiff::Timestamp::now()
            .checked_add(KEY_RETENTION)
            .map_or(i64::MAX, |until| until.as_millisecond());
        let settle = sqlx::query("select settle_replica_1($1, 0, 0, $2)")
            .bind(self.boot())
            .bind(until);
        if let Ok(Err(error)) = timeout(COMMIT_TIMEOUT, settle.execute(&mut connection)).await {
            tracing::debug!(
                reason = fault::reason(&error),
                "the end of this replica is not recorded"
            );
        }
        let _ = connection.close().await;
    }
}
