//! Implements the trait: writes go to the writer, queries and rare changes to the pool.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures_util::FutureExt;
use jiff::Timestamp;
use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, PgPool, Result, Row as _};
use tokio::sync::{broadcast, mpsc, oneshot, watch};
use tokio::time::{sleep, timeout};
use tokio_util::task::AbortOnDropHandle;
use uuid::Uuid;

use super::super::count_by_time::count_by_time;
use super::super::operation::{Starting, UnitRequest, Write};
use super::super::read::{self, decode_row, whole_columns};
use super::super::sql::{Dialect, Fetch as _, Sql, SqlRow, Store};
use super::super::writer_queue::{WriterHandle, commit};
use super::super::{
    AnsweredCall, BucketQuery, BucketRow, Durability, Error, Ledger, LedgerObserver, Query,
    RecordedCall, ReplicaRow, Reservation, ReserveError, Row, Settings, SharedChange, State,
    StoredResult, WhenDown, import,
};
use super::address::Address;
use super::batch::End;
use super::commit::storable;
use super::fault::{self, QUERY_TIMEOUT};
use super::fetch::to_row;
use super::lease::Lease;
use super::replica::{CLOSE_TIMEOUT, Replica};
use super::servers::Servers;
use super::units::SetAside;
use super::writer::{self, Operation, Undo, Writer};
use super::{announce, change, hours, list, open, retention, running, settle};
use crate::audit::NewEntry;
use crate::call::{Charge, Charged, Clock, InvocationId};

/// How often partitions are added. They are added for several days.
const PARTITION_INTERVAL: Duration = Duration::from_secs(3600);

/// Messages about units that may wait for the writer.
const UNIT_SIGNALS: usize = 256;

/// Begins a transaction of which all reads see the ledger at one moment.
const SAME_MOMENT: &str = "set transaction isolation level repeatable read read only";
/// The replicas that have not ended, the oldest first.
const SELECT_REPLICAS: &str = "select boot::text, version, started_at, (extract(epoch from seen_at) * 1000)::bigint, running \
    from replica where ended_at is null order by started_at, boot";

/// A ledger that several replicas share.
pub(in crate::ledger) struct PostgresLedger {
    place: String,
    durability: Durability,
    when_down: WhenDown,
    writer: Writer,
    lease: Arc<Lease>,
    units: SetAside,
    pool: PgPool,
    keys: KeyLookups,
    /// The sender of announcements.
    process: Uuid,
    /// The current boot id, which changes if another replica settles this one.
    boot: watch::Receiver<Uuid>,
    shared_changes: broadcast::Sender<SharedChange>,
    answered: broadcast::Sender<Vec<AnsweredCall>>,
    /// Settles ended replicas, and follows the changes of others.
    _tasks: Vec<AbortOnDropHandle<()>>,
}

impl PostgresLedger {
    pub(in crate::ledger) async fn open(
        settings: &Settings,
        observer: Arc<dyn LedgerObserver>,
    ) -> Result<Self, Error> {
        let address = Address::parse(&settings.url, &settings.base)?;
        let servers = Arc::new(Servers::new(address));
        let pool = open::open_database(&servers).await?;
        let explain = |error: sqlx::Error| Error::unusable(servers.place(), fault::reason(&error));
        let lease = Arc::new(Lease::new());
        let process = Uuid::now_v7();
        let mut replica = Replica::new(servers.clone(), pool.clone(), process, lease.clone());
        // What happens from here on is followed; what happened before is read at the start.
        let newest = announce::newest(&pool).await.map_err(explain)?;
        replica.register().await.map_err(explain)?;
        let boot = replica.watch_boot();
        let (shared_changes, _) = broadcast::channel(announce::CAPACITY);
        let settling = tokio::spawn(settle::run(pool.clone(), Clock::system()).boxed());
        let (signals, unit_signals) = mpsc::channel(UNIT_SIGNALS);
        let (answered, _) = broadcast::channel(announce::ANSWERED_CAPACITY);
        let receivers = announce::Receivers {
            changes: shared_changes.clone(),
            signals,
            answered: answered.clone(),
        };
        let following = announce::follow(servers.clone(), process, newest, receivers);
        let units = SetAside::default();
        let partitions = tokio::spawn(maintain_partitions(pool.clone()).boxed());
        let (keys, looking) = KeyLookups::new(pool.clone());
        let tasks = [
            settling,
            tokio::spawn(following.boxed()),
            partitions,
            tokio::spawn(looking.boxed()),
        ];
        Ok(Self {
            place: servers.place().into(),
            durability: settings.durability,
            when_down: settings.when_down,
            writer: writer::spawn_writer(replica, units.clone(), unit_signals, observer),
            lease,
            units,
            keys,
            process,
            pool,
            boot,
            shared_changes,
            answered,
            _tasks: tasks.map(AbortOnDropHandle::new).into(),
        })
    }

    /// Opens an existing ledger without a writer: every write fails.
    pub(in crate::ledger) async fn open_read_only(settings: &Settings) -> Result<Self, Error> {
        let address = Address::parse(&settings.url, &settings.base)?;
        let servers = Arc::new(Servers::new(address));
        let unusable = |error: sqlx::Error| Error::unusable(servers.place(), fault::reason(&error));
        let mut connection = servers.connect().await.map_err(unusable)?;
        open::check_version(&mut connection, &servers).await?;
        let pool = open::open_pool(&servers);
        let process = Uuid::nil();
        let (keys, looking) = KeyLookups::new(pool.clone());
        Ok(Self {
            durability: settings.durability,
            when_down: settings.when_down,
            writer: Writer::new_closed(),
            lease: Arc::new(Lease::new()),
            units: SetAside::default(),
            keys,
            process,
            pool,
            boot: watch::channel(process).1,
            shared_changes: broadcast::channel(1).0,
            answered: broadcast::channel(1).0,
            place: servers.place().into(),
            _tasks: vec![AbortOnDropHandle::new(tokio::spawn(looking.boxed()))],
        })
    }
}

/// Waits for a query, no longer than [`QUERY_TIMEOUT`].
async fn bounded<T>(query: impl Future<Output = Result<T, sqlx::Error>>) -> Result<T, Error> {
    let found = fault::within(QUERY_TIMEOUT, query).await;
    found.map_err(|error| fault::query_error(&error))
}

/// Adds partitions for the days to come, and indexes that partitions lack, as long as the process
/// runs.
async fn maintain_partitions(pool: PgPool) {
    loop {
        retention::add_indexes(&pool).await;
        sleep(PARTITION_INTERVAL).await;
        retention::add_partitions(&pool).await;
    }
}

#[async_trait]
impl Store for PostgresLedger {
    fn dialect(&self) -> Dialect {
        Dialect::Postgres
    }

    async fn fetch(&self, sql: Sql) -> Result<Vec<SqlRow>, Error> {
        bounded(async { self.pool.acquire().await?.fetch(sql).await }).await
    }

    async fn change(
        &self,
        sql: Sql,
        news: Option<SharedChange>,
        entry: Option<NewEntry>,
    ) -> Result<u64, Error> {
        if let Some(SharedChange::Purged(_)) = &news {
            // Results that are on their way are purged too.
            self.flush().await?;
        }
        let made = change::make(&self.pool, self.process, sql, news.as_ref(), entry);
        bounded(made).await
    }

    fn writer(&self) -> &dyn WriterHandle {
        &self.writer
    }

    fn modes(&self) -> (Durability, WhenDown) {
        (self.durability, self.when_down)
    }

    fn free_units(&self, charged: &Charged) -> u64 {
        self.units.free_units(charged)
    }
}

#[async_trait]
impl Ledger for PostgresLedger {
    fn store(&self) -> &dyn Store {
        self
    }

    async fn find_result(
        &self,
        key: &[u8; 32],
        now: Timestamp,
    ) -> Result<Option<StoredResult>, Error> {
        // A call that can do without the stored result does not wait for a database that is away.
        self.writer.health().map_err(Error::Failed)?;
        read::find_result(self, key, now).await
    }

    async fn take_units(
        &self,
        invocation: InvocationId,
        started_at: Timestamp,
        charges: Vec<Charge>,
    ) -> Result<Reservation, ReserveError> {
        let request = UnitRequest {
            invocation,
            started_at,
            charges,
        };
        // Without a lease, the units may belong to a replica that was settled.
        if self.lease.covers(Instant::now())
            && let Some(reservation) = self.units.take(&request)
        {
            return Ok(reservation);
        }
        let take = |reply| Operation::TakeUnits(Starting::new(request, reply));
        self.writer.send_and_wait(take).await
    }

    async fn settle(&self, row: Arc<Row>, refunds: Vec<Charged>) -> Result<(), Error> {
        let is_refused = row.state == State::Refused;
        let end = End {
            held: self.units.release(row.id),
            row,
            settles: true,
            // A refused call uses no unit.
            refunds: !refunds.is_empty() || is_refused,
        };
        self.writer
            .send_and_wait(|reply| Operation::Settle { end, reply })
            .await
    }

    async fn show_running(&self, running: &[InvocationId], new: &[Arc<Row>]) -> Result<(), Error> {
        let replica = *self.boot.borrow();
        bounded(running::show(&self.pool, replica, running, new)).await
    }

    async fn list_running_elsewhere(&self, query: &Query) -> Result<Vec<Row>, Error> {
        let own = *self.boot.borrow();
        running::list(self, own, query).await
    }

    async fn find_running_elsewhere(&self, id: InvocationId) -> Result<Option<Row>, Error> {
        running::find(self, id).await
    }

    async fn find_key_holder(
        &self,
        caller: &str,
        tool: &str,
        key: &str,
        now: Timestamp,
    ) -> Result<Option<Row>, Error> {
        loop {
            match self.keys.find(caller, tool, key, now).await {
                Ok(found) => return Ok(found),
                Err(LookupError::Failed(error)) => return Err(error),
                // The call waits until its own deadline, as long as the database works.
                Err(LookupError::Busy) => self.writer.health().map_err(Error::Failed)?,
            }
        }
    }

    async fn list_calls(&self, query: &Query) -> Result<Vec<Row>, Error> {
        list::list_calls(self, query).await
    }

    async fn import_calls(&self, calls: Vec<RecordedCall>) -> Result<u64, Error> {
        bounded(async {
            let mut transaction = self.pool.begin().await?;
            let added = import::import_calls(&mut *transaction, &calls).await?;
            transaction.commit().await?;
            Ok(added)
        })
        .await
    }

    async fn usage_buckets(&self, query: &BucketQuery) -> Result<Vec<BucketRow>, Error> {
        bounded(async {
            let mut transaction = self.pool.begin().await?;
            transaction.execute(Sql::new(SAME_MOMENT)).await?;
            count_by_time(&mut *transaction, query).await
        })
        .await
    }

    async fn count_hours(
        &self,
        now: Timestamp,
        oldest: Timestamp,
        at_most: u32,
    ) -> Result<u32, Error> {
        bounded(hours::count(&self.pool, now, oldest, at_most)).await
    }

    async fn reset_counters(
        &self,
        tool: &str,
        caller: Option<&str>,
        entry: Option<NewEntry>,
    ) -> Result<(), Error> {
        bounded(change::reset_counters(&self.pool, tool, caller, entry)).await
    }

    async fn prune(&self, before: Timestamp, now: Timestamp, at_most: u32) -> Result<u64, Error> {
        self.flush().await?;
        bounded(retention::prune(&self.pool, before, now, at_most)).await
    }

    async fn trim(&self, now: Timestamp, at_most: u32) -> Result<u64, Error> {
        bounded(retention::trim(&self.pool, now, at_most)).await
    }

    async fn counter_drift(&self) -> Result<u64, Error> {
        let units = sqlx::query_scalar::<_, Option<i64>>("select verify_counters_1()");
        // Without a number, another replica reports the difference.
        let units = bounded(units.fetch_one(&self.pool)).await?;
        Ok(units.unwrap_or_default().unsigned_abs())
    }

    async fn backup(&self, to: &Path) -> Result<u64, Error> {
        Err(Error::BackupFailed {
            place: to.display().to_string(),
            reason:
                "the ledger is in PostgreSQL; back it up with pg_dump or the tools of its operator"
                    .into(),
        })
    }

    async fn undo_reservation(&self, id: InvocationId) {
        // Without a writer, the service is at its end, which settles the call.
        let _ = self.writer.send(Operation::Rare(Undo(id))).await;
    }

    fn check_lease(&self, began: Instant) -> Result<(), String> {
        if self.lease.covers(began) {
            return Ok(());
        }
        Err("this replica has not reached the database for too long; another one may have settled its calls".into())
    }

    fn replica(&self) -> Option<Arc<str>> {
        Some(self.boot.borrow().to_string().into())
    }

    async fn replicas(&self) -> Result<Vec<ReplicaRow>, Error> {
        let rows = self.store().fetch(Sql::new(SELECT_REPLICAS)).await?;
        let replica = |row: &SqlRow| {
            Ok(ReplicaRow {
                replica: row.get(0)?,
                version: row.get(1)?,
                started_at: row.get(2)?,
                seen_at: row.get(3)?,
                running: row.get(4)?,
            })
        };
        rows.iter().map(replica).collect()
    }

    fn watch_shared_changes(&self) -> Option<broadcast::Receiver<SharedChange>> {
        Some(self.shared_changes.subscribe())
    }

    async fn request_cancel(&self, id: InvocationId, caller: Option<&str>) -> Result<(), Error> {
        bounded(change::request_cancel(&self.pool, self.process, id, caller)).await
    }

    async fn tell_answered(&self, calls: &[AnsweredCall]) -> Result<(), Error> {
        bounded(announce::tell_answered(&self.pool, self.process, calls)).await
    }

    fn watch_answered(&self) -> Option<broadcast::Receiver<Vec<AnsweredCall>>> {
        Some(self.answered.subscribe())
    }

    async fn close(&self) {
        // A network that is silent must not hold up the end of the process.
        let _ = timeout(CLOSE_TIMEOUT * 3, commit(&self.writer, Write::Close)).await;
        let _ = timeout(CLOSE_TIMEOUT, self.pool.close()).await;
    }

    fn describe(&self) -> String {
        format!("postgres {}", self.place)
    }
}

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

/// Looks up the holders of idempotency keys. Lookups that wait at the same time become one query on one
/// connection, so many calls with keys do not wait for the few connections of the pool.
struct KeyLookups(mpsc::Sender<Lookup>);

/// Why a lookup has no answer.
enum LookupError {
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
