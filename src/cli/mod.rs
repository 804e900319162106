//! The command line. Names and exit codes are a contract: 0 done, 64 bad usage or a bad manifest, 1
//! anything else. `arguments.rs` lists the commands, and `dispatch.rs` runs them. Each command but the
//! shortest has a file or folder of its own. They share:
//! - `manifest_file.rs` and `ledger_source.rs`: which manifest and which ledger a command reads.
//! - `client.rs`: requests to a running server.
//! - `output.rs`, `table.rs`, `durations.rs`: tables for people, JSON for programs.
//! - `failure.rs`: exit codes. `log.rs`: the log. `option_variables.rs`: variables that stand for
//!   flags.

mod approvals;
mod arguments;
mod audit;
mod backup;
mod call;
mod check;
mod client;
mod dispatch;
mod durations;
mod export;
mod failure;
mod findings;
mod import;
mod init;
mod invocations;
mod key;
mod ledger_source;
mod log;
mod manifest_file;
mod migrate;
mod operate;
mod option_variables;
mod output;
mod pin;
mod sandbox;
mod serve;
mod sources;
mod table;
mod tool_tokens;
mod tools;
mod types;
mod usage;

use std::ffi::OsString;
use std::process::ExitCode;

use tokio::runtime::Runtime;
use tracing_subscriber::EnvFilter;

use self::failure::{EXIT_USAGE, Failure};
use self::output::print_note;
use crate::environment::Environment;
use crate::kinds::builtin::run_script;

/// Whether a program with these arguments would start other programs. Its environment should then
/// be concealed from them: see [`conceal`](crate::environment::conceal).
pub fn starts_programs(arguments: impl IntoIterator<Item = OsString>) -> bool {
    let parsed = option_variables::parse(
        arguments.into_iter().collect(),
        &Environment::from_process(),
    );
    parsed.is_ok_and(|cli| cli.command.starts_programs())
}

/// Runs as the process of a script, if the service has started this program for that.
pub fn run_as_script() -> Option<ExitCode> {
    let is_script = std::env::args_os().nth(1)? == run_script::WORKER_ARGUMENT;
    #[cfg(feature = "script")]
    return is_script.then(run_script::run_worker);
    #[cfg(not(feature = "script"))]
    return is_script.then_some(ExitCode::FAILURE);
}

/// Runs the program with these variables and arguments. The first argument is the program's own
/// name.
///
/// Not an `async fn`: the crate that polls a future compiles it, and everything below it. `main.rs`
/// would compile most of the program on its own, after this crate.
pub fn run(runtime: &Runtime, arguments: Vec<OsString>, environment: Environment) -> ExitCode {
    runtime.block_on(run_program(arguments, environment))
}

async fn run_program(arguments: Vec<OsString>, environment: Environment) -> ExitCode {
    let cli = match option_variables::parse(arguments, &environment) {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            return if error.use_stderr() {
                ExitCode::from(EXIT_USAGE)
            } else {
                ExitCode::SUCCESS
            };
        }
    };
    // The log of rmcp shows whole messages with arguments and results, which our own lines never
    // contain.
    let quiet = if cli.log.contains("rmcp") {
        ""
    } else {
        ",rmcp=off"
    };
    let Ok(filter) = EnvFilter::try_new(format!("{}{quiet}", cli.log)) else {
        let message =
            "write levels such as warn, or modules with levels such as toolcrib=debug,warn";
        return exit_with(
            &format!("toolcrib: --log {}: {message}", cli.log),
            EXIT_USAGE,
        );
    };
    let log = match log::start(filter, cli.log_format) {
        Ok(log) => log,
        Err(error) => {
            return exit_with(&format!("toolcrib: the log cannot be written: {error}"), 1);
        }
    };

    // The message of a panic may contain anything that a tool was given. The log needs only its
    // position.
    std::panic::set_hook(Box::new(|panic| {
        let place = panic
            .location()
            .map(ToString::to_string)
            .unwrap_or_default();
        tracing::error!(place, "panicked");
    }));
    let result = dispatch::run_command(cli.command, &environment, &log).await;
    log.flush().await;
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Usage(message)) => exit_with(&message, EXIT_USAGE),
        Err(Failure::Failed(message)) => exit_with(&message, 1),
        Err(Failure::Reported) => ExitCode::from(EXIT_USAGE),
        Err(Failure::NegativeResult) => ExitCode::FAILURE,
        Err(Failure::Exit(status)) => ExitCode::from(status),
    }
}

fn exit_with(message: &str, code: u8) -> ExitCode {
    print_note(message);
    code.into()
}
