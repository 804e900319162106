//! Runs tools that are programs (`kind: command`), each call as a child process.
//!
//! There is no shell, and the environment holds only declared variables. A value stays within one argument or goes
//! to standard input. So it needs no quoting and cannot break out. When an attempt ends, everything that it started
//! ends too.
//!
//! `config` checks the manifest keys. `items` are the items of the command line in the manifest; `argv`, `item_text` and
//! `variables` encode values, and `size_limit` bounds their size. `run` feeds the program and reads its output. `output`
//! and `output_file` build the result. `start_error` explains a failed start.

mod argv;
mod config;
mod dash;
mod item_text;
mod items;
mod output;
mod output_file;
mod run;
mod size_limit;
mod start_error;
mod variables;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;

use async_trait::async_trait;
use tokio::process::Command;

use self::argv::Argv;
pub use self::config::{Config, Output, build};
pub use self::items::{CommandItem, EachItem, WhenItem};
use self::output::OutputFormat;
use self::run::RunLimits;
use self::size_limit::SizeLimit;
use self::variables::ContextVariables;
use super::process::{OrphanReaper, ProcessMarker, ProcessTree};
use super::template::Template;
use super::{Runner, ValueFault, Values};
use crate::call::json::plain_text;
use crate::call::{JsonObject, ToolContext, ToolError, ToolResult};

/// Tells a program, and all that it starts, which call it works for. The orphan reaper also finds escaped processes by it.
const INVOCATION_VARIABLE: &str = "TOOLCRIB_INVOCATION";
/// The number of the attempt, from 1.
const ATTEMPT_VARIABLE: &str = "TOOLCRIB_ATTEMPT";

struct CommandRunner {
    /// The program as written in the manifest.
    program: String,
    /// The path of the program; `None` if a bare name was not found.
    program_path: Option<PathBuf>,
    argv: Argv,
    /// `None` means that standard input is the JSON object of the arguments.
    stdin: Option<Template>,
    output: OutputFormat,
    workdir: PathBuf,
    environment: BTreeMap<String, String>,
    variables: ContextVariables,
    size_limit: SizeLimit,
    limits: RunLimits,
    orphan_reaper: OrphanReaper,
}

impl CommandRunner {
    /// The command line of one attempt.
    fn build_command(&self, path: &PathBuf, values: Values<'_>) -> Command {
        let mut command = Command::new(path);
        command
            .args(self.argv.render(values))
            .current_dir(&self.workdir)
            .env_clear()
            .envs(&self.environment)
            .envs(self.variables.for_call(values.context))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    fn stdin_bytes(&self, values: Values<'_>) -> Vec<u8> {
        match &self.stdin {
            Some(template) => template.render(values, plain_text).into_bytes(),
            None => serde_json::to_vec(values.arguments).unwrap_or_default(),
        }
    }
}

#[async_trait]
impl Runner for CommandRunner {
    async fn call(&self, arguments: Arc<JsonObject>, context: ToolContext) -> Result<ToolResult, ToolError> {
        let Some(path) = &self.program_path else {
            return Err(ToolError::upstream_permanent(format!("cannot start {}: no such program", self.program))
                .not_delivered());
        };
        let marker = ProcessMarker::new([
            (INVOCATION_VARIABLE, context.invocation_id.to_string()),
            (ATTEMPT_VARIABLE, context.attempt.to_string()),
        ]);
        let values = Values::for_call(&arguments, &context);
        let tree = ProcessTree::spawn(&mut self.build_command(path, values), marker, &self.orphan_reaper)
            .map_err(|error| self.explain_start_error(&error, values))?;
        let run = run::run_program(tree, self.stdin_bytes(values), &self.limits, &context).await?;
        if let Some(result) = output::failure_result(&run, &context) {
            return Ok(result);
        }
        match &self.output {
            OutputFormat::File(file) => {
                file.read_result(&run.stdout, values, &self.workdir, self.limits.max_output, &context).await
            }
            format => output::build_result(&run, format, &self.limits, &context),
        }
    }

    fn value_faults(&self, values: Values<'_>) -> Vec<ValueFault> {
        let mut faults = self.argv.value_faults(values);
        faults.extend(self.variables.value_faults(values.context));
        if faults.is_empty() {
            faults = self.size_limit.value_faults(&self.argv, &self.variables, values);
        }
        faults
    }

    fn takes_context_fields(&self) -> bool {
        true
    }

    fn max_output(&self) -> Option<usize> {
        Some(self.limits.max_output).filter(|most| *most > config::DEFAULT_MAX_OUTPUT)
    }
}

#[cfg(test)]
mod tests;
