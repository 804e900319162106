//! The commands `serve`, `tools` and `openapi`.

use std::path::Path;

use serde_json::json;

use super::arguments::{ManifestArg, ServeArgs};
use super::{Failure, print, print_json};
use crate::app::{self, Declared};
use crate::call::CallSettings;
use crate::environment::Environment;
use crate::file_handles;
use crate::formats::{self, Format, ListedTool, Names};
use crate::http;
use crate::log::{self, CallLog, LogWriter};
use crate::tools::{OwnPorts, builtin};

pub(super) async fn serve(
    manifest: &ManifestArg,
    how: ServeArgs,
    environment: &Environment,
    log: &LogWriter,
) -> Result<(), Failure> {
    if how.listens_nowhere(environment) {
        let why = "toolcrib: --stdio serves the one client that has started it and listens nowhere: leave --listen and --allow-open out, \
                   or start a service without --stdio beside it";
        return Err(Failure::Usage(why.into()));
    }
    let ServeArgs { listen, stdio, ledger, accept_loss, allow_open } = how;
    // A SIGHUP before the service can reload must not end the process.
    let _hangups = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::hangup());
    file_handles::raise();
    let mut builder = manifest.builder(environment)?;
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
        builder = builder.to_person(log.clone());
    }
    // The filter does not change, so its level is read once.
    let calls = CallLog::lines(log.clone(), CallLog::wanted());
    let app = builder.call_log(calls).build().await?;
    let served = if stdio { app.serve_stdio().await } else { app.serve().await };
    Ok(served?)
}

pub(super) async fn tools(manifest: &ManifestArg, format: Format, environment: &Environment) -> Result<(), Failure> {
    let Declared { mut tools, calls, faults } = match manifest.path() {
        Some(path) => app::declared(&path, environment, told).await?,
        None => {
            Declared { tools: builtin::demo(&OwnPorts::default()), calls: CallSettings::default(), faults: Vec::new() }
        }
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
            let names = Names { spellings: &spellings, matching: calls.name_matching };
            formats::render(other, tools.iter().map(ListedTool::from), names)
        }
    });
    complete(faults)
}

pub(super) async fn openapi(manifest: Option<&Path>, environment: &Environment) -> Result<(), Failure> {
    let Some(path) = manifest else {
        let text = http::openapi().to_pretty_json();
        print(&text.map_err(|error| Failure::Failed(error.to_string()))?);
        return Ok(());
    };
    let Declared { tools, faults, .. } = app::declared(path, environment, told).await?;
    let usable = tools.iter().filter(|tool| tool.policy.enabled).map(|tool| &tool.definition);
    print_json(&http::openapi_with(usable));
    complete(faults)
}

/// Logs what a source is doing, because the user has to wait for it.
fn told(source: &str, what: &str) {
    tracing::info!(source, doing = what, "a source is loading");
}

/// Fails if sources failed, because the printed list lacks their tools.
fn complete(faults: Vec<String>) -> Result<(), Failure> {
    if faults.is_empty() { Ok(()) } else { Err(Failure::Failed(faults.join("\n"))) }
}
