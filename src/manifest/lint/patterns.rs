//! Lint: patterns that are not matched in linear time. A match by backtracking may end without a
//! verdict, and a pattern that no engine here compiles restricts nothing.

use serde_json::Value;

use super::Lints;
use super::schema_parts::Part;
use crate::manifest::node::Node;
use crate::manifest::parsed::ParsedTool;
use crate::manifest::rule::Rule;
use crate::schema::{PatternUse, pattern_use};

/// Checks the patterns of one schema.
pub(super) fn check_patterns(tool: &ParsedTool, parts: &[Part<'_>], lints: &mut Lints) {
    for part in parts {
        let Some(node) = part.get("pattern") else {
            continue;
        };
        let what = match node.as_str().map(pattern_use) {
            Some(PatternUse::Backtracking { .. }) => {
                "looks around or refers to a group, so it is matched by backtracking within a limit; beyond the limit the \
                 call is refused"
            }
            Some(PatternUse::Unsupported) => {
                "cannot be matched here, so it stands in the description and restricts nothing"
            }
            _ => continue,
        };
        let path = part.key_path(&["pattern"]);
        let name = part.role.property();
        if name.is_some_and(|name| guards_private_path(&tool.entry, name)) {
            let message = format!(
                "{what}; it guards a path with allow_private: write an enum, or a pattern without (?= (?! (?< and \\1"
            );
            lints.warn(Rule::CostlyPattern, &node.location, path, message);
        } else {
            lints.hint(Rule::CostlyPattern, &node.location, path, what);
        }
    }
}

/// Whether the parameter stands in the URL of a request that may go to private addresses.
fn guards_private_path(entry: &Node, name: &str) -> bool {
    let Some(request) = entry.get("request") else {
        return false;
    };
    let text = |key: &str| request.get(key).map(Node::to_json).unwrap_or_default();
    let url = text("url");
    let mut placeholders = url.as_str().unwrap_or_default().split("{{").skip(1);
    text("allow_private") == Value::Bool(true)
        && placeholders.any(|rest| {
            let inside = rest.split(['}', '|']).next().unwrap_or_default();
            inside.trim() == name
        })
}

#[cfg(test)]
mod tests {
    use super::super::testing::finding_lines;

    fn found(pattern: &str, request: &str) -> Vec<String> {
        let mut lines = finding_lines(
            &format!(
                "tools:\n  t:\n    kind: http\n    description: Reads one document by its name.\n    \
                 parameters: {{name: {{type: string, description: Which document, pattern: '{pattern}'}}}}\n    \
                 request: {{{request}}}\n"
            ),
            &[],
        );
        lines.retain(|line| line.contains("costly-pattern"));
        lines
    }

    const PUBLIC: &str = "url: 'https://docs.example/{{ name }}'";
    const PRIVATE: &str = "url: 'http://10.0.0.7/{{ name }}', allow_private: true";

    #[test]
    fn patterns_that_look_around_are_hints() {
        assert_eq!(found("^[a-z]+$", PUBLIC), [""; 0]);
        assert_eq!(
            found("^(?!admin)[a-z]+$", PUBLIC),
            ["hint costly-pattern tools.t.parameters.name.pattern 5"]
        );
        assert_eq!(
            found("^(?=(?=a)b)", PUBLIC).len(),
            1,
            "nested ones are not matched"
        );
    }

    #[test]
    fn pattern_that_guards_a_private_path_is_a_warning() {
        assert_eq!(found("^[a-z]+$", PRIVATE), [""; 0]);
        assert_eq!(
            found("^(?!admin)[a-z]+$", PRIVATE),
            ["warning costly-pattern tools.t.parameters.name.pattern 5"]
        );
    }
}
