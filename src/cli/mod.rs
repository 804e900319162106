//! The command line. Names and exit codes are a contract: 0 done, 64 bad usage or a bad manifest, 1 anything else.

mod arguments;
mod backup;
mod call;
mod check;
mod client;
mod commands;
mod failure;
mod findings;
mod import;
mod log;
mod option_variables;
mod pin;
mod report;

use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser as _;
use serde_json::Value;
use tracing_subscriber::EnvFilter;

use self::arguments::{Cli, Command};
use self::commands::{print_openapi, print_tools, serve};
use self::failure::{EXIT_USAGE, Failure};
use crate::environment::Environment;

/// Whether a program with these arguments would start other programs. Its environment should then be concealed from
/// them: see [`conceal`](crate::environment::conceal).
pub fn starts_programs(arguments: impl IntoIterator<Item = OsString>) -> bool {
    Cli::try_parse_from(arguments).is_ok_and(|cli| cli.command.starts_programs())
}

/// Runs the program with these variables and arguments. The first argument is the program's own name.
pub async fn run(arguments: impl IntoIterator<Item = OsString>, environment: Environment) -> ExitCode {
    let arguments = option_variables::add_variables(arguments.into_iter().collect(), &environment);
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            return if error.use_stderr() { ExitCode::from(EXIT_USAGE) } else { ExitCode::SUCCESS };
        }
    };
    // The log of rmcp shows whole messages with arguments and results, which our own lines never contain.
    let quiet = if cli.log.contains("rmcp") { "" } else { ",rmcp=off" };
    let filter = match EnvFilter::try_new(format!("{}{quiet}", cli.log)) {
        Ok(filter) => filter,
        Err(error) => return exit_with(&format!("--log {}: {error}", cli.log), EXIT_USAGE),
    };
    let log = match log::start(filter, cli.log_format) {
        Ok(log) => log,
        Err(error) => return exit_with(&format!("toolcrib: the log cannot be written: {error}"), 1),
    };

    // The message of a panic may contain anything that a tool was given. The log needs only its position.
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        tracing::error!(place, "panicked");
    }));
    let result = match cli.command {
        Command::Serve { manifest, options } => serve(&manifest, options, &environment, &log).await,
        Command::Check(args) => check::run(&args, &environment),
        Command::Tools { manifest, format } => print_tools(&manifest, format, &environment).await,
        Command::Call(args) => call::run(args, &environment).await,
        Command::Usage { source } => report::print_usage(source).await,
        Command::Invocations(args) => report::print_invocations(args).await,
        Command::Backup(args) => backup::run(args, &environment).await,
        Command::Pin(args) => pin::run(args, &environment).await,
        Command::Openapi { manifest } => print_openapi(manifest.as_deref(), &environment).await,
        Command::Import(command) => import::run(command),
        Command::Schema => {
            print_json(&crate::manifest::json_schema());
            Ok(())
        }
        Command::Healthcheck { server, listen, live } => client::check_health(server, listen, live).await,
    };
    log.flush().await;
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Usage(message)) => exit_with(&message, EXIT_USAGE),
        Err(Failure::Failed(message)) => exit_with(&message, 1),
        Err(Failure::Reported) => ExitCode::from(EXIT_USAGE),
        Err(Failure::NegativeResult) => ExitCode::FAILURE,
    }
}

fn exit_with(message: &str, code: u8) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "{message}");
    ExitCode::from(code)
}

/// Prints to standard error.
fn print_error(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Prints to standard output. If the reader has closed it, that is not our failure.
fn print_line(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

fn print_json(value: &Value) {
    print_line(&serde_json::to_string_pretty(value).unwrap_or_default());
}
