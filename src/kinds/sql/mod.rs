//! Runs tools that are one prepared statement on SQLite or PostgreSQL (`kind: sql`). Parameters are
//! bound, never inserted into the text. The database decides what the statement may do; the service
//! does not guess that from its text.
//!
//! - `config`: reads the manifest keys;
//! - `statement`: finds the placeholders, with the tokens of `reader`;
//! - `database`: decides which tools share connections;
//! - `pool`: holds the connections;
//! - `rows`: builds the result within its bounds;
//! - `faults`: messages for failures;
//! - `runner`: runs the statement of a call;
//! - `sqlite`, `postgres`: do that on a database.

mod config;
mod database;
mod faults;
mod pool;
mod postgres;
mod reader;
mod rows;
mod sqlite;
mod statement;

pub use self::config::{Config, build};
pub use self::database::Databases;
use self::faults::Finding;
#[cfg(fuzzing)]
#[doc(hidden)]
pub use self::postgres::fuzzing;

#[cfg(test)]
mod tests;
