//! Texts in the settings of other MCP clients: their variables become references of a manifest.

use std::collections::{BTreeMap, BTreeSet};

use crate::call::words;
use crate::manifest::looks_like_secret;

/// Variables of editors that only the editor knows.
const EDITOR_VARIABLES: [&str; 12] = words(
    "workspaceFolder workspaceFolderBasename workspaceRoot cwd execPath file fileBasename
     fileDirname fileWorkspaceFolder relativeFile lineNumber selectedText",
);

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
    /// Secrets that stood in the file, by the variables that stand for them.
    pub(super) secrets: BTreeMap<String, String>,
}

impl FoundVariables {
    /// The text with `${NAME}`, `${env:NAME}`, `${NAME:-default}`, `${input:ID}`, `${userHome}`,
    /// `${{ secrets.NAME }}`, `$NAME`, `{env:NAME}` and `{file:PATH}` as references. Other variables
    /// stay as text.
    pub(super) fn convert(&mut self, text: &str) -> String {
        self.convert_parts(text, convert_plain)
    }

    /// The same for the script of a shell, where `$NAME` is a variable of the shell.
    pub(super) fn convert_script(&mut self, text: &str) -> String {
        self.convert_parts(text, str::to_owned)
    }

    fn convert_parts(&mut self, text: &str, convert_plain: fn(&str) -> String) -> String {
        // GitHub hands these to the servers of its agent, with or without `$`.
        if text.starts_with("COPILOT_MCP_") && is_variable(text) {
            return format!("${{env:{text}}}");
        }
        let (mut out, mut rest) = (String::new(), text);
        while let Some((before, after)) = rest.split_once("${") {
            out.push_str(&convert_plain(before));
            if let Some((content, end)) = after
                .strip_prefix('{')
                .and_then(|after| after.split_once("}}"))
            {
                let name = content.trim().rsplit('.').next().unwrap_or_default();
                out.push_str(&format!("${{env:{name}}}"));
                rest = end;
                continue;
            }
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
        out + &convert_plain(rest)
    }

    /// The text of `convert`, or a reference in place of a secret. `variable` names the variable
    /// that stands for it then, and `key` what the secret is for.
    pub(super) fn convert_secret(&mut self, key: &str, text: &str, variable: &str) -> String {
        let converted = self.convert(text);
        if !looks_like_secret(key, &converted) {
            return converted;
        }
        let scheme = ["Bearer ", "Basic ", "Token "]
            .into_iter()
            .find(|scheme| text.starts_with(scheme))
            .unwrap_or_default();
        let secret = text[scheme.len()..].to_owned();
        let name = variable_name(variable);
        let numbered = (2..).map(|number| format!("{name}_{number}"));
        let free = std::iter::once(name.clone())
            .chain(numbered)
            .find(|name| self.secrets.get(name).is_none_or(|other| *other == secret));
        let name = free.unwrap_or(name);
        self.secrets.insert(name.clone(), secret);
        format!("{scheme}${{env:{name}}}")
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

/// The text with `$NAME`, `{env:NAME}` and `{file:PATH}` as references.
fn convert_plain(text: &str) -> String {
    let (mut out, mut rest) = (String::new(), text);
    while let Some(at) = rest.find(['$', '{']) {
        let (before, after) = rest.split_at(at);
        out.push_str(before);
        let braced = ["{env:", "{file:"].iter().find_map(|start| {
            let (content, end) = after.strip_prefix(start)?.split_once('}')?;
            Some((format!("${{{}{content}}}", &start[1..]), end))
        });
        let plain = || {
            let after = after.strip_prefix('$').filter(|_| !before.ends_with('$'))?;
            let end = after.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
            let (name, end) = after.split_at(end.unwrap_or(after.len()));
            is_variable(name).then(|| (format!("${{env:{name}}}"), end))
        };
        match braced.or_else(plain) {
            Some((reference, end)) => {
                out.push_str(&reference);
                rest = end;
            }
            None => {
                let (sign, end) = after.split_at(1);
                out.push_str(sign);
                rest = end;
                // In `$$NAME` the second sign belongs to the first.
                if let Some(end) = rest.strip_prefix('$').filter(|_| sign == "$") {
                    out.push('$');
                    rest = end;
                }
            }
        }
    }
    out + rest
}

/// Whether this is the name of a variable as people write them: in capitals.
fn is_variable(name: &str) -> bool {
    name.len() > 1
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name
            .chars()
            .all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
}

/// The name of the variable that stands for a prompt or a secret, such as `API_KEY` for `api-key`.
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
    fn secrets_become_variables() {
        let mut found = FoundVariables::default();
        let token = "ghp_0123456789abcdef0123";
        for (key, text, variable, expected) in [
            ("GH", token, "GH", "${env:GH}"),
            (
                "authorization",
                "Bearer abcdefgh12345678",
                "docs_authorization",
                "Bearer ${env:DOCS_AUTHORIZATION}",
            ),
            ("X_TOKEN", "another-token-1", "GH", "${env:GH_2}"),
            ("GH", token, "GH", "${env:GH}"),
            ("LEVEL", "debug-everything", "LEVEL", "debug-everything"),
        ] {
            assert_eq!(found.convert_secret(key, text, variable), expected);
        }
        assert_eq!(found.secrets["GH"], token);
    }

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
            ("$TOKEN", "${env:TOKEN}"),
            ("Bearer $A_1/x", "Bearer ${env:A_1}/x"),
            ("$$TOKEN $Path $X", "$$TOKEN $Path $X"),
            ("a{env:KEY}{file:~/k}{b}", "a${env:KEY}${file:~/k}{b}"),
            ("${{ secrets.KEY }}!", "${env:KEY}!"),
            ("COPILOT_MCP_KEY", "${env:COPILOT_MCP_KEY}"),
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
                ..FoundVariables::default()
            }
        );
    }
}
