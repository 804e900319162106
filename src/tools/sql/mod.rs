//! The `sql` kind: one prepared statement on SQLite or PostgreSQL. Its parameters are bound, never pasted into its text;
//! what it may do is enforced by the database, not guessed from words.
//!
//! `config` reads the manifest's part, `statement` finds the placeholders (`reader`: the tokens), `database` knows which
//! connections are shared, `pool` holds them, `rows` makes the answer within its bounds. `sqlite` and `postgres` run a statement.

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

/// A statement, ready to run.
struct SqlTool {
    statement: Prepared,
    max_output: usize,
}

/// A statement on its database.
enum Prepared {
    Sqlite(sqlite::Prepared),
    Postgres(Box<postgres::Prepared>),
}

impl Prepared {
    /// Holds it against the database, if that can be reached now.
    async fn probe(&self) -> Result<(), Finding> {
        match self {
            Self::Sqlite(statement) => statement.probe().await,
            Self::Postgres(statement) => statement.probe().await,
        }
    }
}

#[async_trait]
impl Runner for SqlTool {
    async fn call(&self, arguments: Arc<JsonObject>, context: ToolContext) -> Result<ToolResult, ToolError> {
        let values = Values { arguments: &arguments, context: &context.context };
        match &self.statement {
            Prepared::Sqlite(statement) => statement.call(values, &context).await,
            Prepared::Postgres(statement) => statement.call(values, &context).await,
        }
    }

    fn takes_fields(&self) -> bool {
        true
    }

    fn max_output(&self) -> Option<usize> {
        Some(self.max_output).filter(|most| *most > config::DEFAULT_OUTPUT)
    }
}

#[cfg(test)]
mod tests;
