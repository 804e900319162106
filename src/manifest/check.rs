//! Everything that `toolcrib check` reports: the findings of loading, and the lints.

use std::collections::HashMap;
use std::path::Path;

use super::finding::{Finding, Severity};
use super::load::{self, Host, Loaded};
use super::missing_secrets::drop_findings_about_placeholders;
use super::node::Node;
use super::parsed::ParsedManifest;
use super::references::ManifestInput;
use super::rule::Rule;
use super::tool_lists::{KnownTools, recheck_lists};
use super::{Manifest, lint};
use crate::call::EnvVar;
use crate::kinds::Tool;

/// The result of checking a manifest.
pub struct Checked {
    /// All findings: errors, then warnings and hints sorted by position.
    pub findings: Vec<Finding>,
    /// The manifest, as far as it could be read.
    pub manifest: Manifest,
    /// The variables that tools and sources declare, including those that cannot be used.
    pub variables: Vec<DeclaredVariable>,
}

/// A variable that a tool or a source of tools declares.
pub struct DeclaredVariable {
    /// The tool; `None` if a source declares it.
    pub tool: Option<String>,
    /// The Python module or MCP server; `None` if a tool declares it.
    pub source: Option<String>,
    /// The declaration.
    pub variable: EnvVar,
}

impl Checked {
    /// The number of findings of this severity.
    pub fn count(&self, severity: Severity) -> usize {
        self.findings
            .iter()
            .filter(|finding| finding.severity == severity)
            .count()
    }

    /// Judges the lists of tools again, when the sources are listed: `tools` are all tools.
    pub(crate) fn recheck_lists(&mut self, tools: &[Tool]) {
        let known = KnownTools::listed(tools.iter().map(|tool| &tool.definition));
        recheck_lists(&self.manifest.tool_lists, &known, &mut self.findings);
        sort_findings(&mut self.findings);
    }
}

/// Reads a manifest as [`load`](super::load()) does, and finds settings that are valid but probably
/// not intended. Runs nothing. `natives` are the embedding program's own tools, by name.
pub fn check(path: &Path, input: &dyn ManifestInput, natives: &HashMap<String, Tool>) -> Checked {
    // The program's own tools are known here. Without any, the program is assumed to be the service
    // itself.
    let host = Host {
        natives: Some(natives),
        is_standalone: natives.is_empty(),
        warns_of_documents: true,
        ..Host::default()
    };
    let Loaded {
        manifest,
        mut findings,
        list_findings,
        parsed,
    } = load::read_manifest(path, input, &host);
    let manifest = manifest.unwrap_or_default();
    findings.extend(list_findings);
    let mut lints = lint::run_lints(
        &parsed,
        manifest.calls.name_matching,
        &manifest.listen,
        input,
    );
    // A lint about the place of an error is about the same mistake, and so is a "secret" that is a
    // variable's name.
    let explains = |finding: &Finding, lint: &Finding| {
        let is_variable = finding.rule == Rule::ShellVariable && lint.rule == Rule::LiteralSecret;
        finding.location == lint.location && (finding.severity == Severity::Error || is_variable)
    };
    lints.retain(|lint| !findings.iter().any(|finding| explains(finding, lint)));
    findings.extend(lints);
    // Whatever is found in a refused map of parameters is about the same mistake.
    let is_refused =
        |finding: &&Finding| finding.is_error() && finding.path.ends_with(".parameters");
    let refused: Vec<String> = findings
        .iter()
        .filter(is_refused)
        .map(|one| one.path.clone())
        .collect();
    findings.retain(|finding| {
        let is_inside = |path: &String| finding.path.starts_with(path);
        finding.is_error() || !refused.iter().any(is_inside)
    });
    if input.accepts_missing_secrets() {
        drop_findings_about_placeholders(&mut findings);
    }
    sort_findings(&mut findings);
    Checked {
        findings,
        manifest,
        variables: declared_variables(&parsed),
    }
}

/// Errors come first, in the order in which they were found, as in `serve`: the first often causes
/// the next.
fn sort_findings(findings: &mut [Finding]) {
    findings.sort_by_key(|finding| {
        let location = &finding.location;
        let position = (finding.severity != Severity::Error)
            .then(|| (location.file.clone(), location.line, location.column));
        (finding.severity, position)
    });
}

fn declared_variables(parsed: &ParsedManifest) -> Vec<DeclaredVariable> {
    let of_tools = parsed.tools.iter().flat_map(|parsed| {
        let variables = match &parsed.tool {
            Some(tool) => tool.definition.env.clone(),
            None => read_env(&parsed.entry),
        };
        let tool = Some(parsed.key.text.clone());
        variables.into_iter().map(move |variable| DeclaredVariable {
            tool: tool.clone(),
            source: None,
            variable,
        })
    });
    let of_sources = parsed.sources.iter().flat_map(|parsed| {
        let source = Some(parsed.name.clone());
        let variables = read_env(&parsed.entry);
        variables.into_iter().map(move |variable| DeclaredVariable {
            tool: None,
            source: source.clone(),
            variable,
        })
    });
    of_tools.chain(of_sources).collect()
}

/// `env:` of an entry, as far as it can be read. Loading has reported its faults.
fn read_env(entry: &Node) -> Vec<EnvVar> {
    let items = entry.get("env").map(Node::items).unwrap_or_default();
    let mut variables: Vec<EnvVar> = Vec::new();
    for variable in items
        .iter()
        .filter_map(|item| serde_json::from_value::<EnvVar>(item.to_json()).ok())
    {
        if !variable.name.is_empty() && variables.iter().all(|other| other.name != variable.name) {
            variables.push(variable);
        }
    }
    variables
}
