//! The output of `check` for people.

use std::path::Path;

use super::super::findings::finding_lines;
use super::document::{VariableView, count_sources};
use crate::app::DeclaredTools;
use crate::call::Kind;
use crate::call::units::Count;
use crate::manifest::{self, Checked, Manifest, Severity};
use crate::text::sanitize;

/// One line for each finding, and a summary. `live` has the listed tools, if the sources were
/// started.
pub(super) fn format(
    path: &Path,
    checked: &Checked,
    live: Option<&DeclaredTools>,
    variables: &[VariableView<'_>],
    ok: bool,
    lists_hints: bool,
) -> String {
    let count = |severity, noun| Count(checked.count(severity), noun);
    let mut lines = manifest::summarize_findings(&checked.findings, lists_hints);
    for variable in variables {
        let owner = variable.tool.or(variable.source).unwrap_or_default();
        lines.push(format!(
            "{owner}: environment variable {}: {}",
            variable.name,
            variable.state.describe()
        ));
    }
    lines.extend(
        live.into_iter()
            .flat_map(|live| live.warnings.iter().cloned()),
    );
    lines.extend(
        live.into_iter()
            .flat_map(|live| live.findings.iter().flat_map(finding_lines)),
    );
    lines.extend(
        live.into_iter()
            .flat_map(|live| live.faults.iter().cloned()),
    );
    let warnings = checked.count(Severity::Warning) + live.map_or(0, DeclaredTools::count_warnings);
    let found = format!(
        "{}, {}",
        Count(warnings, "warning"),
        count(Severity::Hint, "hint")
    );
    lines.push(if ok {
        let Manifest { tools, callers, .. } = &checked.manifest;
        let tools = Count(live.map_or(tools.len(), |live| live.tools.len()), "tool");
        let sources = describe_sources(&checked.manifest, live.is_some());
        format!(
            "{}: ok: {tools}{sources}, {}, {found}",
            path.display(),
            Count(callers.len(), "caller")
        )
    } else {
        let faults = live.map_or(0, |live| live.faults.len());
        let faults = if faults > 0 {
            format!("{}, ", Count(faults, "failure"))
        } else {
            String::new()
        };
        format!(
            "{}: {}, {faults}{found}",
            path.display(),
            count(Severity::Error, "error")
        )
    });
    // A manifest may come from others. Its texts must not control the terminal, or forge a line.
    let visible: Vec<String> = lines
        .iter()
        .map(|line| sanitize::escape_invisible(line).replace('\n', "\\n"))
        .collect();
    visible.join("\n")
}

/// The sources, by kind. Unless they were listed, their tools are unknown, because `check` does not
/// run their code.
fn describe_sources(manifest: &Manifest, is_listed: bool) -> String {
    let sources: Vec<String> = [
        (Kind::Python, "module"),
        (Kind::Typescript, "TypeScript module"),
        (Kind::Mcp, "MCP server"),
        (Kind::Http, "OpenAPI document"),
    ]
    .map(|(kind, word)| (count_sources(manifest, kind), word))
    .into_iter()
    .filter(|(many, _)| *many > 0)
    .map(|(many, word)| format!(", {}", Count(many, word)))
    .collect();
    let listed = if sources.is_empty() || is_listed {
        ""
    } else {
        " (tools are listed at the start)"
    };
    sources.concat() + listed
}
