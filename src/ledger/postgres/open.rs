//! Opens the database: connects, checks the pooler between, and migrates the schema.

use std::sync::Arc;
use std::time::Duration;

use sqlx::migrate::{MigrateError, Migrator};
use sqlx::postgres::PgPoolOptions;
use sqlx::{Connection, Executor, PgConnection, PgPool, Row as _};
use tokio::time::timeout;

use super::super::{Error, migrations};
use super::servers::Servers;
use super::session::{CONNECT_TIMEOUT, POOL_CONNECTIONS, SESSION, connect};
use super::{fault, retention};

/// The schema of all tables, so that the database may hold others too.
const SCHEMA: &str = "toolcrib";
/// How long the start waits for a database that starts itself.
pub(super) const START_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a connection that is given back to the pool may take to answer.
const PING_TIMEOUT: Duration = Duration::from_secs(2);
/// Pause between two attempts to connect at the start.
const START_PAUSE: Duration = Duration::from_millis(250);

/// Prepares the schema, and opens the connections for queries.
pub(super) async fn open_database(servers: &Arc<Servers>) -> Result<PgPool, Error> {
    let unusable = |reason: String| Error::unusable(servers.place(), reason);
    let explain = |error: sqlx::Error| unusable(fault::reason(&error));
    let mut connection = connect_at_start(servers).await.map_err(explain)?;
    check_session(servers, &mut connection).await?;
    check_encoding(servers, &mut connection).await?;
    prepare_schema(&mut connection).await.map_err(explain)?;
    migrate(&mut connection, servers).await?;
    let _ = connection.close().await;
    let pool = open_pool(servers);
    retention::add_partitions(&pool).await;
    Ok(pool)
}

/// Connections for queries, and for changes that are not made in batches. They lead to the server
/// that the last connection for commits has found.
pub(super) fn open_pool(servers: &Arc<Servers>) -> PgPool {
    let options = servers.primary_options();
    let servers = servers.clone();
    pool_of(POOL_CONNECTIONS)
        // Without a limit, a connection to a server that is gone would keep its place.
        .after_release(|connection, _| {
            Box::pin(async {
                Ok(timeout(PING_TIMEOUT, connection.ping())
                    .await
                    .is_ok_and(|pong| pong.is_ok()))
            })
        })
        // A ping of a server that is gone would wait for an answer.
        .test_before_acquire(false)
        .before_acquire(move |connection, about| {
            let is_current = servers.is_current(about.age);
            Box::pin(async move { Ok(is_current && connection.ping().await.is_ok()) })
        })
        .connect_lazy_with(options)
}

/// The connection that listens. It is no part of the pool above: that of a server that is gone would
/// keep its place.
pub(super) fn open_listener_pool(servers: &Servers) -> PgPool {
    pool_of(1)
        .max_lifetime(None)
        .idle_timeout(None)
        .connect_lazy_with(servers.primary_options())
}

/// At most this many connections, with the settings that every session has.
fn pool_of(connections: u32) -> PgPoolOptions {
    PgPoolOptions::new()
        .max_connections(connections)
        .acquire_timeout(CONNECT_TIMEOUT)
        .after_connect(|connection, _| {
            Box::pin(async move { connection.execute(SESSION).await.map(drop) })
        })
}

/// Waits for a database that starts at the same time. Other errors are final.
async fn connect_at_start(servers: &Servers) -> Result<PgConnection, sqlx::Error> {
    let end = tokio::time::Instant::now() + START_TIMEOUT;
    let mut is_waiting = false;
    loop {
        match servers.connect().await {
            Err(error) if fault::may_pass(&error) && tokio::time::Instant::now() < end => {
                if !std::mem::replace(&mut is_waiting, true) {
                    let (place, reason) = (servers.place(), fault::reason(&error));
                    let seconds = START_TIMEOUT.as_secs();
                    tracing::info!(place, reason, "waiting up to {seconds} s for the database");
                }
                tokio::time::sleep(START_PAUSE).await;
            }
            connected => return connected,
        }
    }
}

/// Refuses a pooler that gives each transaction another session: locks and settings of a session
/// would be lost. While a second connection holds a transaction, the first one must keep its own
/// backend process.
async fn check_session(servers: &Servers, first: &mut PgConnection) -> Result<(), Error> {
    let explain = |error: sqlx::Error| Error::unusable(servers.place(), fault::reason(&error));
    let before = bounded(backend(first)).await.map_err(explain)?;
    let options = servers.primary_options();
    let mut second = timeout(CONNECT_TIMEOUT, connect(&options))
        .await
        .unwrap_or(Err(sqlx::Error::PoolTimedOut))
        .map_err(explain)?;
    if let Err(error) = bounded(second.execute("begin")).await {
        // PostgreSQL itself never refuses this. A pooler in statement mode does.
        let is_pooler = error.as_database_error().is_some();
        return Err(if is_pooler {
            pooler_error(servers)
        } else {
            explain(error)
        });
    }
    bounded(backend(&mut second)).await.map_err(explain)?;
    let Ok(after) = timeout(CONNECT_TIMEOUT, backend(first)).await else {
        // Either the database is slow, or the second connection has the only session of a pooler.
        bounded(backend(&mut second)).await.map_err(explain)?;
        return Err(pooler_error(servers));
    };
    if after.map_err(explain)? != before {
        return Err(pooler_error(servers));
    }
    bounded(second.execute("rollback")).await.map_err(explain)?;
    let _ = second.close().await;
    Ok(())
}

/// The process of the server that answers. Without a prepared statement, which a pooler in
/// transaction mode mixes up.
async fn backend(connection: &mut PgConnection) -> Result<i32, sqlx::Error> {
    let row = connection.fetch_one("select pg_backend_pid()").await?;
    row.try_get(0)
}

fn bounded<T>(
    work: impl Future<Output = Result<T, sqlx::Error>>,
) -> impl Future<Output = Result<T, sqlx::Error>> {
    fault::within(CONNECT_TIMEOUT, work)
}

fn pooler_error(servers: &Servers) -> Error {
    Error::unusable(
        servers.place(),
        "a connection pooler in transaction or statement mode stands before the database; \
            set its pool_mode to session, or connect to the database itself",
    )
}

/// Refuses an encoding that cannot store each text, or that counts bytes instead of characters.
async fn check_encoding(servers: &Servers, connection: &mut PgConnection) -> Result<(), Error> {
    let unusable = |reason| Error::unusable(servers.place(), reason);
    let encoding: String = bounded(
        sqlx::query_scalar("select current_setting('server_encoding')").fetch_one(connection),
    )
    .await
    .map_err(|error| unusable(fault::reason(&error)))?;
    if encoding == "UTF8" {
        return Ok(());
    }
    Err(unusable(format!(
        "the encoding of the database is {encoding}, the ledger needs UTF8; \
        create a database with: create database NAME encoding 'UTF8' template template0"
    )))
}

async fn prepare_schema(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    let exists = "select exists (select 1 from pg_namespace where nspname = $1)";
    let exists: bool = sqlx::query_scalar(exists)
        .bind(SCHEMA)
        .fetch_one(&mut *connection)
        .await?;
    if !exists {
        // Replicas that start together create the schema once.
        let create = "begin; select pg_advisory_xact_lock(1413698114, 0); create schema if not exists toolcrib; commit";
        connection.execute(create).await?;
    }
    Ok(())
}

/// Migrates the schema, under a lock that excludes other replicas.
async fn migrate(connection: &mut PgConnection, servers: &Servers) -> Result<(), Error> {
    check_version(connection, servers).await?;
    let unlimited = "set statement_timeout to 0; set idle_in_transaction_session_timeout to 0";
    let _ = connection.execute(unlimited).await;
    let migrator = Migrator::with_migrations(migrations::postgres());
    match migrator.run_direct(None, connection, false).await {
        Ok(()) => Ok(()),
        Err(error) => {
            // A newer replica may have migrated meanwhile.
            check_version(connection, servers).await?;
            Err(Error::unusable(servers.place(), migration_failure(&error)))
        }
    }
}

/// Why the schema cannot be migrated. A release never changes a migration of an earlier one.
fn migration_failure(error: &MigrateError) -> String {
    match error {
        MigrateError::VersionMismatch(version) => format!(
            "a build that was never released has made its schema (migration {version} differs): start that build, \
             or name a new database"
        ),
        MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) => {
            fault::reason(error)
        }
        other => other.to_string(),
    }
}

/// Refuses a schema that is newer than this program knows.
pub(super) async fn check_version(
    connection: &mut PgConnection,
    servers: &Servers,
) -> Result<(), Error> {
    let newest = "select coalesce(max(version), 0) from _sqlx_migrations";
    let is_new = "select to_regclass('_sqlx_migrations') is null";
    let explain = |error: sqlx::Error| Error::unusable(servers.place(), fault::reason(&error));
    if sqlx::query_scalar(is_new)
        .fetch_one(&mut *connection)
        .await
        .map_err(explain)?
    {
        return Ok(());
    }
    let found: i64 = sqlx::query_scalar(newest)
        .fetch_one(connection)
        .await
        .map_err(explain)?;
    let known = migrations::newest_version(&migrations::postgres());
    if found > known {
        return Err(Error::NewerSchema {
            place: servers.place().into(),
            found,
            known,
        });
    }
    Ok(())
}
