//! A connection to PostgreSQL, and the cancellation of its statement.

use std::time::Duration;

use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, PgConnection};
use tokio::time::timeout;

use super::ServerAddress;

/// The limit for connecting, TLS and authentication included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The limit for a cancel request. If it fails, the statement ends at its own time limit.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(5);

/// The limit for resetting a connection. Only the next call waits for the reset.
const RESET_TIMEOUT: Duration = Duration::from_secs(5);
/// The reset after a reading statement. Its settings end with its transaction, but a rollback does
/// not release advisory locks.
const AFTER_READ: &str = "rollback; select pg_catalog.pg_advisory_unlock_all()";
/// The end of the reset after a reading statement, if the next transaction has begun.
const RELEASE_LOCKS: &str = "select pg_catalog.pg_advisory_unlock_all();";
/// The reset after a statement that may have changed something. It does what `discard all` does,
/// except that prepared statements stay. Their plans hold no data of a call.
const AFTER_WRITE: &str = "rollback; close all; set session authorization default; reset all; unlisten *; \
                           select pg_catalog.pg_advisory_unlock_all(); discard temp; discard sequences";

/// A connection with its cancellation.
pub(super) struct Session {
    pub(super) connection: PgConnection,
    cancel: CancelOnDrop,
    /// Whether what a reading call has left is still there.
    is_unreset: bool,
}

/// Cancels the statement of a connection that is dropped while the statement may be running.
/// Otherwise a server works on: it does not notice during a statement that the client has
/// disconnected.
struct CancelOnDrop {
    options: PgConnectOptions,
    /// The id of the server process that serves the connection.
    process: i32,
    armed: bool,
}

impl Session {
    /// Opens a connection. The error after [`CONNECT_TIMEOUT`] is that of a pool.
    pub(super) async fn open(server: &ServerAddress) -> Result<Self, sqlx::Error> {
        let open = async {
            let mut connection = server.options.connect().await?;
            let process = sqlx::query_scalar("select pg_catalog.pg_backend_pid()")
                .persistent(false)
                .fetch_one(&mut connection)
                .await?;
            let cancel = CancelOnDrop {
                options: server.options.clone(),
                process,
                armed: false,
            };
            Ok(Self {
                connection,
                cancel,
                is_unreset: false,
            })
        };
        let opened = timeout(CONNECT_TIMEOUT, open).await;
        opened.unwrap_or(Err(sqlx::Error::PoolTimedOut))
    }

    /// Begins a transaction, in which a statement may take `timeout_ms` milliseconds. `mode` is
    /// `read only` or `read write`. This first removes what the last call has left.
    pub(super) async fn begin(&mut self, mode: &str, timeout_ms: i64) -> Result<(), sqlx::Error> {
        // All of it is one message, and so one round trip. The transaction has to begin before the
        // first query, which would fix its mode.
        let (rollback, release) = if self.is_unreset {
            ("rollback; ", RELEASE_LOCKS)
        } else {
            ("", "")
        };
        let sql =
            format!("{rollback}begin {mode}; {release} set local statement_timeout = {timeout_ms}");
        sqlx::raw_sql(AssertSqlSafe(sql))
            .execute(&mut self.connection)
            .await?;
        self.is_unreset = false;
        Ok(())
    }

    /// Marks that the transaction of a reading call is still open. `begin` or `reset` ends it.
    pub(super) fn mark_unreset(&mut self) {
        // Frees the memory that a long row has used.
        self.connection.shrink_buffers();
        self.is_unreset = true;
    }

    /// Resets the connection: ends the transaction and removes what the call has left. `None` if
    /// that failed; the connection is then closed.
    pub(super) async fn reset(mut self, writes: bool) -> Option<Self> {
        let sql = if writes { AFTER_WRITE } else { AFTER_READ };
        let result = timeout(
            RESET_TIMEOUT,
            sqlx::raw_sql(sql).execute(&mut self.connection),
        )
        .await;
        // Frees the memory that a long row has used.
        self.connection.shrink_buffers();
        self.is_unreset = false;
        matches!(result, Ok(Ok(_))).then_some(self)
    }

    /// Whether a statement may be running.
    pub(super) fn is_busy(&self) -> bool {
        self.cancel.armed
    }

    /// Marks that a statement may be running from now on: a drop cancels it.
    pub(super) fn mark_busy(&mut self) {
        self.cancel.armed = true;
    }

    /// Marks that no statement is running.
    pub(super) fn mark_idle(&mut self) {
        self.cancel.armed = false;
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        // Without a runtime the service is ending, and its connections with it.
        let (true, Ok(runtime)) = (self.armed, tokio::runtime::Handle::try_current()) else {
            return;
        };
        let (options, process) = (self.options.clone(), self.process);
        runtime.spawn(async move {
            let cancel = async {
                let mut connection = options.connect().await?;
                let cancel = sqlx::query("select pg_catalog.pg_cancel_backend($1)").bind(process);
                cancel.persistent(false).execute(&mut connection).await?;
                connection.close().await
            };
            if !matches!(timeout(CANCEL_TIMEOUT, cancel).await, Ok(Ok(()))) {
                tracing::warn!("a statement of a sql tool could not be cancelled; its own time limit will end it");
            }
        });
    }
}
