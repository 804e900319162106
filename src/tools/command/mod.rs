//! Runs tools that are programs (`kind: command`), each call as a child process.
//!
//! There is no shell, and the environment holds only declared variables. A value becomes one whole argument or goes
//! to standard input. So it needs no quoting and cannot break out. When an attempt ends, everything that it started
//! ends too.
//!
//! `config` checks the manifest keys. `argv` and `variables` encode values, and `room` bounds their size. `run` feeds
//! the program and reads its output. `output` builds the result. `start_error` explains a failed start.

mod argv;
mod config;
mod output;
mod room;
mod run;
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
use self::room::Room;
use self::run::Limits;
use self::variables::ContextVariables;
use super::process::{Mark, ProcessTree, Sweeps};
use super::template::{Template, plain_text};
use super::{Fault, Runner, Values};
use crate::call::{JsonObject, ToolContext, ToolError, ToolResult};

/// Tells a program, and all that it starts, which call it works for. The sweep also finds escaped processes by it.
const INVOCATION_VARIABLE: &str = "TOOLCRIB_INVOCATION";
/// The number of the attempt, from 1.
const ATTEMPT_VARIABLE: &str = "TOOLCRIB_ATTEMPT";

struct CommandRunner {
    /// The program as written in the manifest.
    program: String,
    /// The path of the program; `None` if a bare name was not found.
    path: Option<PathBuf>,
    argv: Argv,
    /// `None` means that standard input is the JSON object of the arguments.
    stdin: Option<Template>,
    output: Output,
    workdir: PathBuf,
    environment: BTreeMap<String, String>,
    variables: ContextVariables,
    room: Room,
    limits: Limits,
    sweeps: Sweeps,
}

impl CommandRunner {
    /// The command line of one attempt.
    fn command(&self, path: &PathBuf, values: Values<'_>) -> Command {
        let mut command = Command::new(path);
        command
            .args(self.argv.render(values))
            .current_dir(&self.workdir)
            .env_clear()
            .envs(&self.environment)
            .envs(self.variables.of(values.context))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    fn input(&self, values: Values<'_>) -> Vec<u8> {
        match &self.stdin {
            Some(template) => template.render(values, plain_text).into_bytes(),
            None => serde_json::to_vec(values.arguments).unwrap_or_default(),
        }
    }
}

#[async_trait]
impl Runner for CommandRunner {
    async fn call(&self, arguments: Arc<JsonObject>, context: ToolContext) -> Result<ToolResult, ToolError> {
        let Some(path) = &self.path else {
            return Err(
                ToolError::upstream_final(format!("cannot start {}: no such program", self.program)).before_anything()
            );
        };
        let mark = Mark::new([
            (INVOCATION_VARIABLE, context.invocation_id.to_string()),
            (ATTEMPT_VARIABLE, context.attempt.to_string()),
        ]);
        let values = Values { arguments: &arguments, context: &context.context };
        let tree = ProcessTree::spawn(&mut self.command(path, values), mark, &self.sweeps)
            .map_err(|error| self.start_error(&error, values))?;
        let run = run::run(tree, self.input(values), &self.limits, &context).await?;
        output::answer(&run, self.output, &self.limits, &context)
    }

    fn faults(&self, values: Values<'_>) -> Vec<Fault> {
        let mut faults = self.argv.faults(values);
        faults.extend(self.variables.faults(values.context));
        if faults.is_empty() {
            faults = self.room.faults(&self.argv, &self.variables, values);
        }
        faults
    }

    fn takes_fields(&self) -> bool {
        true
    }

    fn max_output(&self) -> Option<usize> {
        Some(self.limits.max_output).filter(|most| *most > config::DEFAULT_OUTPUT)
    }
}

#[cfg(test)]
mod tests;
