//! `toolcrib check`: prints the faults of a manifest, for people and for programs.

use std::collections::HashMap;
use std::path::Path;

use serde::Serialize;

use super::arguments::{DEFAULT_MANIFEST, ManifestArg};
use super::{Failure, print_line};
use crate::call::Kind;
use crate::call::units::Count;
use crate::environment::Environment;
use crate::manifest::{
    self, Checked, DeclaredVariable, Finding, Location, Manifest, ManifestInput as _, ProcessInput, Rule, Severity,
};

/// How findings are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub(super) enum CheckFormat {
    /// FILE:LINE:COLUMN: path: message, one a line.
    #[default]
    Text,
    /// One JSON document.
    Json,
}

/// Arguments of `check`.
#[derive(clap::Args)]
pub(super) struct CheckArgs {
    #[command(flatten)]
    manifest: ManifestArg,
    /// Format of the output.
    #[arg(long, value_enum, default_value_t)]
    format: CheckFormat,
    /// Exit 64 for warnings too. Hints never count.
    #[arg(long)]
    strict: bool,
}

/// The output of `--format json`.
#[derive(Serialize)]
struct CheckDocument<'a> {
    /// The manifest. Findings name the included files.
    file: String,
    /// Whether the exit code is 0.
    ok: bool,
    errors: usize,
    warnings: usize,
    hints: usize,
    tools: usize,
    /// The number of Python modules. Their tools are unknown here.
    modules: usize,
    /// The number of MCP servers. Their tools are unknown here.
    servers: usize,
    callers: usize,
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

/// A variable that a tool or a source of tools declares.
#[derive(Serialize)]
struct VariableView<'a> {
    /// The tool; null if a source declares it.
    tool: Option<&'a str>,
    /// The Python module or MCP server; null if a tool declares it.
    source: Option<&'a str>,
    name: &'a str,
    /// It is set in the environment.
    set: bool,
    state: VariableState,
}

/// Where the value of a declared variable comes from.
#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "lowercase")]
enum VariableState {
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
    fn describe(self) -> &'static str {
        match self {
            Self::Set => "set",
            Self::Default => "not set, has a default",
            Self::Unset => "not set, optional",
            Self::Missing => "not set, required",
        }
    }
}

/// The rules, for `check --help`.
pub(super) fn rules_help() -> String {
    let lines: Vec<String> =
        Rule::ALL.iter().map(|rule| format!("  {:<22}{}", rule.as_str(), rule.description())).collect();
    format!("Rules (warnings, unless stated otherwise):\n{}", lines.join("\n"))
}

pub(super) fn run(args: &CheckArgs, environment: &Environment) -> Result<(), Failure> {
    let path = args.manifest.path();
    let checked = match &path {
        Some(path) => manifest::check(path, &ProcessInput::new(environment), &HashMap::new()),
        None => missing_manifest(),
    };
    let path = path.as_deref().unwrap_or(Path::new(DEFAULT_MANIFEST));
    let threshold = if args.strict { Severity::Warning } else { Severity::Error };
    let ok = checked.findings.iter().all(|finding| finding.severity > threshold);
    let variables = variable_views(&checked.variables, &ProcessInput::new(environment));
    match args.format {
        CheckFormat::Json => {
            let document = build_document(path, &checked, variables, ok);
            let text = serde_json::to_string_pretty(&document).map_err(|error| Failure::Failed(error.to_string()))?;
            print_line(&text);
            if ok { Ok(()) } else { Err(Failure::Reported) }
        }
        CheckFormat::Text => {
            let text = format_text(path, &checked, &variables, ok);
            if ok {
                print_line(&text);
                Ok(())
            } else {
                Err(Failure::Usage(text))
            }
        }
    }
}

fn missing_manifest() -> Checked {
    let place = Location { file: Path::new(DEFAULT_MANIFEST).into(), line: 1, column: 1 };
    let message = format!("there is no manifest to check: name one with --manifest, or write {DEFAULT_MANIFEST}");
    let findings = vec![Finding::error(place, "", message).with_rule(Rule::Unreadable)];
    Checked { findings, manifest: Manifest::default(), variables: Vec::new() }
}

fn format_text(path: &Path, checked: &Checked, variables: &[VariableView<'_>], ok: bool) -> String {
    let count = |severity, noun| Count(checked.count(severity), noun);
    let mut lines: Vec<String> = checked.findings.iter().map(ToString::to_string).collect();
    for VariableView { tool, source, name, state, .. } in variables {
        let owner = tool.or(*source).unwrap_or_default();
        lines.push(format!("{owner}: environment variable {name}: {}", state.describe()));
    }
    let found = format!("{}, {}", count(Severity::Warning, "warning"), count(Severity::Hint, "hint"));
    lines.push(if ok {
        let Manifest { tools, callers, .. } = &checked.manifest;
        // Their tools are unknown, because `check` does not run their code.
        let sources: Vec<String> = [(Kind::Python, "module"), (Kind::Mcp, "MCP server")]
            .map(|(kind, word)| (count_sources(&checked.manifest, kind), word))
            .into_iter()
            .filter(|(many, _)| *many > 0)
            .map(|(many, word)| format!(", {}", Count(many, word)))
            .collect();
        let listed = if sources.is_empty() { "" } else { " (tools are listed at the start)" };
        let sources = sources.concat() + listed;
        let (tools, callers) = (Count(tools.len(), "tool"), Count(callers.len(), "caller"));
        format!("{}: ok: {tools}{sources}, {callers}, {found}", path.display())
    } else {
        format!("{}: {}, {found}", path.display(), count(Severity::Error, "error"))
    });
    lines.join("\n")
}

fn build_document<'a>(
    path: &Path,
    checked: &'a Checked,
    environment: Vec<VariableView<'a>>,
    ok: bool,
) -> CheckDocument<'a> {
    let view = |finding: &'a Finding| FindingView {
        file: finding.location.file.display().to_string(),
        line: finding.location.line,
        column: finding.location.column,
        path: &finding.path,
        severity: finding.severity,
        rule: finding.rule,
        message: &finding.message,
    };
    CheckDocument {
        file: path.display().to_string(),
        ok,
        errors: checked.count(Severity::Error),
        warnings: checked.count(Severity::Warning),
        hints: checked.count(Severity::Hint),
        tools: checked.manifest.tools.len(),
        modules: count_sources(&checked.manifest, Kind::Python),
        servers: count_sources(&checked.manifest, Kind::Mcp),
        callers: checked.manifest.callers.len(),
        environment,
        findings: checked.findings.iter().map(view).collect(),
    }
}

fn count_sources(manifest: &Manifest, kind: Kind) -> usize {
    manifest.sources.iter().filter(|source| source.settings.kind() == kind).count()
}

fn variable_views<'a>(declared: &'a [DeclaredVariable], environment: &ProcessInput) -> Vec<VariableView<'a>> {
    let view = |declared: &'a DeclaredVariable| {
        let DeclaredVariable { tool, source, variable } = declared;
        let state = match environment.env_var(&variable.name) {
            Some(_) => VariableState::Set,
            None if variable.default.is_some() => VariableState::Default,
            None if variable.required => VariableState::Missing,
            None => VariableState::Unset,
        };
        let set = matches!(state, VariableState::Set);
        VariableView { tool: tool.as_deref(), source: source.as_deref(), name: &variable.name, set, state }
    };
    declared.iter().map(view).collect()
}
