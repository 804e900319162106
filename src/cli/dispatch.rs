//! Runs the command that the arguments name, and the shortest commands themselves.

use std::path::Path;

use clap::CommandFactory as _;
use clap_complete::Shell;

use super::arguments::{Cli, Command};
use super::output::{print_json, print_line};
use super::tools::{fail_on_faults, log_progress};
use super::{
    Failure, approvals, audit, backup, call, check, client, export, import, init, invocations, key,
    migrate, operate, pin, sandbox, serve, sources, tools, types, usage,
};
use crate::app::{self, DeclaredTools};
use crate::environment::Environment;
use crate::http;
use crate::log::LogWriter;

pub(super) async fn run_command(
    command: Command,
    environment: &Environment,
    log: &LogWriter,
) -> Result<(), Failure> {
    match command {
        Command::Init(args) => init::run(&args)?,
        Command::Serve(args) => serve::run(args, environment, log).await?,
        Command::Check(args) => check::run(&args, environment).await?,
        Command::Tools(args) => tools::run(args, environment).await?,
        Command::Types(args) => types::run(args, environment).await?,
        Command::Call(args) => call::run(args, environment).await?,
        Command::Usage(args) => usage::run(args, environment).await?,
        Command::Invocations(args) => invocations::run(args, environment).await?,
        Command::Export(args) => export::run(args, environment).await?,
        Command::Sources(args) => sources::run(args, environment).await?,
        Command::Approvals(command) => approvals::run(command, environment).await?,
        Command::Audit(args) => audit::run(args, environment).await?,
        Command::Cancel(args) => operate::cancel(args, environment).await?,
        Command::Enable(args) => operate::switch(args, true, environment).await?,
        Command::Disable(args) => operate::switch(args, false, environment).await?,
        Command::Purge(args) => operate::purge(args, environment).await?,
        Command::Key(command) => key::run(command)?,
        Command::Pin(args) => pin::run(args, environment).await?,
        Command::Sandbox(args) => sandbox::run(args, environment).await?,
        Command::Backup(args) => backup::run(args, environment).await?,
        Command::Migrate(args) => migrate::run(args, environment).await?,
        Command::Openapi { manifest } => print_openapi(manifest.as_deref(), environment).await?,
        Command::Import(command) => import::run(command, environment).await?,
        Command::Schema => print_json(&crate::manifest::json_schema()),
        Command::Completions { shell } => print_script(shell),
        Command::Healthcheck {
            server,
            listen,
            live,
        } => client::check_health(server, listen, live).await?,
    }
    Ok(())
}

/// Prints the script for this shell.
fn print_script(shell: Shell) {
    // The generator panics when its output cannot be written, as when the reader has closed a pipe.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "toolcrib", &mut script);
    print_line(String::from_utf8_lossy(&script).trim_end());
}

/// Prints the document of the fixed routes, or with a manifest also of its tools.
async fn print_openapi(manifest: Option<&Path>, environment: &Environment) -> Result<(), Failure> {
    let Some(path) = manifest else {
        print_json(&http::openapi_with_tools([]));
        return Ok(());
    };
    let DeclaredTools { tools, faults, .. } =
        app::load_declared(path, environment, log_progress).await?;
    let usable = tools
        .iter()
        .filter(|tool| tool.policy.enabled)
        .map(|tool| (&tool.definition, tool.policy.effect));
    print_json(&http::openapi_with_tools(usable));
    fail_on_faults(faults)
}
