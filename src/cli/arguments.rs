//! The commands of the command line. Each has its arguments in its own file.

use std::path::PathBuf;

use clap::{Parser, Subcommand};

use super::log::LogFormat;
use super::{
    approvals, audit, backup, call, check, export, import, init, invocations, key, migrate,
    operate, pin, sandbox, serve, sources, tools, types, usage,
};

/// Executes the tool calls of software agents: validated, limited, cached, retried and recorded.
#[derive(Parser)]
#[command(name = "toolcrib", version, max_term_width = 100)]
pub(super) struct Cli {
    /// What to log, e.g. `debug` or `toolcrib=debug,warn`.
    // The log of rmcp would show messages of servers and clients, with secrets in them. Important
    // events are logged by this crate.
    #[arg(
        long,
        env = "TOOLCRIB_LOG",
        global = true,
        default_value = "warn,toolcrib=info,rmcp=off"
    )]
    pub(super) log: String,
    /// Format of the log. By default, text on a terminal and JSON elsewhere.
    #[arg(
        long,
        env = "TOOLCRIB_LOG_FORMAT",
        global = true,
        value_enum,
        default_value_t
    )]
    pub(super) log_format: LogFormat,
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Subcommand)]
pub(super) enum Command {
    /// Write a first manifest, toolcrib.yaml, in this folder.
    Init(init::InitArgs),
    /// Run the service.
    Serve(serve::ServeArgs),
    /// Check a manifest and print its errors. Runs nothing, except with --live.
    #[command(after_long_help = check::rules_help())]
    Check(check::CheckArgs),
    /// Print the tools that a manifest declares.
    Tools(tools::ToolsArgs),
    /// Print types of all tools, for callers in TypeScript or Python.
    Types(types::TypesArgs),
    /// Call one tool, in this process or on a running server, and print the answer.
    Call(call::CallArgs),
    /// Print totals per tool and caller.
    #[command(mut_arg("ledger", |ledger| ledger.conflicts_with("server")))]
    Usage(usage::UsageArgs),
    /// Print recorded calls, newest first.
    #[command(mut_arg("ledger", |ledger| ledger.conflicts_with("server")))]
    Invocations(invocations::InvocationArgs),
    /// Write recorded calls, oldest first, as JSON lines or CSV.
    #[command(mut_arg("ledger", |ledger| ledger.conflicts_with("server")))]
    Export(export::ExportArgs),
    /// Print the state of the sources of a running server: modules, MCP servers, OpenAPI documents.
    Sources(sources::SourcesArgs),
    /// List, approve or deny calls that wait for a person, on a running server.
    #[command(subcommand)]
    Approvals(approvals::ApprovalsCommand),
    /// Print what admins and the operator have done, newest first, or verify that record.
    #[command(mut_arg("ledger", |ledger| ledger.conflicts_with("server")))]
    #[command(mut_args(|arg| { let is_shared = audit::SHARED_OPTIONS.contains(&arg.get_id().as_str()); arg.global(is_shared) }))]
    Audit(audit::AuditArgs),
    /// Cancel a running call on a running server.
    Cancel(operate::CancelArgs),
    /// Switch a tool on, on a running server. This stays over restarts.
    Enable(operate::SwitchArgs),
    /// Switch a tool off, on a running server. This stays over restarts.
    Disable(operate::SwitchArgs),
    /// Delete the stored results of one tool, or of all tools, on a running server.
    Purge(operate::PurgeArgs),
    /// Make keys of callers.
    #[command(subcommand)]
    Key(key::KeyCommand),
    /// Pin the current tools of MCP servers in a file beside the manifest. A tool that changes
    /// later is quarantined.
    Pin(pin::PinArgs),
    /// Run a command in the sandbox of a tool, Python module or MCP server, or print its rules.
    Sandbox(sandbox::SandboxArgs),
    /// Copy the ledger to a new file, while the service runs or not.
    Backup(backup::BackupArgs),
    /// Move a whole ledger to a new file or an empty database, while no service runs.
    Migrate(migrate::MigrateArgs),
    /// Print the OpenAPI document of the fixed routes, or with a manifest also of its tools.
    Openapi {
        /// The manifest whose tools are included.
        #[arg(long, short)]
        manifest: Option<PathBuf>,
    },
    /// Print a manifest made from another format, or add exported calls to a ledger.
    #[command(subcommand)]
    Import(import::ImportCommand),
    /// Print the JSON Schema of the manifest, for editors.
    Schema,
    /// Print a script with which a shell completes commands and flags.
    Completions {
        /// The shell.
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
    /// Exit 0 when the service is ready: for images without a shell.
    Healthcheck {
        /// The server to check.
        #[arg(long, env = "TOOLCRIB_SERVER")]
        server: Option<String>,
        /// The address of the server, if --server is not given.
        #[arg(long, env = "TOOLCRIB_LISTEN", hide = true)]
        listen: Option<String>,
        /// Check only that the server responds, in any state of its ledger. If it does not, a
        /// restart may help.
        #[arg(long)]
        live: bool,
    },
}

impl Command {
    /// Whether the command may start programs: tools, or sources of tools.
    pub(super) fn starts_programs(&self) -> bool {
        match self {
            Self::Serve(_) | Self::Tools(_) | Self::Types(_) | Self::Pin(_) | Self::Sandbox(_) => {
                true
            }
            Self::Call(args) => args.runs_in_process(),
            Self::Check(args) => args.live,
            Self::Openapi { manifest } => manifest.is_some(),
            Self::Init(_)
            | Self::Usage(_)
            | Self::Invocations(_)
            | Self::Export(_)
            | Self::Sources(_)
            | Self::Approvals(_)
            | Self::Audit(_)
            | Self::Cancel(_)
            | Self::Enable(_)
            | Self::Disable(_)
            | Self::Purge(_)
            | Self::Key(_)
            | Self::Backup(_)
            | Self::Migrate(_)
            | Self::Import(_)
            | Self::Schema
            | Self::Completions { .. }
            | Self::Healthcheck { .. } => false,
        }
    }
}
