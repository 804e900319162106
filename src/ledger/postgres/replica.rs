//! This process as a replica: its row in the database, its lock, and its connection for commits.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sqlx::{Connection, PgConnection, PgPool};
use tokio::sync::watch;
use tokio::time::timeout;
use uuid::Uuid;

use super::batch::{Batch, BlockChanges};
use super::commit::{self, CommitNumber, Decisions, from_uuid};
use super::fault;
use super::lease::{BootTime, Lease};
use super::servers::Servers;
use crate::call::{InvocationId, KEY_RETENTION};
use crate::ledger::latency::PendingDurations;

/// How long a commit may take. Its callers wait, and then get an error.
const COMMIT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the end of a connection may take.
pub(super) const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Takes the lock of a replica, by its boot id.
const LOCK: &str = "select pg_try_advisory_lock(hashtextextended($1::text, 1413698114))";
/// Ends an earlier connection of this replica that the server still has: it is the one with the lock.
const END_EARLIER: &str = "select pg_terminate_backend(pid) from pg_locks where locktype = 'advisory' and granted and objsubid = 1 \
    and database = (select oid from pg_database where datname = current_database()) and pid <> pg_backend_pid() \
    and (classid::bigint << 32) | objid::bigint = hashtextextended($1::text, 1413698114)";
/// Registers a replica in the lowest free slot.
const REGISTER: &str = "insert into replica (boot, slot, host, version, started_at) \
    select $1, min(slot), $2, $3, (extract(epoch from clock_timestamp()) * 1000)::bigint \
    from generate_series(0, (select count(*) from replica where ended_at is null)) as slot \
    where not exists (select 1 from replica r where r.slot = slot.slot and r.ended_at is null) on conflict (boot) do nothing";
/// Excludes commits of earlier connections. Waits for one that still runs.
const REATTACH: &str = "update replica set attachment = attachment + 1, seen_at = clock_timestamp() \
    where boot = $1 and ended_at is null returning attachment, last_batch";
const LAST_BATCH: &str = "select last_batch from replica where boot = $1";

/// This process as a replica.
pub(super) struct Replica {
    servers: Arc<Servers>,
    /// The connections for queries, which follow the primary.
    pool: PgPool,
    boot: watch::Sender<Uuid>,
    lease: Arc<Lease>,
    connection: Option<PgConnection>,
    /// Whether the connection holds the lock, so that a crash is noticed soon.
    holds_lock: bool,
    attachment: i64,
    last_batch: i64,
    open_commit: OpenCommit,
    /// Whether another replica has settled this one.
    was_settled: bool,
}

/// The commit without an answer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OpenCommit {
    None,
    /// The outcome of the commit with this number is unknown.
    Unknown(i64),
    /// The database has shown the outcome.
    Known {
        is_committed: bool,
    },
}

/// What a new connection has found.
pub(super) struct Attached {
    /// Whether the commit without an answer is in the database; `None` if there was no such commit.
    pub(super) open_commit_succeeded: Option<bool>,
    /// Whether another replica has settled this one, so that it has a new boot id.
    pub(super) was_settled: bool,
}

impl Replica {
    pub(super) fn new(servers: Arc<Servers>, pool: PgPool, boot: Uuid, lease: Arc<Lease>) -> Self {
        Self {
            servers,
            pool,
            boot: watch::channel(boot).0,
            lease,
            connection: None,
            holds_lock: false,
            attachment: 0,
            last_batch: 0,
            open_commit: OpenCommit::None,
            was_settled: false,
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

    async fn connect(&self) -> Result<PgConnection, sqlx::Error> {
        let connection = self.servers.connect().await?;
        self.pool
            .set_connect_options(self.servers.primary_options());
        Ok(connection)
    }

    /// Registers with a new connection.
    pub(super) async fn register(&mut self) -> Result<(), sqlx::Error> {
        let began = BootTime::now();
        let mut connection = self.connect().await?;
        let boot = self.boot();
        let host = rustix::system::uname();
        let registering = async {
            let mut change = connection.begin().await?;
            sqlx::query("select pg_advisory_xact_lock(1413698114, 2)")
                .execute(&mut *change)
                .await?;
            sqlx::query(REGISTER)
                .bind(boot)
                .bind(host.nodename().to_string_lossy())
                .bind(env!("CARGO_PKG_VERSION"))
                .execute(&mut *change)
                .await?;
            change.commit().await
        };
        bounded(registering).await?;
        self.use_connection(connection, began, 0, 0).await
    }

    /// Connects again after a failure.
    pub(super) async fn reattach(&mut self) -> Result<Attached, sqlx::Error> {
        self.disconnect();
        // Each step keeps what it has found, because a later step may fail.
        if !self.was_settled {
            self.attach().await?;
        }
        if self.was_settled {
            self.register().await?;
        }
        let open_commit_succeeded = match self.open_commit {
            OpenCommit::Known { is_committed } => Some(is_committed),
            _ => None,
        };
        self.open_commit = OpenCommit::None;
        Ok(Attached {
            open_commit_succeeded,
            was_settled: std::mem::take(&mut self.was_settled),
        })
    }

    /// Connects under the current id, or notes that another replica has settled this one.
    async fn attach(&mut self) -> Result<(), sqlx::Error> {
        let began = BootTime::now();
        let mut connection = self.connect().await?;
        let boot = self.boot();
        let attaching = async {
            // The server may not have noticed that the old connection is gone. Without the right to
            // end it, the number of the attachment is enough.
            let end = sqlx::query(END_EARLIER).bind(boot);
            let _ = end.execute(&mut connection).await;
            let attached = sqlx::query_as::<_, (i64, i64)>(REATTACH).bind(boot);
            if let Some(found) = attached.fetch_optional(&mut connection).await? {
                return Ok((Some(found.0), Some(found.1)));
            }
            let last = sqlx::query_scalar(LAST_BATCH).bind(boot);
            Ok((None, last.fetch_optional(&mut connection).await?))
        };
        let (attachment, last_batch) = bounded(attaching).await?;
        if let OpenCommit::Unknown(number) = self.open_commit {
            let is_committed = last_batch == Some(number);
            self.open_commit = OpenCommit::Known { is_committed };
        }
        match attachment.zip(last_batch) {
            Some((attachment, last_batch)) => {
                self.use_connection(connection, began, attachment, last_batch)
                    .await
            }
            None => {
                self.was_settled = true;
                self.boot.send_replace(Uuid::now_v7());
                self.lease.restart();
                Ok(())
            }
        }
    }

    async fn use_connection(
        &mut self,
        connection: PgConnection,
        began: BootTime,
        attachment: i64,
        last_batch: i64,
    ) -> Result<(), sqlx::Error> {
        (self.attachment, self.last_batch) = (attachment, last_batch);
        self.connection = Some(connection);
        self.lease.renew(began);
        self.take_lock().await
    }

    /// Takes the lock, if the connection does not hold it. An earlier connection may hold it for a
    /// while.
    pub(super) async fn take_lock(&mut self) -> Result<(), sqlx::Error> {
        let boot = self.boot();
        let Some(connection) = self.connection.as_mut().filter(|_| !self.holds_lock) else {
            return Ok(());
        };
        let lock = sqlx::query_scalar(LOCK).bind(boot).fetch_one(connection);
        let taken = bounded(lock).await;
        match taken {
            Ok(is_taken) => self.holds_lock = is_taken,
            Err(_) => self.disconnect(),
        }
        taken.map(drop)
    }

    /// Whether the other replicas wait for this one.
    pub(super) fn has_lease(&self) -> bool {
        self.lease.covers(Instant::now())
    }

    /// Drops the connection. The next commit needs [`Replica::reattach`].
    pub(super) fn disconnect(&mut self) {
        self.connection = None;
        self.holds_lock = false;
    }

    /// Commits a batch. After an error without an answer of the server, the outcome is open until
    /// [`Replica::reattach`].
    pub(super) async fn commit(
        &mut self,
        running: u32,
        batch: &Batch,
        blocks: &BlockChanges,
        durations: Option<&PendingDurations>,
    ) -> Result<Decisions, sqlx::Error> {
        let began = BootTime::now();
        let number = CommitNumber {
            boot: self.boot(),
            attachment: self.attachment,
            batch: self.last_batch + 1,
        };
        let Some(connection) = self.connection.as_mut() else {
            return Err(fault::timeout_error());
        };
        let committing = commit::commit(connection, number, running, batch, blocks, durations);
        let committed = bounded(committing).await;
        match &committed {
            Ok(_) => {
                self.last_batch = number.batch;
                self.lease.renew(began);
            }
            Err(error) if fault::is_uncertain(error) => {
                self.open_commit = OpenCommit::Unknown(number.batch);
                self.disconnect();
            }
            Err(error) if fault::needs_connection(error) => self.disconnect(),
            Err(_) => {}
        }
        committed
    }

    /// Those of these calls that have a row.
    pub(super) async fn known_calls(
        &self,
        ids: impl Iterator<Item = InvocationId>,
    ) -> Result<Vec<InvocationId>, sqlx::Error> {
        let ids: Vec<Uuid> = ids.map(|id| commit::to_uuid(&id)).collect();
        let find = sqlx::query_scalar("select id from invocation where id = any ($1)").bind(ids);
        let known: Vec<Uuid> = bounded(find.fetch_all(&self.pool)).await?;
        Ok(known.into_iter().map(from_uuid).collect())
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
            .bind(until)
            .execute(&mut connection);
        if let Err(error) = bounded(settle).await {
            let reason = fault::reason(&error);
            tracing::debug!(reason, "the end of this replica is not recorded");
        }
        let _ = timeout(CLOSE_TIMEOUT, connection.close()).await;
    }
}

/// Waits no longer than [`COMMIT_TIMEOUT`].
fn bounded<T>(
    work: impl Future<Output = Result<T, sqlx::Error>>,
) -> impl Future<Output = Result<T, sqlx::Error>> {
    fault::within(COMMIT_TIMEOUT, work)
}
