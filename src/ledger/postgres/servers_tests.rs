//! A URL with several servers, played with servers of which one accepts writes.

use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use sqlx::{AssertSqlSafe, Connection, PgConnection};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::address::Address;
use super::servers::Servers;
use super::test_server::TestServer;
use super::{PostgresLedger, fault};
use crate::ledger::contract::sqlite::settings;
use crate::ledger::contract::{now, row};
use crate::ledger::{Ledger, Settings};

/// A server with the database `crib`.
async fn start_server() -> Option<TestServer> {
    let server = TestServer::start()?;
    server.create_database("crib").await;
    Some(server)
}

async fn set_read_only(server: &TestServer, is_read_only: bool) {
    let mut admin = PgConnection::connect(&server.url("postgres"))
        .await
        .unwrap();
    let value = if is_read_only { "on" } else { "off" };
    for sql in [
        "set default_transaction_read_only = off".to_owned(),
        format!("alter system set default_transaction_read_only = {value}"),
        "select pg_reload_conf()".to_owned(),
    ] {
        sqlx::raw_sql(AssertSqlSafe(sql))
            .execute(&mut admin)
            .await
            .unwrap();
    }
    // Each process of the server reads the setting a little later.
    loop {
        let mut connection = PgConnection::connect(&server.url("crib")).await.unwrap();
        let sql = "select current_setting('transaction_read_only')";
        let shown: String = sqlx::query_scalar(sql)
            .fetch_one(&mut connection)
            .await
            .unwrap();
        if shown == value {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn url(ports: &[u16]) -> String {
    let hosts: Vec<String> = ports
        .iter()
        .map(|port| format!("127.0.0.1:{port}"))
        .collect();
    format!(
        "postgres://postgres@{}/crib?target_session_attrs=read-write",
        hosts.join(",")
    )
}

async fn open(ports: &[u16]) -> PostgresLedger {
    let settings = Settings {
        url: url(ports),
        ..settings()
    };
    PostgresLedger::open(&settings, Arc::new(())).await.unwrap()
}

fn closed_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

async fn count_rows(server: &TestServer) -> i64 {
    let mut connection = PgConnection::connect(&server.url("crib")).await.unwrap();
    sqlx::query_scalar("select count(*) from toolcrib.invocation")
        .fetch_one(&mut connection)
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn ledger_follows_the_server_that_accepts_writes() {
    let (Some(first), Some(second)) = (start_server().await, start_server().await) else {
        return;
    };
    // The second server has the tables, as a standby has.
    open(&[second.port]).await.close().await;
    set_read_only(&second, true).await;
    let ledger = open(&[closed_port(), second.port, first.port]).await;
    ledger
        .reserve(row("t", "a", now()), Vec::new())
        .await
        .unwrap();
    assert_eq!(count_rows(&first).await, 1);

    first.stop();
    while ledger.flush().await.is_ok() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    set_read_only(&second, false).await;
    while ledger.flush().await.is_err() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let started = row("t", "a", now());
    let id = started.id;
    ledger.reserve(started, Vec::new()).await.unwrap();
    assert_eq!(count_rows(&second).await, 1);
    // Queries use other connections than commits.
    assert!(ledger.get(id).await.unwrap().is_some());
    ledger.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reason_of_each_server_is_named() {
    let Some(server) = start_server().await else {
        return;
    };
    set_read_only(&server, true).await;
    let closed = closed_port();
    let address = Address::parse(&url(&[closed, server.port]), std::path::Path::new("")).unwrap();
    let error = Servers::new(address).connect().await.unwrap_err();
    let reason = fault::reason(&error);
    for expected in [
        format!("127.0.0.1:{closed}: the database cannot be reached: Connection refused"),
        format!("127.0.0.1:{}: the server only reads", server.port),
    ] {
        assert!(reason.contains(&expected), "{reason}");
    }
}

/// A pooler in statement mode: it refuses to begin a transaction.
async fn start_statement_pooler(server_port: u16) -> u16 {
    /// The message of the protocol with `begin`.
    const BEGIN: &[u8] = b"Q\0\0\0\x0abegin\0";
    /// An error, and that the server is ready for the next message.
    const REFUSAL: &[u8] = b"E\0\0\0\x20SERROR\0C0A000\0Mnot allowed\0\0Z\0\0\0\x05I";
    let pooler = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = pooler.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = pooler.accept().await {
            tokio::spawn(async move {
                let server = ("127.0.0.1", server_port);
                let mut server = tokio::net::TcpStream::connect(server).await.unwrap();
                let (mut sent, mut answered) = (vec![0; 1 << 16], vec![0; 1 << 16]);
                loop {
                    tokio::select! {
                        read = client.read(&mut sent) => match read {
                            Ok(read @ 1..) if &sent[..read] == BEGIN => {
                                client.write_all(REFUSAL).await.unwrap();
                            }
                            Ok(read @ 1..) => server.write_all(&sent[..read]).await.unwrap(),
                            _ => return,
                        },
                        read = server.read(&mut answered) => match read {
                            Ok(read @ 1..) => {
                                let _ = client.write_all(&answered[..read]).await;
                            }
                            _ => return,
                        },
                    }
                }
            });
        }
    });
    port
}

#[tokio::test]
async fn pooler_in_statement_mode_is_refused() {
    let Some(server) = TestServer::shared() else {
        return;
    };
    let direct = server.create_ledger_database().await;
    let pooler = start_statement_pooler(server.port).await;
    let url = direct.replace(&format!(":{}/", server.port), &format!(":{pooler}/"));
    let settings = Settings { url, ..settings() };
    let refused = PostgresLedger::open(&settings, Arc::new(())).await;
    let refused = refused.err().unwrap().to_string();
    assert!(
        refused.contains("set its pool_mode to session"),
        "{refused}"
    );
}
