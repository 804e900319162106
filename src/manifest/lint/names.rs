//! Lint: names of two tools that differ only in spelling.

use std::collections::HashMap;

use super::Lints;
use crate::manifest::decode::join;
use crate::manifest::load::WrittenTool;
use crate::manifest::rule::Rule;
use crate::names::{normal, unprefixed};

/// A name as written, and its tool.
type Owner<'a> = (&'a str, &'a str);

/// Compares all tools. Two equal names are already an error of loading.
pub(super) fn look(tools: &[WrittenTool], lints: &mut Lints) {
    let (mut whole, mut bare) = (HashMap::<String, Owner<'_>>::new(), HashMap::<String, Owner<'_>>::new());
    for written in tools {
        let tool = written.key.text.as_str();
        let under = written.under.clone();
        let aliases = written.tool.iter().flat_map(|tool| &tool.definition.aliases).enumerate().map(|(at, alias)| {
            let path = ["aliases".to_owned(), at.to_string()];
            (alias.as_str(), written.entry.locate(&path), join(&under, &path))
        });
        for (name, place, path) in std::iter::once((tool, &written.key.place, under.clone())).chain(aliases) {
            let (form, prefixed) = (normal(name), unprefixed(name).map(normal));
            let others = [whole.get(&form), prefixed.as_ref().and_then(|form| whole.get(form)), bare.get(&form)];
            if let Some((other, owner)) = others.into_iter().flatten().find(|(_, owner)| *owner != tool) {
                let whose = if other == owner { String::new() } else { format!(", which is `{owner}`") };
                let message = format!(
                    "`{name}` and `{other}`{whose} differ in spelling only: what a model writes may mean either, and it \
                     mixes them up; rename one"
                );
                lints.warn(Rule::AmbiguousName, place, path, message);
            }
            whole.entry(form).or_insert((name, tool));
            if let Some(form) = prefixed {
                bare.entry(form).or_insert((name, tool));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::found;

    fn of(names: &[(&str, &str)]) -> Vec<String> {
        let tool = |(name, aliases): &(&str, &str)| {
            format!("  {name}:\n    kind: native\n    use: calculator\n    aliases: [{aliases}]\n")
        };
        let text = format!("tools:\n{}", names.iter().map(tool).collect::<String>());
        let mut found = found(&text, &[]);
        found.retain(|line| !line.contains("refused-name"));
        found
    }

    #[test]
    fn names_and_aliases_of_two_tools_differ_in_more_than_spelling() {
        assert_eq!(of(&[("add_up", ""), ("add-up", "")]), ["warning ambiguous-name tools.add-up 6"]);
        assert_eq!(of(&[("add_up", ""), ("sum", "other, Add.Up")]), ["warning ambiguous-name tools.sum.aliases.1 9"]);
        assert_eq!(of(&[("add_up", "sum"), ("Sum", "")]), ["warning ambiguous-name tools.Sum 6"]);
        assert_eq!(of(&[("sum", ""), ("functions.sum", "")]), ["warning ambiguous-name tools.functions.sum 6"]);
        assert_eq!(of(&[("tools.sum", ""), ("sum", "")]), ["warning ambiguous-name tools.sum 6"]);
        assert_eq!(of(&[("add_up", "Add-Up, ADD_UP"), ("add_ups", "addup")]), [""; 0]);
    }
}
