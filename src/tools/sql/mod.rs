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
//! - `sqlite`, `postgres`: run a statement.

mod config;
mod database;
mod faults;
mod pool;
mod postgres;
mod reader;
mod rows;
mod sqlite;
mod statement;

use std::sync::Arc;

use async_trait::async_trait;

pub use self::config::{Config, build};
pub use self::database::Databases;
use self::faults::Finding;
use super::{Runner, Values};
use crate::call::{JsonObject, ToolContext, ToolError, ToolResult};

/// The runner of a sql tool.
struct SqlTool {
    statement: Prepared,
    max_output: usize,
}

/// A statement with its database.
enum Prepared {
    Sqlite(sqlite::Prepared),
    Postgres(Box<postgres::Prepared>),
}

impl Prepared {
    /// Checks the statement against the database, if the database can be reached now.
    async fn probe(&self) -> Result<(), Finding> {
        match self {
            Self::Sqlite(statement) => statement.probe().await,
            Self::Postgres(statement) => statement.probe().await,
        }
    }
}

#[async_trait]
impl Runner for SqlTool {
    async fn call(
        &self,
        arguments: Arc<JsonObject>,
        context: ToolContext,
    ) -> Result<ToolResult, ToolError> {
        let values = Values::for_call(&arguments, &context);
        match &self.statement {
            Prepared::Sqlite(statement) => statement.call(values, &context).await,
            Prepared::Postgres(statement) => statement.call(values, &context).await,
        }
    }

    fn takes_context_fields(&self) -> bool {
        true
    }

    fn max_output(&self) -> Option<usize> {
        Some(self.max_output).filter(|most| *most > config::DEFAULT_OUTPUT)
    }
}

#[cfg(test)]
mod tests;
