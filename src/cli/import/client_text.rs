//! Texts in the settings of other MCP clients: their variables become references of a manifest.

use std::collections::{BTreeMap, BTreeSet};

/// Variables of editors that only the editor knows.
const EDITOR_VARIABLES: [&str; 12] = [
    "workspaceFolder",
    "workspaceFolderBasename",
    "workspaceRoot",
    "cwd",
    "execPath",
    "file",
    "fileBasename",
    "fileDirname",
    "fileWorkspaceFolder",
    "relativeFile",
    "lineNumber",
    "selectedText",
];

/// What was found in the texts of one server.
#[derive(Debug, Default, PartialEq)]
pub(super) struct FoundVariables {
    /// Variables with a default, and the first default of each.
    pub(super) defaults: BTreeMap<String, String>,
    /// Variables with a second default, which is lost.
    pub(super) other_defaults: BTreeSet<(String, String)>,
    /// Prompts of the client by their id, with the variables that stand for them.
    pub(super) prompts: BTreeMap<String, String>,
    /// What stays as text.
    pub(super) unknown: BTreeSet<String>,
}

impl FoundVariables {
    /// The text with `${NAME}`, `${env:NAME}`, `${NAME:-default}`, `${input:ID}` and `${userHome}`
    /// as references. Other variables stay as text.
    pub(super) fn convert(&mut self, text: &str) -> String {
        let (mut out, mut rest) = (String::new(), text);
        while let Some((before, after)) = rest.split_once("${") {
            out.push_str(before);
            let Some((content, end)) = after.split_once('}') else {
                out.push_str("$${");
                rest = after;
                continue;
            };
            // After another `$` a reference would be a literal text.
            match self
                .convert_variable(content)
                .filter(|_| !out.ends_with('$'))
            {
                Some(reference) => out.push_str(&reference),
                None => {
                    self.unknown.insert(content.to_owned());
                    out.push_str(&format!("$${{{content}}}"));
                }
            }
            rest = end;
        }
        out + rest
    }

    /// The text that stands for `${content}`; `None` if only the client knows it.
    fn convert_variable(&mut self, content: &str) -> Option<String> {
        let reference = |name: &str| Some(format!("${{env:{name}}}"));
        match content {
            "userHome" => return reference("HOME"),
            "pathSeparator" | "/" => return Some("/".into()),
            editor if EDITOR_VARIABLES.contains(&editor) => return None,
            _ => {}
        }
        if let Some(id) = content.strip_prefix("input:") {
            let name = variable_name(id);
            self.prompts.insert(id.to_owned(), name.clone());
            return reference(&name);
        }
        let content = content.strip_prefix("env:").unwrap_or(content);
        let (name, default) = match content.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (content, None),
        };
        if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
            return None;
        }
        if let Some(default) = default {
            self.add_default(name, default);
        }
        reference(name)
    }

    fn add_default(&mut self, name: &str, default: &str) {
        let first = self
            .defaults
            .entry(name.to_owned())
            .or_insert_with(|| default.to_owned());
        if first != default {
            self.other_defaults
                .insert((name.to_owned(), default.to_owned()));
        }
    }
}

/// The name of the variable that stands for a prompt, such as `API_KEY` for `api-key`.
fn variable_name(id: &str) -> String {
    let name: String = id
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() {
                c.to_ascii_uppercase()
            } else {
                '_'
            }
        })
        .collect();
    if name.starts_with(|c: char| c.is_ascii_digit()) || name.is_empty() {
        format!("INPUT_{name}")
    } else {
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_become_references() {
        let mut found = FoundVariables::default();
        for (text, expected) in [
            ("${TOKEN}", "${env:TOKEN}"),
            ("a${env:B}c${C:-d}", "a${env:B}c${env:C}"),
            ("${env:C:-e}", "${env:C}"),
            ("${input:api-key}", "${env:API_KEY}"),
            ("${userHome}${/}x", "${env:HOME}/x"),
            ("${workspaceFolder}/x", "$${workspaceFolder}/x"),
            ("${config:a.b}", "$${config:a.b}"),
            ("$${X}", "$$${X}"),
            ("${open", "$${open"),
            ("plain $5", "plain $5"),
        ] {
            assert_eq!(found.convert(text), expected, "{text}");
        }
        let texts = |items: &[&str]| {
            items
                .iter()
                .map(|item| (*item).to_owned())
                .collect::<BTreeSet<_>>()
        };
        assert_eq!(
            found,
            FoundVariables {
                defaults: BTreeMap::from([("C".into(), "d".into())]),
                other_defaults: BTreeSet::from([("C".into(), "e".into())]),
                prompts: BTreeMap::from([("api-key".into(), "API_KEY".into())]),
                unknown: texts(&["workspaceFolder", "config:a.b", "X"]),
            }
        );
    }
}
