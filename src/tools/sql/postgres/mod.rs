//! PostgreSQL. A statement is described once (`uses`, `plan`): the database says the types of its parameters and columns. What it
//! then gets are texts that it casts itself (`arguments`); what it gives is read out of its binary form (`decode`, `time`,
//! `exact`), or is text that it has made, where only it knows the type. A dropped call has its statement cancelled (`session`).

mod address;
mod arguments;
mod decode;
mod exact;
mod faults;
mod plan;
mod prepared;
mod session;
mod time;
mod uses;

pub(super) use self::address::Server;
pub(super) use self::prepared::Prepared;
use self::session::Session;
use super::pool::Pool;

/// A database and its connections.
pub(super) struct Database {
    server: Server,
    pool: Pool<Session>,
}

impl Database {
    pub(super) fn new(server: Server) -> Self {
        Self { server, pool: Pool::new() }
    }
}

#[cfg(test)]
mod tests;
