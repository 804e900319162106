//! The runner of a sql tool: one statement with its database.

use std::sync::Arc;

use async_trait::async_trait;

use super::{Finding, postgres, sqlite};
use crate::call::{JsonObject, ToolContext};
use crate::kinds::{Runner, RunnerTraits, ToolOutcome, Values};

/// The default `max_output`, in bytes.
pub(super) const DEFAULT_OUTPUT: usize = 256 << 10;

/// The runner of a sql tool.
pub(super) struct SqlTool {
    pub(super) statement: Prepared,
    pub(super) max_output: usize,
}

/// A statement with its database.
pub(super) enum Prepared {
    Sqlite(sqlite::Prepared),
    Postgres(Box<postgres::Prepared>),
}

impl Prepared {
    /// Checks the statement against the database, if the database can be reached now.
    pub(super) async fn probe(&self) -> Result<(), Finding> {
        match self {
            Self::Sqlite(statement) => statement.probe().await,
            Self::Postgres(statement) => statement.probe().await,
        }
    }
}

#[async_trait]
impl Runner for SqlTool {
    async fn call(&self, arguments: Arc<JsonObject>, context: ToolContext) -> ToolOutcome {
        let values = Values::for_call(&arguments, &context);
        match &self.statement {
            Prepared::Sqlite(statement) => statement.call(values, &context).await,
            Prepared::Postgres(statement) => statement.call(values, &context).await,
        }
    }

    fn traits(&self) -> RunnerTraits {
        RunnerTraits {
            takes_context_fields: true,
            ..RunnerTraits::default()
        }
    }

    fn max_output(&self) -> Option<usize> {
        Some(self.max_output).filter(|most| *most > DEFAULT_OUTPUT)
    }
}
