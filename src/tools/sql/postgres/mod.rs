//! PostgreSQL. A statement is described once (`uses`, `plan`): the database says the types of its parameters and columns. What it
//! then gets are texts that it casts itself (`arguments`); what it gives is read out of its binary form (`decode`, `time`,
//! `exact`), or is text that it has made, where only it knows the type. Around the statement stands a condition with which it
//! refuses a row that is too long (`bounded`). A dropped call has its statement cancelled, and what a call has left on a
//! connection is taken away before the next one has it (`session`).

mod address;
mod arguments;
mod bounded;
mod decode;
mod defaults;
mod exact;
mod faults;
mod plan;
mod prepared;
mod session;
mod time;
mod uses;

use tokio::sync::OnceCell;

pub(super) use self::address::Server;
pub(super) use self::defaults::Defaults;
pub(super) use self::prepared::Prepared;
use self::session::Session;
use super::faults::Finding;
use super::pool::Pool;

/// A database and its connections.
pub(super) struct Database {
    server: Server,
    pool: Pool<Session>,
    /// That it could not be reached at the start: the next tool need not wait for that too.
    missed: OnceCell<Finding>,
}

impl Database {
    pub(super) fn new(server: Server) -> Self {
        Self { server, pool: Pool::new(), missed: OnceCell::new() }
    }
}

#[cfg(test)]
mod tests;
