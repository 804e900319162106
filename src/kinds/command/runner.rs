//! One attempt: starts the program, feeds it and builds the result.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;

use async_trait::async_trait;
use tokio::process::Command;

use super::argv::Argv;
use super::output::{self, OutputFormat};
use super::run::{self, RunLimits};
use super::size_limit::SizeLimit;
use super::variables::ContextVariables;
use crate::call::json::plain_text;
use crate::call::{JsonObject, ToolContext, ToolError, ToolResult};
use crate::kinds::process::{OrphanReaper, ProcessMarker, ProcessTree};
use crate::kinds::template::Template;
use crate::kinds::{Runner, RunnerTraits, ValueFault, Values};

/// Tells a program, and all that it starts, which call it works for. The orphan reaper also finds
/// escaped processes by it.
pub(super) const INVOCATION_VARIABLE: &str = "TOOLCRIB_INVOCATION";
/// The number of the attempt, from 1.
pub(super) const ATTEMPT_VARIABLE: &str = "TOOLCRIB_ATTEMPT";

/// The parts of a `command` tool.
pub(super) struct CommandRunner {
    /// The program as written in the manifest.
    pub(super) program: String,
    /// The path of the program; `None` if a bare name was not found.
    pub(super) program_path: Option<PathBuf>,
    pub(super) argv: Argv,
    /// `None` means that standard input is the JSON object of the arguments.
    pub(super) stdin: Option<Template>,
    pub(super) output: OutputFormat,
    pub(super) workdir: PathBuf,
    pub(super) environment: BTreeMap<String, String>,
    pub(super) variables: ContextVariables,
    pub(super) size_limit: SizeLimit,
    pub(super) limits: RunLimits,
    pub(super) orphan_reaper: OrphanReaper,
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
    async fn call(
        &self,
        arguments: Arc<JsonObject>,
        context: ToolContext,
    ) -> Result<ToolResult, ToolError> {
        let Some(path) = &self.program_path else {
            return Err(ToolError::upstream_permanent(format!(
                "cannot start {}: no such program",
                self.program
            ))
            .not_delivered());
        };
        let marker = ProcessMarker::new([
            (INVOCATION_VARIABLE, context.invocation_id.to_string()),
            (ATTEMPT_VARIABLE, context.attempt.to_string()),
        ]);
        let values = Values::for_call(&arguments, &context);
        let tree = ProcessTree::spawn(
            &mut self.build_command(path, values),
            marker,
            &self.orphan_reaper,
        )
        .map_err(|error| self.explain_start_error(&error, values))?;
        let run = run::run_program(tree, self.stdin_bytes(values), &self.limits, &context).await?;
        if let Some(result) = output::failure_result(&run, &context) {
            return Ok(result);
        }
        match &self.output {
            OutputFormat::File(file) => {
                file.read_result(
                    &run.stdout,
                    values,
                    &self.workdir,
                    self.limits.max_output,
                    &context,
                )
                .await
            }
            format => output::build_result(&run, format, &self.limits, &context),
        }
    }

    fn value_faults(&self, values: Values<'_>) -> Vec<ValueFault> {
        let mut faults = self.argv.value_faults(values);
        faults.extend(self.variables.value_faults(values.context));
        if let OutputFormat::File(file) = &self.output {
            faults.extend(file.value_faults(values));
        }
        if faults.is_empty() {
            faults = self
                .size_limit
                .value_faults(&self.argv, &self.variables, values);
        }
        faults
    }

    fn traits(&self) -> RunnerTraits {
        RunnerTraits {
            takes_context_fields: true,
            ..RunnerTraits::default()
        }
    }

    fn max_output(&self) -> Option<usize> {
        Some(self.limits.max_output).filter(|most| *most > run::DEFAULT_MAX_OUTPUT)
    }
}
