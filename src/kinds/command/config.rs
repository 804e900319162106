//! The manifest keys of a command tool, and the check of them against the tool's schema and this
//! machine.
//!
//! A missing program or folder is only a warning: it may exist when the tool is called. One missing
//! program should not keep the other tools from being served.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;

use super::argv::{Argv, CommandItem};
use super::output::Output;
use super::output_file::OutputFile;
use super::run::{DEFAULT_MAX_OUTPUT, RunLimits};
use super::runner::{CommandRunner, SizeLimit};
use super::variables::ContextVariables;
use crate::call::units::Size;
use crate::kinds::build_context::template_placeholder;
use crate::kinds::process::{
    ATTEMPT_VARIABLE, INVOCATION_VARIABLE, OrphanReaper, is_executable_file, which,
};
use crate::kinds::sandbox::{OwnPaths, SandboxDefaults, SandboxSetting, program_paths};
use crate::kinds::{BuildContext, BuildResult, ConfigFault};

/// The folders in which a bare program name is looked up. They are fixed, so that the service's
/// environment cannot choose the program.
const SEARCH_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// The `PATH` of a program whose `environment` has none: scripts need one to find their interpreter
/// and other programs. It is fixed for the same reason as [`SEARCH_PATH`].
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";
/// The highest `max_output`, in bytes.
const MAX_MAX_OUTPUT: u64 = 4 << 20;

/// The keys of a `kind: command` tool that no other kind has.
#[derive(Debug, Clone, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Program and arguments. An item may contain `{{ name }}`. `{when: NAME, args: [...]}` adds
    /// items only if the argument is given, `{each: NAME}` one item for each element of a list.
    /// There is no shell.
    #[schemars(extend("examples" = [["/usr/bin/wc", "-w"], ["git", "log", {"when": "since", "args": ["--since={{ since }}"]}, {"each": "paths"}]]))]
    pub command: Vec<CommandItem>,
    /// Text for standard input. Default: the arguments as a JSON object.
    #[schemars(extend("examples" = ["{{ text }}"]))]
    pub stdin: Option<String>,
    /// Format of standard output. With `{file: PATH}` the file at this path is the result;
    /// `{{ stdout }}` in the path is what the program printed.
    #[serde(default)]
    #[schemars(extend("examples" = ["text", {"file": "{{ stdout }}"}]), extend("default" = "auto"))]
    pub output: Output,
    /// Working folder, relative to the manifest. Default: the manifest's folder.
    #[schemars(extend("examples" = ["./notes"]))]
    pub workdir: Option<PathBuf>,
    /// Environment variables of the program. It inherits no other. Default `PATH`:
    /// `/usr/local/bin:/usr/bin:/bin`.
    #[serde(default)]
    #[schemars(extend("examples" = [serde_json::json!({"LANG": "C.UTF-8"})]))]
    pub environment: BTreeMap<String, String>,
    /// What the program may do. `service`: everything, except to reach the service. `true` or a map:
    /// only what is named. `none`: everything.
    #[schemars(extend("examples" = [serde_json::json!({"network": false, "write": ["./out"]})]), extend("default" = "service"))]
    pub sandbox: Option<SandboxSetting>,
    /// Longest standard output that is kept, or longest file, at most 4MiB.
    #[schemars(extend("examples" = ["64KiB"]), extend("default" = "256KiB"))]
    #[serde(default = "default_max_output")]
    pub max_output: Size,
}

fn default_max_output() -> Size {
    Size(DEFAULT_MAX_OUTPUT as u64)
}

/// Builds the runner, with its warnings.
///
/// # Errors
/// All faults of the manifest keys, warnings included.
pub fn build(
    config: Config,
    context: &BuildContext<'_>,
    sandboxes: &SandboxDefaults,
) -> BuildResult {
    let (argv, mut faults) = Argv::parse(&config.command, context);
    let program = match config.command.first() {
        Some(CommandItem::Text(program)) => program.clone(),
        _ => String::new(),
    };
    let program_path = find_program(&program, context.base_dir);
    if !program.is_empty() && !program_path.as_deref().is_some_and(is_executable_file) {
        let message = match program_path.as_deref().is_some_and(Path::is_file) {
            true => format!(
                "`{program}` is not executable, so calls will fail: run `chmod +x {program}`"
            ),
            false => format!("there is no program `{program}`: calls will fail"),
        };
        faults.push(ConfigFault::warning(&["command", "0"], message));
    }
    let stdin = config
        .stdin
        .as_deref()
        .map(|text| context.parse_template(text))
        .transpose()
        .unwrap_or_else(|message| {
            faults.push(ConfigFault::error(&["stdin"], message));
            None
        });
    if let Some(template) = &stdin {
        faults.extend(context.unknown_placeholders(template, &["stdin"]));
    }
    let mut file = match &config.output {
        Output::File(path) => OutputFile::parse(path, context)
            .map_err(|found| faults.extend(found))
            .ok(),
        Output::Auto | Output::Json | Output::Text => None,
    };
    if let Some(template) = &stdin {
        faults.extend(context.single_braces(template, &["stdin"]));
    }
    // Without `stdin:` the program is given all arguments as JSON.
    if let Some(template) = stdin
        .as_ref()
        .filter(|_| faults.iter().all(|fault| fault.warning))
    {
        let mut used = argv.parameters.clone();
        used.extend(template.parameters().map(str::to_owned));
        faults.extend(context.unused_parameters(
            &used,
            template_placeholder,
            "`command` or `stdin`",
        ));
    }
    let workdir = absolute_path(
        context.base_dir,
        config.workdir.as_deref().unwrap_or(Path::new("")),
    );
    if let Some(file) = &mut file {
        file.remember_folder(&workdir);
    }
    if !workdir.is_dir() {
        let message = format!("there is no folder {}: calls will fail", workdir.display());
        faults.push(ConfigFault::warning(&["workdir"], message));
    }
    faults.extend(
        config
            .environment
            .iter()
            .filter_map(|(name, value)| environment_fault(name, value)),
    );
    let (variables, name_faults) = ContextVariables::build(context, &config.environment);
    faults.extend(name_faults);
    if !(1..=MAX_MAX_OUTPUT).contains(&config.max_output.0) {
        faults.push(ConfigFault::error(&["max_output"], "from 1B to 4MiB"));
    }
    if faults.iter().any(|fault| !fault.warning) {
        return Err(faults);
    }
    let sandbox = sandboxes.entry(
        config.sandbox,
        context.base_dir,
        OwnPaths {
            entry: format!("tools.{}", context.name),
            workdir: workdir.clone(),
            needed: program_path
                .iter()
                .flat_map(|program| program_paths(program))
                .chain(argv.fixed_paths(&workdir))
                .collect(),
            written: file.iter().map(|_| workdir.clone()).collect(),
        },
    );
    let mut environment = config.environment;
    environment
        .entry("PATH".to_owned())
        .or_insert_with(|| DEFAULT_PATH.to_owned());
    let size_limit = SizeLimit::new(&environment);
    // What the program prints beside the file's path is no result, so it must not end the program.
    let stop_on_overflow = context.effect.may_repeat() && file.is_none();
    let runner = CommandRunner {
        program,
        program_path,
        argv,
        stdin,
        output: config.output,
        file,
        workdir,
        environment,
        variables,
        size_limit,
        limits: RunLimits {
            max_output: config.max_output.as_usize(),
            stop_on_overflow,
        },
        sandbox,
        orphan_reaper: OrphanReaper::default(),
    };
    Ok((Arc::new(runner), faults))
}

/// The program's absolute path. A bare name is looked up in [`SEARCH_PATH`]; any other path is
/// relative to the manifest's folder.
fn find_program(program: &str, base: &Path) -> Option<PathBuf> {
    if program.contains('/') {
        return Some(absolute_path(base, Path::new(program)));
    }
    which(SEARCH_PATH.as_ref(), program.as_ref())
}

/// The absolute form of `path`, relative to `base`. It stays right if the service changes its
/// working folder later.
fn absolute_path(base: &Path, path: &Path) -> PathBuf {
    let path = base.join(path);
    std::path::absolute(&path).unwrap_or(path)
}

fn environment_fault(name: &str, value: &str) -> Option<ConfigFault> {
    let message = if name.is_empty() || name.contains(['=', '\0']) {
        "the name of a variable must not be empty and must not contain `=`"
    } else if value.contains('\0') {
        "a value must not contain a NUL character"
    } else if [INVOCATION_VARIABLE, ATTEMPT_VARIABLE].contains(&name) {
        "this variable is set by the service"
    } else {
        return None;
    };
    Some(ConfigFault::error(&["environment", name], message))
}
