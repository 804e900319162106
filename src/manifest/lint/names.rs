//! Lint: names of two tools that differ only in spelling.

use std::collections::HashMap;

use super::Lints;
use crate::manifest::decode::join_path;
use crate::manifest::parsed::ParsedTool;
use crate::manifest::rule::Rule;
use crate::text::names::{normalize_name, strip_known_prefix};

/// A name as written, and its tool.
type NameOwner<'a> = (&'a str, &'a str);

/// Compares all tools. Two equal names are already an error of loading.
pub(super) fn check_names(tools: &[ParsedTool], lints: &mut Lints) {
    let (mut full_forms, mut bare_forms) = (
        HashMap::<String, NameOwner<'_>>::new(),
        HashMap::<String, NameOwner<'_>>::new(),
    );
    for parsed in tools {
        let tool = parsed.key.text.as_str();
        let entry_path = parsed.path.clone();
        let aliases = parsed
            .tool
            .iter()
            .flat_map(|tool| &tool.definition.aliases)
            .enumerate()
            .map(|(at, alias)| {
                let path = ["aliases".to_owned(), at.to_string()];
                (
                    alias.as_str(),
                    parsed.entry.locate(&path),
                    join_path(&entry_path, &path),
                )
            });
        for (name, location, path) in
            std::iter::once((tool, &parsed.key.location, entry_path.clone())).chain(aliases)
        {
            let (form, prefixed) = (
                normalize_name(name),
                strip_known_prefix(name).map(normalize_name),
            );
            let others = [
                full_forms.get(&form),
                prefixed.as_ref().and_then(|form| full_forms.get(form)),
                bare_forms.get(&form),
            ];
            if let Some((other, owner)) = others
                .into_iter()
                .flatten()
                .find(|(_, owner)| *owner != tool)
            {
                let owner_note = if other == owner {
                    String::new()
                } else {
                    format!(", which is `{owner}`")
                };
                let message = format!(
                    "`{name}` and `{other}`{owner_note} differ only in spelling, so a model may confuse them; rename one"
                );
                lints.warn(Rule::AmbiguousName, location, path, message);
            }
            full_forms.entry(form).or_insert((name, tool));
            if let Some(form) = prefixed {
                bare_forms.entry(form).or_insert((name, tool));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::finding_lines;

    fn name_findings(names: &[(&str, &str)]) -> Vec<String> {
        let tool = |(name, aliases): &(&str, &str)| {
            format!("  {name}:\n    kind: native\n    use: calculator\n    aliases: [{aliases}]\n")
        };
        let text = format!("tools:\n{}", names.iter().map(tool).collect::<String>());
        let mut found = finding_lines(&text, &[]);
        found.retain(|line| !line.contains("refused-name"));
        found
    }

    #[test]
    fn names_that_differ_in_spelling_only_warn() {
        assert_eq!(
            name_findings(&[("add_up", ""), ("add-up", "")]),
            ["warning ambiguous-name tools.add-up 6"]
        );
        assert_eq!(
            name_findings(&[("add_up", ""), ("sum", "other, Add.Up")]),
            ["warning ambiguous-name tools.sum.aliases.1 9"]
        );
        assert_eq!(
            name_findings(&[("add_up", "sum"), ("Sum", "")]),
            ["warning ambiguous-name tools.Sum 6"]
        );
        assert_eq!(
            name_findings(&[("sum", ""), ("functions.sum", "")]),
            ["warning ambiguous-name tools.functions.sum 6"]
        );
        assert_eq!(
            name_findings(&[("tools.sum", ""), ("sum", "")]),
            ["warning ambiguous-name tools.sum 6"]
        );
        assert_eq!(
            name_findings(&[("add_up", "Add-Up, ADD_UP"), ("add_ups", "addup")]),
            [""; 0]
        );
    }
}
