//! The output of `check` for programs.

use std::path::Path;

use serde::Serialize;
use serde_json::{Value, json};

use crate::app::{DeclaredTools, SourceFindings};
use crate::call::Kind;
use crate::manifest::{
    Checked, DeclaredVariable, Finding, Manifest, ManifestInput as _, ProcessInput, Severity,
};

/// The output of `--format json`. `live` has the listed tools, if the sources were started.
pub(super) fn to_json(
    path: &Path,
    checked: &Checked,
    live: Option<&DeclaredTools>,
    environment: &[VariableView<'_>],
    ok: bool,
) -> Value {
    let mut document = json!({
        // The manifest. Findings name the included files.
        "file": path.display().to_string(),
        // Whether the exit code is 0.
        "ok": ok,
        "errors": checked.count(Severity::Error),
        "warnings": checked.count(Severity::Warning)
            + live.map_or(0, DeclaredTools::count_warnings),
        "hints": checked.count(Severity::Hint),
        // With `--live`, those of the sources included.
        "tools": live.map_or(checked.manifest.tools.len(), |live| live.tools.len()),
        // The sources, by kind. Their tools are unknown here.
        "modules": count_sources(&checked.manifest, Kind::Python)
            + count_sources(&checked.manifest, Kind::Typescript),
        "servers": count_sources(&checked.manifest, Kind::Mcp),
        "apis": count_sources(&checked.manifest, Kind::Http),
        "callers": checked.manifest.callers.len(),
    });
    if let Some(live) = live {
        // Sources and tools that cannot be used.
        document["failures"] = json!(live.faults);
        // Warnings about other sources and their tools.
        document["source_warnings"] = json!(live.warnings);
        // What misleads models in the definitions of the listed tools.
        document["source_findings"] = live.findings.iter().flat_map(source_findings).collect();
    }
    document["environment"] = json!(environment);
    document["findings"] = checked.findings.iter().map(finding).collect();
    document
}

fn finding(finding: &Finding) -> Value {
    json!({
        "file": finding.location.file.display().to_string(),
        "line": finding.location.line,
        "column": finding.location.column,
        "path": finding.path,
        "severity": finding.severity,
        "rule": finding.rule,
        "message": finding.message,
    })
}

fn source_findings(found: &SourceFindings) -> impl Iterator<Item = Value> {
    found.shown.iter().map(|finding| {
        let severity = match finding.is_hint {
            true => Severity::Hint,
            false => Severity::Warning,
        };
        json!({
            "source": found.source,
            "tool": finding.tool,
            "severity": severity,
            "rule": finding.rule,
            "message": finding.message,
        })
    })
}

/// A variable that a tool or a source of tools declares.
#[derive(Serialize)]
pub(super) struct VariableView<'a> {
    /// The tool; null if a source declares it.
    pub(super) tool: Option<&'a str>,
    /// The Python module or MCP server; null if a tool declares it.
    pub(super) source: Option<&'a str>,
    pub(super) name: &'a str,
    /// It is set in the environment.
    set: bool,
    pub(super) state: VariableState,
}

/// Where the value of a declared variable comes from.
#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum VariableState {
    /// The environment.
    Set,
    /// The manifest.
    Default,
    /// Nowhere: it is optional, and absent.
    Unset,
    /// Nowhere, and the service does not start without it.
    Missing,
}

impl VariableState {
    /// The state for people.
    pub(super) fn describe(self) -> &'static str {
        match self {
            Self::Set => "set",
            Self::Default => "not set, has a default",
            Self::Unset => "not set, optional",
            Self::Missing => "not set, required",
        }
    }
}

/// The declared variables, with their state in this environment.
pub(super) fn variable_views<'a>(
    declared: &'a [DeclaredVariable],
    environment: &ProcessInput,
) -> Vec<VariableView<'a>> {
    let view = |declared: &'a DeclaredVariable| {
        let variable = &declared.variable;
        let state = match environment.env_var(&variable.name) {
            Some(_) => VariableState::Set,
            None if variable.default.is_some() => VariableState::Default,
            None if variable.required => VariableState::Missing,
            None => VariableState::Unset,
        };
        VariableView {
            tool: declared.tool.as_deref(),
            source: declared.source.as_deref(),
            name: &variable.name,
            set: matches!(state, VariableState::Set),
            state,
        }
    };
    declared.iter().map(view).collect()
}

/// The number of sources of a kind.
pub(super) fn count_sources(manifest: &Manifest, kind: Kind) -> usize {
    manifest
        .sources
        .iter()
        .filter(|source| source.settings.kind() == kind)
        .count()
}
