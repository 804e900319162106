//! Runs the lints on the text of a manifest, for tests.

use std::collections::HashMap;
use std::path::Path;

use crate::manifest::references::ManifestInput;
use crate::manifest::{Checked, Rule, Severity, check};

/// One file, and the environment.
pub(super) struct Text<'a>(pub(super) &'a str, pub(super) &'a [(&'a str, &'a str)]);

impl ManifestInput for Text<'_> {
    fn env_var(&self, name: &str) -> Option<String> {
        self.1
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, value)| (*value).to_owned())
    }

    fn read_text(&self, path: &Path) -> std::io::Result<String> {
        match path
            .extension()
            .is_some_and(|extension| extension == "lock")
        {
            true => Err(std::io::ErrorKind::NotFound.into()),
            false => Ok(self.0.to_owned()),
        }
    }
}

pub(super) fn check_text(text: &str, env: &[(&str, &str)]) -> Checked {
    check(Path::new("t.yaml"), &Text(text, env), &HashMap::new())
}

/// The findings of a manifest as `severity rule path line`, the worst first.
pub(super) fn finding_lines(text: &str, env: &[(&str, &str)]) -> Vec<String> {
    let line = |finding: &crate::manifest::Finding| {
        let severity = match finding.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
            Severity::Hint => "hint",
        };
        format!(
            "{severity} {} {} {}",
            finding.rule.as_str(),
            finding.path,
            finding.location.line
        )
    };
    let findings = check_text(text, env).findings;
    // Most texts have no tools, because their lints are not about tools.
    findings
        .iter()
        .filter(|finding| finding.rule != Rule::NoTools)
        .map(line)
        .collect()
}

/// The findings for one tool with these further keys, without hints about providers' restricted
/// modes.
pub(super) fn tool_findings(keys: &str) -> Vec<String> {
    let mut found = all_tool_findings(keys);
    found.retain(|line| !line.starts_with("hint refused-schema"));
    found
}

/// The findings for one tool with these further keys, all of them.
pub(super) fn all_tool_findings(keys: &str) -> Vec<String> {
    let description = "    description: Counts the rows of a table that a customer owns.\n";
    let description = if keys.starts_with("    description:") {
        ""
    } else {
        description
    };
    let text = format!(
        "tools:\n  probe:\n    kind: command\n    command: [/bin/true]\n{description}{keys}"
    );
    let strip = |line: String| line.replace("tools.probe.", "");
    finding_lines(&text, &[]).into_iter().map(strip).collect()
}

/// The findings for a tool with this input schema, given as JSON text.
pub(super) fn schema_findings(schema: &str) -> Vec<String> {
    let strip = |line: String| {
        let line = line.replace("input_schema.", "");
        line.rsplit_once(' ')
            .map(|(rest, _)| rest.to_owned())
            .unwrap_or_default()
    };
    tool_findings(&format!("    input_schema: {schema}\n"))
        .into_iter()
        .map(strip)
        .collect()
}

mod proptests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::check_text;

    /// JSON in the shape of schemas: real keywords with any values, and references to itself and
    /// elsewhere.
    fn any_schema() -> impl Strategy<Value = Value> {
        let keyword = prop::sample::select(vec![
            "type",
            "enum",
            "const",
            "default",
            "examples",
            "required",
            "properties",
            "items",
            "$ref",
            "$defs",
            "anyOf",
            "allOf",
            "not",
            "if",
            "then",
            "minimum",
            "maximum",
            "minLength",
            "maxLength",
            "pattern",
            "description",
            "additionalProperties",
            "patternProperties",
            "prefixItems",
            "$schema",
            "a",
            "format",
        ]);
        let text = prop_oneof![
            prop::sample::select(vec![
                "object",
                "string",
                "integer",
                "#",
                "#/$defs/a",
                "#/properties/a",
                "(",
                "a",
                "date"
            ])
            .prop_map(str::to_owned),
            "\\PC{0,12}",
        ];
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(|number| json!(number)),
            text.prop_map(Value::from),
        ];
        leaf.prop_recursive(6, 60, 6, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::vec((keyword.clone(), inner), 0..6).prop_map(|entries| entries
                    .into_iter()
                    .map(|(key, value)| (key.to_owned(), value))
                    .collect()),
            ]
        })
    }

    proptest! {
        #[test]
        fn any_schema_gets_unique_findings(schema in any_schema(), key in 0usize..3) {
            let mut schema = schema;
            if let (Some(root), true) = (schema.as_object_mut(), key > 0) {
                root.insert("type".into(), "object".into());
            }
            let key = ["parameters", "input_schema", "output_schema"][key];
            let tool = json!({"kind": "command", "command": ["/bin/true"], key: schema, "effect": schema});
            for tool in [tool.clone(), { let mut tool = tool; tool.as_object_mut().unwrap().remove("effect"); tool }] {
                let findings = check_text(&json!({"tools": {"t": tool}}).to_string(), &[]).findings;
                let mut once = std::collections::HashSet::new();
                for finding in findings {
                    prop_assert!(finding.location.line >= 1 && !finding.message.is_empty());
                    let seen = (finding.rule, finding.path.clone(), finding.message.clone());
                    prop_assert!(once.insert(seen), "twice: {finding}");
                }
            }
        }
    }
}
