//! One attempt: starts the program, feeds it and builds the result.

use std::collections::BTreeMap;
use std::io::{Error, ErrorKind};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;

use async_trait::async_trait;
use tokio::process::Command;

use super::argv::Argv;
use super::output::{self, Output};
use super::output_file::OutputFile;
use super::run::{self, RunLimits};
use super::size_limit::SizeLimit;
use super::variables::ContextVariables;
use crate::call::json::plain_text;
use crate::call::{JsonObject, ToolContext, ToolError};
use crate::kinds::process::{OrphanReaper, ProcessMarker, ProcessTree};
use crate::kinds::template::Template;
use crate::kinds::{Runner, RunnerTraits, ToolOutcome, ValueFault, Values};

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
    pub(super) output: Output,
    /// The file that is the result, with [`Output::File`].
    pub(super) file: Option<OutputFile>,
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

    /// The failure of an attempt whose program did not start. If the values are too long together,
    /// the fault names the caller's context or the model's argument.
    fn start_error(&self, error: &Error, values: Values<'_>) -> ToolError {
        let faults = match error.kind() {
            ErrorKind::ArgumentListTooLong => {
                self.size_limit
                    .value_faults(&self.argv, &self.variables, values, true)
            }
            _ => Vec::new(),
        };
        if !faults.is_empty() {
            return faults.into();
        }
        let reason = match error.kind() {
            ErrorKind::NotFound if !self.workdir.is_dir() => {
                "its working folder does not exist".to_owned()
            }
            _ => error.to_string(),
        };
        let message = format!("cannot start {}: {reason}", self.program);
        match error.kind() {
            // A further attempt may start the program.
            ErrorKind::WouldBlock | ErrorKind::OutOfMemory | ErrorKind::ExecutableFileBusy => {
                ToolError::upstream(message)
            }
            _ => ToolError::upstream_permanent(message),
        }
        .not_delivered()
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
    async fn call(&self, arguments: Arc<JsonObject>, context: ToolContext) -> ToolOutcome {
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
        .map_err(|error| self.start_error(&error, values))?;
        let run = run::run_program(tree, self.stdin_bytes(values), &self.limits, &context).await?;
        if let Some(result) = output::failure_result(&run, &context) {
            return Ok(result);
        }
        let limits = &self.limits;
        match &self.file {
            Some(file) => {
                let max_bytes = limits.max_output;
                file.read_result(&run.stdout, values, &self.workdir, max_bytes, &context)
                    .await
            }
            None => output::build_result(&run, &self.output, limits, &context),
        }
    }

    fn value_faults(&self, values: Values<'_>) -> Vec<ValueFault> {
        let mut faults = self.argv.value_faults(values);
        faults.extend(self.variables.value_faults(values.context));
        if let Some(file) = &self.file {
            faults.extend(file.value_faults(values));
        }
        if faults.is_empty() {
            faults = self
                .size_limit
                .value_faults(&self.argv, &self.variables, values, false);
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
