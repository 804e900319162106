//! The arguments of the command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use super::log::LogFormat;
use super::{backup, call, check, import, pin, report};
use crate::app::{App, AppBuilder, Error};
use crate::environment::Environment;
use crate::formats::Format;

/// The default manifest, if it exists in the working folder.
pub(super) const DEFAULT_MANIFEST: &str = "toolcrib.yaml";

/// Executes the tool calls of software agents: validated, limited, cached, retried and recorded.
#[derive(Parser)]
#[command(name = "toolcrib", version, max_term_width = 100)]
pub(super) struct Cli {
    /// What to log, e.g. `debug` or `toolcrib=debug,warn`.
    // The log of rmcp would show messages of servers and clients, with secrets in them. Important events are logged
    // by this crate.
    #[arg(long, env = "TOOLCRIB_LOG", global = true, default_value = "warn,toolcrib=info,rmcp=off")]
    pub(super) log: String,
    /// Format of the log. By default, text on a terminal and JSON elsewhere.
    #[arg(long, env = "TOOLCRIB_LOG_FORMAT", global = true, value_enum, default_value_t)]
    pub(super) log_format: LogFormat,
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Subcommand)]
pub(super) enum Command {
    /// Run the service.
    Serve {
        #[command(flatten)]
        manifest: ManifestArg,
        #[command(flatten)]
        options: ServeArgs,
    },
    /// Check a manifest and print its errors. Runs nothing.
    #[command(after_long_help = check::rules_help())]
    Check(check::CheckArgs),
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
        source: report::LedgerSource,
    },
    /// Print recorded calls, newest first.
    Invocations(report::InvocationArgs),
    /// Pin the current tools of MCP servers in a file beside the manifest. A tool that changes later is quarantined.
    Pin(pin::PinArgs),
    /// Copy the ledger to a new file, while the service runs or not.
    Backup(backup::BackupArgs),
    /// Print the OpenAPI document of the fixed routes, or with a manifest also of its tools.
    Openapi {
        /// The manifest whose tools are included.
        #[arg(long, short)]
        manifest: Option<PathBuf>,
    },
    /// Print a manifest made from another format.
    #[command(subcommand)]
    Import(import::ImportCommand),
    /// Print the JSON Schema of the manifest, for editors.
    Schema,
    /// Exit 0 when the service is ready: for images without a shell.
    Healthcheck {
        /// The server to check.
        #[arg(long, env = "TOOLCRIB_SERVER")]
        server: Option<String>,
        /// The address of the server, if --server is not given.
        #[arg(long, env = "TOOLCRIB_LISTEN", hide = true)]
        listen: Option<String>,
        /// Check only that the server responds, in any state of its ledger. If it does not, a restart may help.
        #[arg(long)]
        live: bool,
    },
}

impl Command {
    /// Whether the command may start programs: tools, or sources of tools.
    pub(super) fn starts_programs(&self) -> bool {
        match self {
            Self::Serve { .. } | Self::Tools { .. } | Self::Pin(_) => true,
            Self::Call(args) => args.runs_in_process(),
            Self::Openapi { manifest } => manifest.is_some(),
            Self::Check(_)
            | Self::Usage { .. }
            | Self::Invocations(_)
            | Self::Backup(_)
            | Self::Import(_)
            | Self::Schema
            | Self::Healthcheck { .. } => false,
        }
    }
}

#[derive(Args)]
pub(super) struct ServeArgs {
    /// Address to listen on. Port 0 selects a free port.
    #[arg(long, env = "TOOLCRIB_LISTEN")]
    pub(super) listen: Option<String>,
    /// Serve one MCP client on standard input and output, and open no port.
    #[arg(long)]
    pub(super) stdio: bool,
    /// The ledger: sqlite://FILE.
    #[arg(long, env = "TOOLCRIB_LEDGER")]
    pub(super) ledger: Option<String>,
    /// Start although the ledger has lost acknowledged commits.
    #[arg(long)]
    pub(super) accept_loss: bool,
    /// Listen beyond loopback although there are no callers.
    #[arg(long)]
    pub(super) allow_open: bool,
}

impl ServeArgs {
    /// Whether an address was given to a service that does not listen. An address in the environment does not count,
    /// because it is not meant for this start alone.
    pub(super) fn has_unused_address(&self, environment: &Environment) -> bool {
        let variable = environment.get_text("TOOLCRIB_LISTEN");
        self.stdio && (self.allow_open || self.listen.is_some() && self.listen.as_deref() != variable)
    }
}

#[derive(Args)]
pub(super) struct ManifestArg {
    /// The manifest. Default: toolcrib.yaml in this folder if it exists, else the built-in demo.
    #[arg(long, short, env = "TOOLCRIB_MANIFEST")]
    pub(super) manifest: Option<PathBuf>,
}

impl ManifestArg {
    pub(super) fn path(&self) -> Option<PathBuf> {
        let here = PathBuf::from(DEFAULT_MANIFEST);
        self.manifest.clone().or_else(|| here.exists().then_some(here))
    }

    /// A builder with the manifest, or with the tools of the demo.
    pub(super) fn app_builder(&self, environment: &Environment) -> Result<AppBuilder, Error> {
        let builder = App::builder().environment(environment.clone());
        match self.path() {
            Some(path) => builder.manifest_only().manifest(path),
            None => Ok(builder.demo()),
        }
    }
}
