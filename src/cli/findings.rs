//! Shows what misleads models in the definitions of the tools that sources have listed.

use super::output::print_note;
use crate::app::SourceFindings;
use crate::manifest::ListedFinding;
use crate::text::sanitize;

/// The most findings of one source that are printed.
const MAX_PRINTED: usize = 20;

/// Prints the warnings to standard error. Hints are left out: they are in `GET /sources`.
pub(super) fn print_findings(findings: &[SourceFindings]) {
    findings
        .iter()
        .flat_map(finding_lines)
        .for_each(|line| print_note(&line));
}

/// The warnings about one source, one line each, and the number of those that are not shown.
pub(super) fn finding_lines(found: &SourceFindings) -> Vec<String> {
    let source = &found.source;
    let line = |finding: &ListedFinding| {
        let message = sanitize::clean_text(&finding.message);
        format!(
            "source `{source}`: warning: {}: {message} [{}]",
            finding.tool,
            finding.rule.as_str()
        )
    };
    let lines = found
        .shown
        .iter()
        .filter(|finding| !finding.is_hint)
        .take(MAX_PRINTED)
        .map(line);
    let more = found.warnings.saturating_sub(MAX_PRINTED);
    let more =
        (more > 0).then(|| format!("source `{source}`: {more} more warnings about its tools"));
    lines.chain(more).collect()
}
