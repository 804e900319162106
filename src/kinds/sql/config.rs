//! The manifest keys of a sql tool. They are checked against the tool's parameters, and against the
//! database if it can be reached.
//!
//! An unreachable database, a missing file or a missing table is only a warning: it may exist when
//! the tool is called. One database should not keep the tools of others from being served.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde::Deserialize;

use super::database::{Address, Databases};
use super::rows::Limits;
use super::statement::Statement;
use super::{Finding, postgres, sqlite};
use crate::call::units::Size;
use crate::call::{Effect, JsonObject, ToolContext};
use crate::kinds::{
    BuildContext, BuildResult, ConfigFault, Placeholder, Runner, RunnerTraits, ToolOutcome, Values,
};
use crate::text::suggest::{MIN_HINT_RATIO, closest_name};

/// The default `max_rows`.
const DEFAULT_ROWS: usize = 1000;
/// The highest `max_rows`.
const MAX_ROWS: usize = 100_000;
/// The highest `max_output`, in bytes.
const MAX_OUTPUT: u64 = 4 << 20;
/// How long the start of the service waits for a database. The unit tests share their machine with
/// compilers and check the statements, not this time.
const START_TIMEOUT: Duration = Duration::from_secs(if cfg!(test) { 60 } else { 3 });

/// The keys of a `kind: sql` tool that no other kind has.
#[derive(Clone, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// `sqlite://FILE`, relative to the manifest, or
    /// `postgres://USER:PASSWORD@HOST:PORT/DATABASE?sslmode=…`.
    #[schemars(extend("examples" = ["sqlite://shop.sqlite"]))]
    pub database: String,
    /// One statement. `:name` stands for the argument of that name, `:context.field` for that field
    /// of the request's context.
    #[schemars(extend("examples" = ["select name from customers where id = :id"]))]
    pub statement: String,
    /// Most rows of a result, at most 100,000. A longer result is cut, and `meta.overflow` has the
    /// counts.
    #[schemars(extend("examples" = [100]), extend("default" = 1000))]
    #[serde(default = "default_max_rows")]
    pub max_rows: usize,
    /// Longest result, in bytes of its rows as JSON, at most 4MiB. A longer result is cut.
    #[schemars(extend("examples" = ["64KiB"]), extend("default" = "256KiB"))]
    #[serde(default = "default_max_output")]
    pub max_output: Size,
}

fn default_max_rows() -> usize {
    DEFAULT_ROWS
}

fn default_max_output() -> Size {
    Size(DEFAULT_OUTPUT as u64)
}

/// Builds the runner, with its warnings.
///
/// # Errors
/// All faults of the manifest keys and of the statement.
pub fn build(config: Config, context: &BuildContext<'_>, databases: &Databases) -> BuildResult {
    let mut faults = Vec::new();
    if !(1..=MAX_ROWS).contains(&config.max_rows) {
        faults.push(ConfigFault::error(
            &["max_rows"],
            format!("from 1 to {MAX_ROWS}"),
        ));
    }
    if !(1..=MAX_OUTPUT).contains(&config.max_output.0) {
        faults.push(ConfigFault::error(&["max_output"], "from 1B to 4MiB"));
    }
    let address = databases.parse_address(&config.database, context.base_dir);
    let address = address
        .map_err(|message| faults.push(ConfigFault::error(&["database"], message)))
        .ok();
    let statement = address.as_ref().and_then(|address| {
        // If the tool has a parameter `context`, a `.x` after it belongs to the value: in
        // PostgreSQL it names a part of the value.
        let has_parameter = context.has_parameter("context");
        let is_field = |field: &str| context.declares_field(field) || !has_parameter;
        let statement = Statement::parse(&config.statement, address.dialect(), is_field);
        statement
            .map_err(|message| faults.push(ConfigFault::error(&["statement"], message)))
            .ok()
    });
    faults.extend(
        statement
            .iter()
            .flat_map(|statement| placeholder_faults(statement, context)),
    );
    let is_sound = !faults.iter().any(|fault| !fault.warning);
    let (Some(address), Some(statement), true) = (address, statement, is_sound) else {
        return Err(faults);
    };
    let limits = Limits {
        max_rows: config.max_rows,
        max_output: config.max_output.as_usize(),
    };
    let writes = context.effect != Effect::Read;
    let is_probed = databases.is_probed(&address);
    let statement = match address {
        Address::Sqlite(file) => Prepared::Sqlite(sqlite::Prepared::new(
            databases.sqlite_database(file, writes),
            &statement,
            limits,
        )),
        Address::Postgres(server) => {
            let database = databases.postgres_database(&config.database, *server);
            Prepared::Postgres(Box::new(postgres::Prepared::new(
                database, statement, writes, limits,
            )))
        }
    };
    if let Some(finding) = is_probed
        .then(|| probe_blocking(statement.probe()).err())
        .flatten()
    {
        if !finding.is_temporary {
            faults.push(ConfigFault::error(&["statement"], finding.message));
            return Err(faults);
        }
        let message = format!("{}; calls fail until this is corrected", finding.message);
        faults.push(ConfigFault::warning(&["database"], message));
    }
    Ok((
        Arc::new(SqlTool {
            statement,
            max_output: limits.max_output,
        }),
        faults,
    ))
}

/// Reports placeholders without a parameter, and parameters without a placeholder.
fn placeholder_faults(statement: &Statement, context: &BuildContext<'_>) -> Vec<ConfigFault> {
    let used = statement.placeholders();
    let unknown = used.iter().filter_map(|placeholder| {
        let reason = match &placeholder.name {
            Placeholder::Argument(name) if !context.has_parameter(name) => {
                let suggestion = closest_name(name, context.parameters(), MIN_HINT_RATIO)
                    .map(|suggestion| format!(", did you mean `:{suggestion}`?"));
                format!("the tool has no parameter `{name}`{}", suggestion.unwrap_or_default())
            }
            Placeholder::Context(field) if !context.declares_field(field) => {
                // In SQL a `-` ends the name, so the statement can never name such a field.
                let dashed = context.context_fields.iter().find(|name| name.starts_with(&format!("{field}-")));
                let reason = dashed.map_or_else(
                    || context.undeclared_field_message(field),
                    |name| {
                        format!("a statement cannot name the context field `{name}`: write it with `_` in place of `-`")
                    },
                );
                format!("`:{}`: {reason}", placeholder.name)
            }
            Placeholder::Argument(_) | Placeholder::Context(_) | Placeholder::Caller(_) => return None,
        };
        Some(ConfigFault::error(&["statement"], format!("{}: {reason}", placeholder.position)))
    });
    let names = used
        .iter()
        .filter_map(|placeholder| placeholder.name.argument());
    let names = names.map(str::to_owned).collect();
    let unused = context.unused_parameters(&names, |name| format!(":{name}"), "`statement`");
    unknown.chain(unused).collect()
}

/// Runs the probe now, on a thread with a runtime of its own. The manifest is read by code that is
/// not async and may already be inside a runtime.
fn probe_blocking(probe: impl Future<Output = Result<(), Finding>> + Send) -> Result<(), Finding> {
    let run_probe = || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let runtime = runtime.map_err(|error| {
            Finding::temporary(format!("the database was not checked: {error}"))
        })?;
        let answer = runtime.block_on(async { tokio::time::timeout(START_TIMEOUT, probe).await });
        // A file that blocks must not hold up the start.
        runtime.shutdown_background();
        answer.unwrap_or_else(|_| {
            Err(Finding::temporary(format!(
                "the database did not answer within {} seconds",
                START_TIMEOUT.as_secs()
            )))
        })
    };
    std::thread::scope(|scope| scope.spawn(run_probe).join()).unwrap_or_else(|_| {
        Err(Finding::temporary(
            "the database was not checked: the check failed",
        ))
    })
}

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
