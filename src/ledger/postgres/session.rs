//! Connects to one server, with the settings that every session has.

use std::time::Duration;

use sqlx::postgres::PgConnectOptions;
use sqlx::{Connection, Executor, PgConnection, Row as _};

/// How long it may take to find a server and to connect to it.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Number of connections for queries and rare changes.
pub(super) const POOL_CONNECTIONS: u32 = 4;
/// Number of connections that a replica may need: those of the pool, one that listens, and one for
/// commits.
pub(super) const CONNECTIONS: u32 = POOL_CONNECTIONS + 2;
/// Session of every connection. An acknowledged commit must survive a crash of the server, and with
/// `synchronous_standby_names` the loss of the server.
pub(super) const SESSION: &str = "set search_path to toolcrib; set client_min_messages to error; set statement_timeout to '10s'; \
    set idle_in_transaction_session_timeout to '10s'; \
    select set_config('synchronous_commit', 'on', false) where current_setting('synchronous_commit') not in ('on', 'remote_apply')";

/// Connects to one server.
pub(super) async fn connect(options: &PgConnectOptions) -> Result<PgConnection, sqlx::Error> {
    let mut connection = PgConnection::connect_with(options).await?;
    connection.execute(SESSION).await?;
    Ok(connection)
}

/// Whether the server takes changes. A standby does not.
pub(super) async fn accepts_writes(connection: &mut PgConnection) -> Result<bool, sqlx::Error> {
    let sql =
        "select not pg_is_in_recovery() and not current_setting('transaction_read_only')::boolean";
    // Without a prepared statement, which a pooler in transaction mode mixes up.
    connection.fetch_one(sql).await?.try_get(0)
}
