//! Reads `toolsets:`.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::decode::{Entry, Findings};
use super::finding::join_path;
use super::sections::ToolsetEntry;
use super::tool_lists::{ListEntry, ListKind, list_entries};
use crate::access::toolset::Toolset;
use crate::call::ToolName;

/// The toolsets, and the entries of their lists.
pub(super) fn read_toolsets(
    root: Entry<'_>,
    findings: &Findings,
) -> (BTreeMap<Arc<str>, Toolset>, Vec<ListEntry>) {
    let (mut toolsets, mut entries) = (BTreeMap::new(), Vec::new());
    let section = root
        .get("toolsets")
        .map(|node| findings.entry(node, "toolsets"));
    let named = section.and_then(|section| section.require_names("toolsets"));
    for (name, node) in named.unwrap_or_default() {
        let path = join_path("toolsets", &[&name.text]);
        let entry = findings.entry(node, &path);
        let Some(set) = entry.decode::<ToolsetEntry>() else {
            continue;
        };
        if ToolName::parse(&name.text).is_err() {
            entry.own_error("a toolset's name has 1 to 128 characters of A-Z a-z 0-9 _ - .");
        }
        if set.tools.is_empty() && set.tags.is_empty() {
            entry.own_error("selects no tool: add `tools` or `tags`");
        }
        entries.extend(list_entries(ListKind::Toolset, node, &path, "tools"));
        entries.extend(list_entries(ListKind::Tags, node, &path, "tags"));
        entries.extend(list_entries(ListKind::Exclude, node, &path, "exclude"));
        let toolset = Toolset::new(&set.tools, set.tags, &set.exclude);
        toolsets.insert(name.text.as_str().into(), toolset);
    }
    (toolsets, entries)
}

#[cfg(test)]
mod tests {
    use super::super::testing::load_text;

    fn errors(text: &str) -> Vec<String> {
        let text = format!("tools: {{calculator: {{kind: native}}}}\n{text}");
        load_text(&text).err().unwrap_or_default()
    }

    #[test]
    fn discovery_adds_its_tools() {
        let names = |text: &str| -> Vec<String> {
            let text = format!("tools: {{calculator: {{kind: native}}, {text}}}\ndiscovery: {{}}");
            let tools = load_text(&text).map(|manifest| manifest.tools);
            let name = |tool: &crate::kinds::Tool| tool.name().to_owned();
            tools.map_or_else(|errors| errors, |tools| tools.iter().map(name).collect())
        };
        assert_eq!(names(""), ["calculator", "search_tools", "call_tool"]);
        assert_eq!(
            names("find: {kind: native, use: search_tools}"),
            ["calculator", "find"]
        );
        let conflict = names("search_tools: {kind: native, use: calculator}").concat();
        assert!(
            conflict.contains("another tool has this name"),
            "{conflict}"
        );
        for (bound, expected) in [("40", "a text is expected"), ("40 cats", "10k tokens")] {
            let found = errors(&format!("discovery: {{above: {bound}}}")).concat();
            assert!(found.contains(expected), "{found}");
        }
    }

    #[test]
    fn mistakes_in_toolsets_are_explained() {
        for (text, expected) in [
            ("toolsets: {math: {tools: [calculator]}}", ""),
            ("toolsets: {math: {tags: [x]}}", ""),
            ("toolsets: [math]", "a map of toolsets is expected"),
            ("toolsets: {math: {}}", "selects no tool"),
            ("toolsets: {math: {exclude: [x*]}}", "selects no tool"),
            ("toolsets: {a/b: {tags: [x]}}", "A-Z a-z 0-9"),
            ("toolsets: {math: {tool: [x]}}", "tools"),
            (
                "callers: [{name: a, key: 'a-key-0123456789abcdef', toolset: maths}]\ntoolsets: {math: {tags: [x]}}",
                "there is no toolset `maths`: `toolsets` declares math",
            ),
        ] {
            let found = errors(text);
            match expected {
                "" => assert_eq!(found, [""; 0], "{text}"),
                expected => assert!(found.concat().contains(expected), "{text}: {found:?}"),
            }
        }
    }
}
