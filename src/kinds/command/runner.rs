//! One attempt: starts the program, feeds it and builds the result.

use std::collections::BTreeMap;
use std::io::{Error, ErrorKind};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use async_trait::async_trait;
use rustix::process::{Resource, getrlimit};
use tokio::process::Command;

use super::argv::Argv;
use super::output::{self, Output};
use super::output_file::OutputFile;
use super::run::{self, RunLimits};
use super::variables::ContextVariables;
use crate::call::json::plain_text;
use crate::call::{JsonObject, ToolContext, ToolError};
use crate::kinds::process::{Launch, OrphanReaper, ProcessTree, call_marker};
use crate::kinds::sandbox::EntrySandbox;
use crate::kinds::template::Template;
use crate::kinds::{Runner, RunnerTraits, ToolOutcome, ValueFault, Values};

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
    pub(super) sandbox: EntrySandbox,
    pub(super) orphan_reaper: OrphanReaper,
}

impl CommandRunner {
    /// The command line of one attempt.
    fn build_command(&self, launch: &mut Launch, path: &Path, values: Values<'_>) -> Command {
        let mut command = launch.command(path);
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
        let marker = call_marker(&context);
        let values = Values::for_call(&arguments, &context);
        let not_started = |reason: String| {
            let message = format!("cannot start {}: {reason}", self.program);
            ToolError::upstream_permanent(message).not_delivered()
        };
        let mut launch = self.sandbox.launch().map_err(not_started)?;
        let open_folder = |file: &OutputFile| {
            let sandbox = self.sandbox.prepare();
            file.open_folder(&self.workdir, sandbox.as_deref())
        };
        let folder = self.file.as_ref().map(open_folder).transpose();
        let folder = folder.map_err(not_started)?;
        let tree = ProcessTree::spawn(
            &mut self.build_command(&mut launch, path, values),
            marker,
            &self.orphan_reaper,
            launch,
        )
        .map_err(|error| self.start_error(&error, values))?;
        let run = run::run_program(tree, self.stdin_bytes(values), &self.limits, &context).await?;
        if let Some(result) = output::failure_result(&run, &context) {
            if let Some(reason) = self.sandbox.explain_failure(&run.stderr.summary(&context)) {
                tracing::warn!(target: "toolcrib::sandbox", invocation_id = %context.invocation_id, program = self.program, "the program failed; {reason}");
            }
            return Ok(result);
        }
        let limits = &self.limits;
        match self.file.as_ref().zip(folder) {
            Some((file, folder)) => {
                let (folder, max_bytes) = ((&*self.workdir, folder), limits.max_output);
                file.read_result(&run.stdout, values, folder, max_bytes, &context)
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

    fn sandbox(&self) -> Option<&EntrySandbox> {
        Some(&self.sandbox)
    }

    fn is_available(&self) -> bool {
        !self.sandbox.is_required() || self.sandbox.fault().is_none()
    }

    fn max_output(&self) -> Option<usize> {
        Some(self.limits.max_output).filter(|most| *most > run::DEFAULT_MAX_OUTPUT)
    }
}

/// The highest and the lowest limit in Linux, whatever the stack limit is (`bprm_stack_limits` in
/// `fs/exec.c`: 3/4 of `_STK_LIM`, and `ARG_MAX`). In between, the limit is a quarter of the stack
/// limit.
const MAX_LIMIT_BYTES: usize = 6 << 20;
const MIN_LIMIT_BYTES: usize = 128 << 10;
/// Linux also counts the pointer to each argument and variable, and its final NUL.
const BYTES_PER_ITEM: usize = size_of::<usize>() + 1;
/// Reserved for what the service and the kernel add: the variables of the call, the program's path,
/// the interpreter of a script.
const RESERVED_BYTES: usize = 8 << 10;

/// The bound for the calls of one tool.
pub(super) struct SizeLimit {
    /// The most bytes that arguments and variables may have together.
    max_bytes: usize,
    /// The bytes of the variables that are the same in each call.
    variable_bytes: usize,
}

impl SizeLimit {
    /// The bound for a program with these variables, from the service's own stack limit.
    pub(super) fn new(environment: &BTreeMap<String, String>) -> Self {
        // `None` means unlimited.
        let stack = getrlimit(Resource::Stack)
            .current
            .and_then(|bytes| usize::try_from(bytes / 4).ok());
        Self::with_max_bytes(
            stack
                .unwrap_or(MAX_LIMIT_BYTES)
                .clamp(MIN_LIMIT_BYTES, MAX_LIMIT_BYTES),
            environment,
        )
    }

    fn with_max_bytes(max_bytes: usize, environment: &BTreeMap<String, String>) -> Self {
        let variables = environment
            .iter()
            .map(|(name, value)| name.len() + 1 + value.len() + BYTES_PER_ITEM);
        Self {
            max_bytes: max_bytes.saturating_sub(RESERVED_BYTES),
            variable_bytes: variables.sum::<usize>(),
        }
    }

    /// Why a program cannot be started with these values: they are too long together. The fault
    /// names the context if the context alone is too long or is the larger part; then the caller is
    /// at fault. Otherwise it names the longest argument, for the model.
    ///
    /// `is_refused`: the system has refused the start as too long, whatever the count here says. The
    /// result is empty then if no value of the call can be the reason.
    pub(super) fn value_faults(
        &self,
        argv: &Argv,
        variables: &ContextVariables,
        values: Values<'_>,
        is_refused: bool,
    ) -> Vec<ValueFault> {
        let max_bytes = self.max_bytes;
        let bytes = argv.bytes(values, BYTES_PER_ITEM);
        let (fixed, arguments) = (bytes.fixed + self.variable_bytes, bytes.arguments);
        let context = bytes.fields + variables.total_bytes(values.context, BYTES_PER_ITEM);
        if !is_refused && fixed + context + arguments <= max_bytes {
            return Vec::new();
        }
        if context > 0 && (arguments <= context || fixed + context > max_bytes) {
            let message = format!(
                "The fields of `context` that this tool takes have {context} bytes together, but the program accepts at most {max_bytes} \
                 bytes of arguments and variables."
            );
            return vec![ValueFault::Context(message)];
        }
        let longest = argv.longest_argument(values).map(|name| {
            let message = format!(
                "`{name}` is too long: the values in the command line have {arguments} bytes together, but the program accepts at most \
                 {max_bytes} bytes of arguments and variables."
            );
            name.fault("argv", message)
        });
        longest.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::call::{Effect, JsonObject};
    use crate::kinds::BuildContext;
    use crate::kinds::command::CommandItem;

    fn faults(max_bytes: usize, arguments: &Value, context: &Value) -> Vec<ValueFault> {
        let schema = json!({"properties": {"a": {}, "b": {}}, "required": ["a", "b"]});
        let build = BuildContext {
            name: "t",
            base_dir: std::path::Path::new("."),
            input_schema: &schema,
            context_fields: &["tenant".to_owned()],
            effect: Effect::Read,
            trusted: true,
        };
        let command =
            ["x", "fixed", "{{ a }}", "{{ b }}"].map(|text| CommandItem::Text(text.to_owned()));
        let (argv, found) = Argv::parse(&command, &build);
        assert_eq!(found, []);
        let environment = BTreeMap::from([("LANG".to_owned(), "C".to_owned())]);
        let (variables, _) = ContextVariables::build(&build, &environment);
        let (arguments, context): (&JsonObject, &JsonObject) =
            (arguments.as_object().unwrap(), context.as_object().unwrap());
        SizeLimit::with_max_bytes(max_bytes, &environment).value_faults(
            &argv,
            &variables,
            Values {
                arguments,
                context,
                credentials: None,
            },
            false,
        )
    }

    #[test]
    fn fault_names_longest_argument() {
        let arguments = json!({"a": "x".repeat(100), "b": "y".repeat(1000)});
        assert_eq!(faults(RESERVED_BYTES + 1300, &arguments, &json!({})), []);
        let found = faults(RESERVED_BYTES + 1000, &arguments, &json!({}));
        assert_eq!((found.len(), found[0].pointer()), (1, "/b"));
        assert!(
            found[0].message().contains("have 1100 bytes together"),
            "{}",
            found[0].message()
        );
    }

    #[test]
    fn long_context_is_a_context_fault() {
        let arguments = json!({"a": "x", "b": "y"});
        let found = faults(
            RESERVED_BYTES + 1000,
            &arguments,
            &json!({"tenant": "t".repeat(2000)}),
        );
        assert!(
            matches!(&found[..], [ValueFault::Context(message)] if message.contains("The fields of `context`")),
            "{found:?}"
        );
        let arguments = json!({"a": "x".repeat(900), "b": "y"});
        let found = faults(
            RESERVED_BYTES + 1000,
            &arguments,
            &json!({"tenant": "t".repeat(200)}),
        );
        assert_eq!(found[0].pointer(), "/a", "the context alone would fit");
    }
}
