//! `toolcrib serve`: runs the service.

use clap::Args;
use clap::builder::UnknownArgumentValueParser;

use super::Failure;
use super::manifest_file::{ManifestArg, log_demo};
use crate::call::Selection;
use crate::environment::Environment;
use crate::log::{self, CallLog, LogWriter};
use crate::manifest::complete_address;
use crate::runtime::file_handles;

/// Arguments of `serve`.
#[derive(Args)]
pub(super) struct ServeArgs {
    #[command(flatten)]
    manifest: ManifestArg,
    /// Address to listen on: a port, or a host and a port. A port alone is on 127.0.0.1; port 0
    /// selects a free port.
    #[arg(long, env = "TOOLCRIB_LISTEN")]
    listen: Option<String>,
    // Options of other programs.
    #[arg(long, hide = true, value_parser = UnknownArgumentValueParser::suggest("a port is an address, too: --listen 7411"))]
    port: Option<String>,
    #[arg(long, hide = true, value_parser = UnknownArgumentValueParser::suggest("write host and port: --listen 127.0.0.1:7411"))]
    host: Option<String>,
    /// Serve one MCP client on standard input and output, and open no port.
    #[arg(long)]
    stdio: bool,
    /// With --stdio: only the tools with this tag.
    #[arg(long, value_name = "NAME", requires = "stdio")]
    tag: Option<String>,
    /// With --stdio: only the tools of this toolset of the manifest.
    #[arg(long, value_name = "NAME", requires = "stdio")]
    toolset: Option<String>,
    /// The ledger: a file, sqlite://FILE or postgres://USER@HOST/DATABASE. By default, the one of
    /// the manifest, or else toolcrib.db in the working folder.
    #[arg(long, env = "TOOLCRIB_LEDGER")]
    ledger: Option<String>,
    /// Start although the ledger has lost acknowledged commits.
    #[arg(long)]
    accept_loss: bool,
    /// Listen beyond loopback although there are no callers.
    #[arg(long)]
    allow_open: bool,
}

impl ServeArgs {
    /// Whether an address was given to a service that does not listen. An address in the
    /// environment does not count, because it is not meant for this start alone.
    fn has_unused_address(&self, environment: &Environment) -> bool {
        let variable = environment.get_text("TOOLCRIB_LISTEN");
        self.stdio
            && (self.allow_open || self.listen.is_some() && self.listen.as_deref() != variable)
    }
}

pub(super) async fn run(
    args: ServeArgs,
    environment: &Environment,
    log: &LogWriter,
) -> Result<(), Failure> {
    if args.has_unused_address(environment) {
        let message = "toolcrib: --stdio serves only the client that started it, and opens no port: remove --listen and --allow-open, \
                   or start a second service without --stdio";
        return Err(Failure::Usage(message.into()));
    }
    let ServeArgs {
        manifest,
        listen,
        stdio,
        tag,
        toolset,
        ledger,
        accept_loss,
        allow_open,
        port: _,
        host: _,
    } = args;
    let listen = listen.as_deref().map(complete_address).transpose();
    let listen = listen.map_err(|message| Failure::Usage(format!("toolcrib: {message}")))?;
    // A SIGHUP before the service can reload must not end the process.
    let _hangups = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::hangup());
    file_handles::raise_limit();
    let prints_banner = log.format() != log::Format::Json;
    // The banner for people says it, too.
    if manifest.path()?.is_none() && (stdio || !prints_banner) {
        log_demo();
    }
    let mut builder = manifest.app_builder(environment)?;
    if let Some(listen) = listen {
        builder = builder.listen(listen);
    }
    if let Some(ledger) = ledger {
        builder = builder.ledger(ledger);
    }
    if accept_loss {
        builder = builder.accept_loss();
    }
    if allow_open {
        builder = builder.allow_open();
    }
    if prints_banner {
        builder = builder.print_banner_to(log.clone());
    }
    // The filter does not change, so its level is read once.
    let calls = CallLog::lines(log.clone(), CallLog::enabled_level());
    let app = builder.call_log(calls).build().await?;
    file_handles::raise_limit_for(app.settings().max_connections);
    let served = if stdio {
        app.serve_stdio(Selection::new(tag, toolset)).await
    } else {
        app.serve().await
    };
    Ok(served?)
}
