//! Runs the command that the arguments name.

use super::arguments::Command;
use super::output::print_json;
use super::{
    Failure, approvals, backup, call, check, client, completions, export, import, init,
    invocations, key, migrate, openapi, operate, pin, serve, sources, tools, usage,
};
use crate::environment::Environment;
use crate::log::LogWriter;

pub(super) async fn run_command(
    command: Command,
    environment: &Environment,
    log: &LogWriter,
) -> Result<(), Failure> {
    match command {
        Command::Init => init::run()?,
        Command::Serve(args) => serve::run(args, environment, log).await?,
        Command::Check(args) => check::run(&args, environment).await?,
        Command::Tools(args) => tools::run(args, environment).await?,
        Command::Call(args) => call::run(args, environment).await?,
        Command::Usage(args) => usage::run(args, environment).await?,
        Command::Invocations(args) => invocations::run(args, environment).await?,
        Command::Export(args) => export::run(args, environment).await?,
        Command::Sources(args) => sources::run(args, environment).await?,
        Command::Approvals(command) => approvals::run(command, environment).await?,
        Command::Cancel(args) => operate::cancel(args, environment).await?,
        Command::Enable(args) => operate::switch(args, true, environment).await?,
        Command::Disable(args) => operate::switch(args, false, environment).await?,
        Command::Purge(args) => operate::purge(args, environment).await?,
        Command::Key(command) => key::run(command)?,
        Command::Pin(args) => pin::run(args, environment).await?,
        Command::Backup(args) => backup::run(args, environment).await?,
        Command::Migrate(args) => migrate::run(args, environment).await?,
        Command::Openapi { manifest } => openapi::run(manifest.as_deref(), environment).await?,
        Command::Import(command) => import::run(command, environment).await?,
        Command::Schema => print_json(&crate::manifest::json_schema()),
        Command::Completions { shell } => completions::print_script(shell),
        Command::Healthcheck {
            server,
            listen,
            live,
        } => client::check_health(server, listen, live).await?,
    }
    Ok(())
}
