//! Commands that work on a manifest: serve, check, tools; and openapi.

use std::collections::HashMap;

use serde_json::json;

use super::arguments::{MANIFEST, ManifestArg};
use super::{Failure, print, print_json};
use crate::app::Error;
use crate::formats::{self, Format};
use crate::http;
use crate::log::{self, CallLog, LogWriter};
use crate::manifest::{self, Process};
use crate::tools::builtin;

pub(super) async fn serve(
    manifest: &ManifestArg,
    listen: Option<String>,
    ledger: Option<String>,
    allow_open: bool,
    log: &LogWriter,
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
    if log.format() != log::Format::Json {
        builder = builder.to_person(log.clone());
    }
    // What the filter wants is asked once, since it does not change.
    let calls = CallLog::lines(log.clone(), CallLog::wanted());
    let app = builder.call_log(calls).build().await?;
    Ok(app.serve().await?)
}

pub(super) fn check(manifest: &ManifestArg) -> Result<(), Failure> {
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

pub(super) fn tools(manifest: &ManifestArg, format: Format) -> Result<(), Failure> {
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

pub(super) fn openapi() -> Result<(), Failure> {
    let text = http::openapi().to_pretty_json();
    print(&text.map_err(|error| Failure::Failed(error.to_string()))?);
    Ok(())
}
