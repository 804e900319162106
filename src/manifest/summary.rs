//! Findings for people: many hints of one rule become one line, so that they do not hide the
//! warnings.

use super::finding::{Finding, Severity};
use super::rule::Rule;

/// The most hints of one rule that are listed.
const MAX_LISTED_HINTS: usize = 3;

/// The findings as lines. `lists_all` lists every hint.
pub fn summarize_findings(findings: &[Finding], lists_all: bool) -> Vec<String> {
    let hints_of = |rule: Rule| {
        let of_rule =
            move |finding: &&Finding| finding.severity == Severity::Hint && finding.rule == rule;
        findings.iter().filter(of_rule)
    };
    let is_summarized = |finding: &Finding| {
        !lists_all
            && finding.severity == Severity::Hint
            && hints_of(finding.rule).count() > MAX_LISTED_HINTS
    };
    let listed = findings
        .iter()
        .filter(|finding| !is_summarized(finding))
        .map(ToString::to_string);
    let rules = Rule::ALL.iter().filter_map(|rule| {
        let first = hints_of(*rule)
            .next()
            .filter(|first| is_summarized(first))?;
        let (count, rule) = (hints_of(*rule).count(), rule.as_str());
        Some(format!(
            "hint: {count} times: {} [{rule}] (--hints lists them)",
            first.message
        ))
    });
    listed.chain(rules).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::testing::check_text;

    /// The hints about pipelines for this many tools.
    fn pipelines(tools: usize) -> Vec<Finding> {
        let tool = |at: usize| {
            format!(
                "  rows_{at}: {{kind: command, description: Counts the rows of table {at}., command: [/bin/true, '|']}}\n"
            )
        };
        let tools: String = (0..tools).map(tool).collect();
        let mut findings = check_text(&format!("tools:\n{tools}"));
        findings.retain(|finding| finding.rule == Rule::ShellSyntax);
        findings
    }

    #[test]
    fn many_hints_of_one_rule_become_one_line() {
        assert_eq!(summarize_findings(&pipelines(3), false).len(), 3);
        let findings = pipelines(4);
        let lines = summarize_findings(&findings, false);
        assert_eq!(lines.len(), 1);
        assert!(
            lines[0].starts_with("hint: 4 times: no shell reads this")
                && lines[0].ends_with("[shell-syntax] (--hints lists them)"),
            "{lines:?}"
        );
        assert_eq!(summarize_findings(&findings, true).len(), 4);
    }
}
