//! Connects to the primary among the servers of the URL, for all connections of this process.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sqlx::postgres::PgConnectOptions;
use sqlx::{Connection as _, PgConnection};

use super::address::{Address, ServerAddress};
use super::fault::{self, ServerFailure};
use super::session::{self, CONNECT_TIMEOUT};

/// The servers of the URL, and which of them was the primary last.
pub(super) struct Servers {
    address: Address,
    primary: Mutex<Primary>,
}

/// The server that was found last.
struct Primary {
    number: usize,
    since: Instant,
}

impl Servers {
    pub(super) fn new(address: Address) -> Self {
        let primary = Primary {
            number: 0,
            since: Instant::now(),
        };
        Self {
            address,
            primary: Mutex::new(primary),
        }
    }

    /// All hosts and ports, and the database.
    pub(super) fn place(&self) -> &str {
        &self.address.place
    }

    /// Connects to the first server that works, within [`CONNECT_TIMEOUT`]. Of several servers, it
    /// takes the first that accepts writes.
    pub(super) async fn connect(&self) -> Result<PgConnection, sqlx::Error> {
        let end = Instant::now() + CONNECT_TIMEOUT;
        let mut failures = Vec::new();
        let mut others = u32::try_from(self.address.servers.len()).unwrap_or(u32::MAX);
        for (number, server) in self.address.servers.iter().enumerate() {
            // A server that does not answer leaves time for those after it.
            let share = end.saturating_duration_since(Instant::now()) / others;
            others -= 1;
            match self.connect_to(server, share).await {
                Ok(connection) => {
                    self.note(number);
                    return Ok(connection);
                }
                Err(error) => failures.push(ServerFailure {
                    place: server.place.clone(),
                    error,
                }),
            }
        }
        Err(fault::no_server_error(failures))
    }

    async fn connect_to(
        &self,
        server: &ServerAddress,
        within: Duration,
    ) -> Result<PgConnection, sqlx::Error> {
        let connecting = async {
            let mut connection = session::connect(&server.options).await?;
            if self.address.requires_primary && !session::accepts_writes(&mut connection).await? {
                let _ = connection.close().await;
                return Err(fault::read_only_error());
            }
            Ok(connection)
        };
        fault::within(within, connecting).await
    }

    fn note(&self, number: usize) {
        let mut primary = self.primary.lock();
        if primary.number != number {
            let since = Instant::now();
            *primary = Primary { number, since };
            let server = &self.address.servers[number].place;
            tracing::info!(server, "the ledger uses this server of its URL");
        }
    }

    /// How to connect to the server that was found last.
    pub(super) fn primary_options(&self) -> PgConnectOptions {
        let number = self.primary.lock().number;
        self.address.servers[number].options.clone()
    }

    /// Whether a connection of this age leads to the server that was found last.
    pub(super) fn is_current(&self, age: Duration) -> bool {
        age < self.primary.lock().since.elapsed()
    }
}
