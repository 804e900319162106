//! The commands `serve`, `tools` and `openapi`.

use std::path::Path;

use serde_json::json;

use super::arguments::{ManifestArg, ServeArgs};
use super::findings::print_findings;
use super::{Failure, print_json, print_line};
use crate::app::{self, DeclaredTools};
use crate::call::CallSettings;
use crate::environment::Environment;
use crate::file_handles;
use crate::formats::{self, Format, ListedTool, NameRules};
use crate::http;
use crate::log::{self, CallLog, LogWriter};
use crate::tools::{OwnPorts, builtin};

pub(super) async fn serve(
    manifest: &ManifestArg,
    options: ServeArgs,
    environment: &Environment,
    log: &LogWriter,
) -> Result<(), Failure> {
    if options.has_unused_address(environment) {
        let message = "toolcrib: --stdio serves only the client that started it, and opens no port: remove --listen and --allow-open, \
                   or start a second service without --stdio";
        return Err(Failure::Usage(message.into()));
    }
    let ServeArgs { listen, stdio, ledger, accept_loss, allow_open } = options;
    // A SIGHUP before the service can reload must not end the process.
    let _hangups = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::hangup());
    file_handles::raise_limit();
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
    if log.format() != log::Format::Json {
        builder = builder.print_banner_to(log.clone());
    }
    // The filter does not change, so its level is read once.
    let calls = CallLog::lines(log.clone(), CallLog::enabled_level());
    let app = builder.call_log(calls).build().await?;
    let served = if stdio { app.serve_stdio().await } else { app.serve().await };
    Ok(served?)
}

pub(super) async fn print_tools(
    manifest: &ManifestArg,
    format: Format,
    environment: &Environment,
) -> Result<(), Failure> {
    let DeclaredTools { mut tools, calls, faults, findings } = match manifest.path() {
        Some(path) => app::load_declared(&path, environment, log_progress).await?,
        None => DeclaredTools {
            tools: builtin::demo_tools(&OwnPorts::default()),
            calls: CallSettings::default(),
            faults: Vec::new(),
            findings: Vec::new(),
        },
    };
    tools.sort_by(|a, b| a.name().cmp(b.name()));
    print_json(&match format {
        Format::Native => {
            let tools: Vec<http::DeclaredTool<'_>> = tools.iter().map(http::DeclaredTool::from).collect();
            json!({"tools": tools, "next_cursor": null})
        }
        other => {
            let named = tools.iter().map(|tool| (&tool.definition.name, tool.definition.aliases.as_slice()));
            let spellings = named.collect();
            let names = NameRules { spellings: &spellings, matching: calls.name_matching };
            formats::render(other, tools.iter().map(ListedTool::from), names)
        }
    });
    print_findings(&findings);
    fail_on_faults(faults)
}

pub(super) async fn print_openapi(manifest: Option<&Path>, environment: &Environment) -> Result<(), Failure> {
    let Some(path) = manifest else {
        let text = http::openapi().to_pretty_json();
        print_line(&text.map_err(|error| Failure::Failed(error.to_string()))?);
        return Ok(());
    };
    let DeclaredTools { tools, faults, .. } = app::load_declared(path, environment, log_progress).await?;
    let usable = tools.iter().filter(|tool| tool.policy.enabled).map(|tool| &tool.definition);
    print_json(&http::openapi_with_tools(usable));
    fail_on_faults(faults)
}

/// Logs what a source is doing, because the user has to wait for it.
fn log_progress(source: &str, what: &str) {
    tracing::info!(source, doing = what, "a source is loading");
}

/// Fails if sources failed, because the printed list lacks their tools.
fn fail_on_faults(faults: Vec<String>) -> Result<(), Failure> {
    if faults.is_empty() { Ok(()) } else { Err(Failure::Failed(faults.join("\n"))) }
}
