//! The output of `check` for programs.

use std::path::Path;

use serde::Serialize;

use super::live::LiveOutcome;
use crate::app::SourceFindings;
use crate::call::Kind;
use crate::manifest::{
    Checked, DeclaredVariable, Finding, Manifest, ManifestInput as _, ProcessInput, Rule, Severity,
};

/// The output of `--format json`.
#[derive(Serialize)]
pub(super) struct CheckDocument<'a> {
    /// The manifest. Findings name the included files.
    file: String,
    /// Whether the exit code is 0.
    ok: bool,
    errors: usize,
    warnings: usize,
    hints: usize,
    /// The number of tools; with `--live`, those of the sources included.
    tools: usize,
    /// The number of Python modules. Their tools are unknown here.
    modules: usize,
    /// The number of MCP servers. Their tools are unknown here.
    servers: usize,
    /// The number of OpenAPI documents. Their tools are unknown here.
    apis: usize,
    callers: usize,
    /// With `--live`: sources and tools that cannot be used.
    #[serde(skip_serializing_if = "Option::is_none")]
    failures: Option<&'a [String]>,
    /// With `--live`: warnings about other sources and their tools.
    #[serde(skip_serializing_if = "Option::is_none")]
    source_warnings: Option<&'a [String]>,
    /// With `--live`: what misleads models in the definitions of the listed tools.
    #[serde(skip_serializing_if = "Option::is_none")]
    source_findings: Option<Vec<SourceFindingView<'a>>>,
    environment: Vec<VariableView<'a>>,
    findings: Vec<FindingView<'a>>,
}

#[derive(Serialize)]
struct FindingView<'a> {
    file: String,
    line: usize,
    column: usize,
    path: &'a str,
    severity: Severity,
    rule: Rule,
    message: &'a str,
}

/// A finding about a tool that a source has listed.
#[derive(Serialize)]
struct SourceFindingView<'a> {
    source: &'a str,
    tool: &'a str,
    severity: Severity,
    rule: Rule,
    message: &'a str,
}

fn source_finding_views(found: &SourceFindings) -> impl Iterator<Item = SourceFindingView<'_>> {
    found.shown.iter().map(|finding| SourceFindingView {
        source: &found.source,
        tool: &finding.tool,
        severity: if finding.is_hint {
            Severity::Hint
        } else {
            Severity::Warning
        },
        rule: finding.rule,
        message: &finding.message,
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

impl<'a> CheckDocument<'a> {
    /// The document. `live` has the listed tools, if the sources were started.
    pub(super) fn new(
        path: &Path,
        checked: &'a Checked,
        live: Option<&'a LiveOutcome>,
        environment: Vec<VariableView<'a>>,
        ok: bool,
    ) -> Self {
        Self {
            file: path.display().to_string(),
            ok,
            errors: checked.count(Severity::Error),
            warnings: checked.count(Severity::Warning)
                + live.map_or(0, LiveOutcome::count_warnings),
            hints: checked.count(Severity::Hint),
            tools: live.map_or(checked.manifest.tools.len(), |live| live.tools),
            modules: count_sources(&checked.manifest, Kind::Python),
            servers: count_sources(&checked.manifest, Kind::Mcp),
            apis: count_sources(&checked.manifest, Kind::Http),
            callers: checked.manifest.callers.len(),
            failures: live.map(|live| &live.faults[..]),
            source_warnings: live.map(|live| &live.warnings[..]),
            source_findings: live.map(|live| {
                live.findings
                    .iter()
                    .flat_map(source_finding_views)
                    .collect()
            }),
            environment,
            findings: checked.findings.iter().map(FindingView::from).collect(),
        }
    }
}

impl<'a> From<&'a Finding> for FindingView<'a> {
    fn from(finding: &'a Finding) -> Self {
        Self {
            file: finding.location.file.display().to_string(),
            line: finding.location.line,
            column: finding.location.column,
            path: &finding.path,
            severity: finding.severity,
            rule: finding.rule,
            message: &finding.message,
        }
    }
}

/// The declared variables, with their state in this environment.
pub(super) fn variable_views<'a>(
    declared: &'a [DeclaredVariable],
    environment: &ProcessInput,
) -> Vec<VariableView<'a>> {
    let view = |declared: &'a DeclaredVariable| {
        let DeclaredVariable {
            tool,
            source,
            variable,
        } = declared;
        let state = match environment.env_var(&variable.name) {
            Some(_) => VariableState::Set,
            None if variable.default.is_some() => VariableState::Default,
            None if variable.required => VariableState::Missing,
            None => VariableState::Unset,
        };
        let set = matches!(state, VariableState::Set);
        VariableView {
            tool: tool.as_deref(),
            source: source.as_deref(),
            name: &variable.name,
            set,
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
