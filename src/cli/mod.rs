//! The command line. Names and exit codes are a contract: 0 done, 64 bad usage or a bad manifest, 1 anything else.

mod call;
mod client;
mod report;

use std::collections::HashMap;
use std::ffi::OsString;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use serde_json::{Value, json};
use tracing_subscriber::EnvFilter;

use crate::app::{App, AppBuilder, Error};
use crate::formats::{self, Format};
use crate::http;
use crate::manifest::{self, Process};
use crate::tools::builtin;

/// BSD's EX_USAGE (sysexits.h).
const USAGE: u8 = 64;
/// Used when there is one in the working folder and none is named.
const MANIFEST: &str = "toolcrib.yaml";

/// Executes the tool calls of software agents: validated, limited, cached, retried and recorded.
#[derive(Parser)]
#[command(name = "toolcrib", version, max_term_width = 100)]
struct Cli {
    /// What to log, e.g. `debug` or `toolcrib=debug,warn`.
    #[arg(long, env = "TOOLCRIB_LOG", global = true, default_value = "warn,toolcrib=info")]
    log: String,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the service.
    Serve {
        #[command(flatten)]
        manifest: ManifestArg,
        /// Address to listen on; port 0 takes a free one.
        #[arg(long, env = "TOOLCRIB_LISTEN")]
        listen: Option<String>,
        /// Where the ledger is: sqlite://FILE.
        #[arg(long, env = "TOOLCRIB_LEDGER")]
        ledger: Option<String>,
        /// Listen beyond loopback although there are no callers.
        #[arg(long)]
        allow_open: bool,
    },
    /// Read a manifest and say everything that is wrong with it. Runs nothing.
    Check {
        #[command(flatten)]
        manifest: ManifestArg,
    },
    /// Print the tools that a manifest declares.
    Tools {
        #[command(flatten)]
        manifest: ManifestArg,
        /// The API whose shape to print.
        #[arg(long, value_enum, default_value_t)]
        format: Format,
    },
    /// Call one tool, in this process or on a running server, and print the answer.
    Call(call::CallArgs),
    /// Print totals per tool and caller.
    Usage {
        #[command(flatten)]
        from: report::From,
    },
    /// Print recorded calls, newest first.
    Invocations(report::InvocationArgs),
    /// Print the OpenAPI document.
    Openapi,
    /// Exit 0 when the service is ready: for images without a shell.
    Healthcheck {
        /// The server to ask.
        #[arg(long, env = "TOOLCRIB_SERVER")]
        server: Option<String>,
        /// Where it listens, when no server is named.
        #[arg(long, env = "TOOLCRIB_LISTEN", hide = true)]
        listen: Option<String>,
    },
}

#[derive(Args)]
struct ManifestArg {
    /// The manifest; toolcrib.yaml in this folder when there is one, else the built-in demo.
    #[arg(long, short, env = "TOOLCRIB_MANIFEST")]
    manifest: Option<PathBuf>,
}

impl ManifestArg {
    fn path(&self) -> Option<PathBuf> {
        let here = PathBuf::from(MANIFEST);
        self.manifest.clone().or_else(|| here.exists().then_some(here))
    }

    /// A builder with the manifest, or with the demo's tools.
    fn builder(&self) -> Result<AppBuilder, Error> {
        match self.path() {
            Some(path) => App::builder().manifest(path),
            None => Ok(App::builder().demo()),
        }
    }
}

/// Why a command ends without success.
enum Failure {
    /// What was said cannot be used: exit 64.
    Usage(String),
    /// It did not work: exit 1.
    Failed(String),
    /// It worked and the answer is no: exit 1, nothing more to say.
    No,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            Error::Manifest(_) | Error::Tool(_) => Self::Usage(error.to_string()),
            Error::Ledger(_) | Error::Listen { .. } | Error::Open(_) | Error::Signals(_) => {
                Self::Failed(format!("toolcrib: {error}"))
            }
        }
    }
}

/// Runs the program with these arguments, the first being its own name.
pub async fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            return if error.use_stderr() { ExitCode::from(USAGE) } else { ExitCode::SUCCESS };
        }
    };
    let filter = match EnvFilter::try_new(&cli.log) {
        Ok(filter) => filter,
        Err(error) => return fail(&format!("--log {}: {error}", cli.log), USAGE),
    };
    let to_person = std::io::IsTerminal::is_terminal(&std::io::stderr());
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(to_person).init();

    let done = match cli.command {
        Command::Serve { manifest, listen, ledger, allow_open } => serve(&manifest, listen, ledger, allow_open).await,
        Command::Check { manifest } => check(&manifest),
        Command::Tools { manifest, format } => tools(&manifest, format),
        Command::Call(args) => call::call(args).await,
        Command::Usage { from } => report::usage(from).await,
        Command::Invocations(args) => report::invocations(args).await,
        Command::Openapi => openapi(),
        Command::Healthcheck { server, listen } => client::healthcheck(server, listen).await,
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Usage(message)) => fail(&message, USAGE),
        Err(Failure::Failed(message)) => fail(&message, 1),
        Err(Failure::No) => ExitCode::FAILURE,
    }
}

fn fail(message: &str, code: u8) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "{message}");
    ExitCode::from(code)
}

/// Prints to standard output; a reader that has gone away is no fault of ours.
fn print(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

fn print_json(value: &Value) {
    print(&serde_json::to_string_pretty(value).unwrap_or_default());
}

async fn serve(
    manifest: &ManifestArg,
    listen: Option<String>,
    ledger: Option<String>,
    allow_open: bool,
) -> Result<(), Failure> {
    let mut builder = manifest.builder()?;
    if let Some(listen) = listen {
        builder = builder.listen(listen);
    }
    if let Some(ledger) = ledger {
        builder = builder.ledger(ledger);
    }
    if allow_open {
        builder = builder.allow_open();
    }
    let app = builder.build().await?;
    Ok(app.serve().await?)
}

fn check(manifest: &ManifestArg) -> Result<(), Failure> {
    let Some(path) = manifest.path() else {
        return Err(Failure::Usage(format!(
            "there is no manifest to check: name one with --manifest, or write {MANIFEST}"
        )));
    };
    let found = manifest::load(&path, &Process, &HashMap::new());
    match found {
        Ok(manifest) => {
            for warning in &manifest.warnings {
                print(&warning.to_string());
            }
            for tool in &manifest.tools {
                for var in &tool.definition.env {
                    let state = if tool.settings.env.contains_key(&var.name) { "set" } else { "not set, optional" };
                    print(&format!("{}: environment variable {}: {state}", tool.name(), var.name));
                }
            }
            let (tools, callers) = (manifest.tools.len(), manifest.callers.len());
            let warnings = manifest.warnings.len();
            print(&format!("{}: ok: {tools} tools, {callers} callers, {warnings} warnings", path.display()));
            Ok(())
        }
        Err(findings) => Err(Error::Manifest(findings).into()),
    }
}

fn tools(manifest: &ManifestArg, format: Format) -> Result<(), Failure> {
    let tools = match manifest.path() {
        Some(path) => manifest::load(&path, &Process, &HashMap::new()).map_err(Error::Manifest)?.tools,
        None => builtin::demo(),
    };
    let mut tools = tools;
    tools.sort_by(|a, b| a.name().cmp(b.name()));
    print_json(&match format {
        Format::Native => {
            let views: Vec<_> = tools.iter().map(http::ToolView::of_tool).collect();
            json!({"tools": views, "next_cursor": null})
        }
        other => {
            let usable = tools.iter().filter(|tool| tool.policy.enabled).map(|tool| &tool.definition);
            formats::render(other, usable)
        }
    });
    Ok(())
}

fn openapi() -> Result<(), Failure> {
    let text = http::openapi().to_pretty_json();
    print(&text.map_err(|error| Failure::Failed(error.to_string()))?);
    Ok(())
}
