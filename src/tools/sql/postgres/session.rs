//! A connection to PostgreSQL, and how its statement is stopped.

use std::time::Duration;

use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions, Connection, PgConnection};
use tokio::time::{error::Elapsed, timeout};

use super::Server;

/// For connecting, TLS and password included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// For telling a server to stop a statement. It ends by itself when its time is over.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(5);

/// For putting a connection in order. Nobody waits for that but the next call.
const ORDER_TIMEOUT: Duration = Duration::from_secs(5);
/// After a statement that only reads: what it has set goes with its transaction. A rollback does not release advisory locks.
const AFTER_READ: &str = "rollback; select pg_catalog.pg_advisory_unlock_all()";
/// After one that may have changed something: what `discard all` does, except that statements stay prepared with their plans,
/// which hold nothing of a call.
const AFTER_WRITE: &str = "rollback; close all; set session authorization default; reset all; unlisten *; \
                           select pg_catalog.pg_advisory_unlock_all(); discard temp; discard sequences";

/// A connection.
pub(super) struct Session {
    pub(super) connection: PgConnection,
    cancel: Cancel,
}

/// Stops the statement of a connection that is dropped while it may be running: a server does not look whether anybody still
/// listens while it works.
struct Cancel {
    options: PgConnectOptions,
    /// The server's process.
    process: i32,
    armed: bool,
}

/// Why there is no connection.
pub(super) enum NoSession {
    Late(Elapsed),
    Database(sqlx::Error),
}

impl Session {
    pub(super) async fn open(server: &Server) -> Result<Self, NoSession> {
        let open = async {
            let mut connection = server.options.connect().await?;
            let process = sqlx::query_scalar("select pg_catalog.pg_backend_pid()")
                .persistent(false)
                .fetch_one(&mut connection)
                .await?;
            let cancel = Cancel { options: server.options.clone(), process, armed: false };
            Ok(Self { connection, cancel })
        };
        match timeout(CONNECT_TIMEOUT, open).await {
            Ok(opened) => opened.map_err(NoSession::Database),
            Err(late) => Err(NoSession::Late(late)),
        }
    }

    /// Takes away all that a call has left on the connection, its transaction first; `None`: that was not possible, and the
    /// connection is closed.
    pub(super) async fn in_order(mut self, writes: bool) -> Option<Self> {
        let sql = if writes { AFTER_WRITE } else { AFTER_READ };
        let done = timeout(ORDER_TIMEOUT, sqlx::raw_sql(sql).execute(&mut self.connection)).await;
        // What a long row has taken.
        self.connection.shrink_buffers();
        matches!(done, Ok(Ok(_))).then_some(self)
    }

    /// Whether a statement may be running.
    pub(super) fn is_busy(&self) -> bool {
        self.cancel.armed
    }

    /// From here on a statement may be running.
    pub(super) fn busy(&mut self) {
        self.cancel.armed = true;
    }

    /// Nothing runs.
    pub(super) fn idle(&mut self) {
        self.cancel.armed = false;
    }
}

impl Drop for Cancel {
    fn drop(&mut self) {
        // Without a runtime the process is at its end, and its connections with it.
        let (true, Ok(runtime)) = (self.armed, tokio::runtime::Handle::try_current()) else { return };
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
