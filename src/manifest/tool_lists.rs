//! Checks lists of tool names: `allow` and `deny` of callers, lists of toolsets, `discovery.keep`, `tools` and `coworkers`
//! of agents. An entry that matches no tool is probably a mistake: the denial or the grant has no effect.
//!
//! If all names are known when the manifest is read, such an entry is an error. If a source or a
//! registration may bring the tool, it is a warning. `check` reports it at once, the service after
//! all sources have settled.

use super::Manifest;
use super::finding::{Finding, Location, Severity, join_path};
use super::node::Node;
use super::parsed::{ParsedManifest, ParsedTool};
use super::rule::Rule;
use super::source::DeclaredSource;
use crate::access::tool_pattern::{ToolPattern, any_denies, any_grants};
use crate::call::{Definition, Kind};
use crate::text::suggest;

/// The built-ins that hand work to agents.
const DELEGATING_BUILTINS: [&str; 2] = ["delegate_work", "ask_question"];

/// The kind of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ListKind {
    /// `allow:` of a caller.
    Allow,
    /// `deny:` of a caller.
    Deny,
    /// `tools:` of a toolset.
    Toolset,
    /// `tags:` of a toolset.
    Tags,
    /// `exclude:` of a toolset.
    Exclude,
    /// `keep:` of `discovery`.
    Keep,
    /// `tools:` of an agent.
    AgentTools,
    /// `coworkers:` of an agent, or of a tool that hands work to agents.
    Coworkers,
}

/// One entry of such a list.
#[derive(Debug, Clone, PartialEq, derive_more::Display)]
#[display("{location}: {path}: `{text_in_file}`")]
pub(crate) struct ListEntry {
    location: Location,
    path: String,
    kind: ListKind,
    /// The entry as in the file. The pattern may have come by reference.
    text_in_file: String,
    pattern: ToolPattern,
}

/// What is known of the existing tools.
pub(crate) struct KnownTools<'t> {
    /// Names and aliases.
    names: Vec<&'t str>,
    tags: Vec<&'t str>,
    knowledge: Knowledge,
}

impl<'t> KnownTools<'t> {
    /// All tools of the manifest and of its sources. A registration may add more.
    pub(crate) fn listed(tools: impl Iterator<Item = &'t Definition>) -> Self {
        let mut known = Self {
            names: Vec::new(),
            tags: Vec::new(),
            knowledge: Knowledge::Some,
        };
        known.extend(tools);
        known
    }

    fn extend(&mut self, tools: impl Iterator<Item = &'t Definition>) {
        for tool in tools {
            self.names.extend(tool.names());
            self.tags.extend(tool.tags.iter().map(String::as_str));
        }
    }
}

/// How many of the existing tools are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Knowledge {
    /// All tools are known.
    All,
    /// All tools of the manifest are known. A registration or a source may add more, but no agents.
    AllAgents,
    /// Any tools may be added.
    Some,
}

impl ListEntry {
    pub(super) fn new(list: ListKind, node: &Node, path: String, text: &str) -> Self {
        let text_in_file = node.as_str().unwrap_or(text).to_owned();
        Self {
            location: node.location.clone(),
            path,
            kind: list,
            text_in_file,
            pattern: ToolPattern::new(text),
        }
    }

    fn matches_any(&self, known: &KnownTools<'_>) -> bool {
        let names = known.names.iter().copied();
        let pattern = std::slice::from_ref(&self.pattern);
        match self.kind {
            ListKind::Tags => known.tags.contains(&self.pattern.text()),
            ListKind::Deny | ListKind::Exclude => any_denies(pattern, names, |_| false),
            ListKind::Allow
            | ListKind::Toolset
            | ListKind::Keep
            | ListKind::AgentTools
            | ListKind::Coworkers => any_grants(pattern, names, |_| false),
        }
    }

    /// Whether it stands for tools that are unknown before the sources are listed.
    fn needs_listed_tools(&self) -> bool {
        self.pattern.is_glob() || self.kind == ListKind::Tags
    }

    /// The finding if the entry matches none of these tools.
    pub(crate) fn finding_for(&self, known: &KnownTools<'_>) -> Option<Finding> {
        if self.pattern.text() == "*" || self.matches_any(known) {
            return None;
        }
        let is_tag = self.kind == ListKind::Tags;
        let similar = if is_tag { &known.tags } else { &known.names };
        let near = suggest::near_name(self.pattern.text(), similar.iter().copied());
        let is_known = match known.knowledge {
            Knowledge::All => true,
            Knowledge::AllAgents => self.kind == ListKind::Coworkers,
            Knowledge::Some => false,
        };
        let severity = match (self.needs_listed_tools(), self.kind) {
            (false, _) if is_known => Severity::Error,
            // This may be a precaution, unless the name resembles another.
            (true, ListKind::Deny | ListKind::Exclude) if near.is_none() => Severity::Hint,
            _ => Severity::Warning,
        };
        let advice = match near {
            Some(near) => format!("did you mean {near}?"),
            None if severity == Severity::Hint => "that is fine as a precaution".to_owned(),
            None if is_known => "correct it, or leave it out".to_owned(),
            None => "correct it, unless a source or a registration will add the tool".to_owned(),
        };
        let effect = match self.kind {
            ListKind::Allow => ", so it allows nothing",
            ListKind::Deny => ", so it denies nothing",
            ListKind::Toolset | ListKind::Tags => ", so it adds nothing to the toolset",
            ListKind::Keep => ", so it keeps nothing in the lists",
            ListKind::Exclude => ", so it excludes nothing",
            ListKind::AgentTools => ", so the agent has no such tool",
            ListKind::Coworkers => ", so it is not an agent",
        };
        let rule = if self.kind == ListKind::Coworkers {
            Rule::UnknownCoworker
        } else {
            Rule::IdlePattern
        };
        let matches = if is_tag { "is a tag of" } else { "matches" };
        let message = format!(
            "`{}` {matches} no tool{effect}; {advice}",
            self.text_in_file
        );
        Some(Finding {
            location: self.location.clone(),
            path: self.path.clone(),
            message,
            severity,
            rule,
        })
    }
}

/// The entries of the lists of agents, and of tools that hand work to agents.
pub(super) fn agent_lists(tools: &[ParsedTool]) -> Vec<ListEntry> {
    let mut entries = Vec::new();
    for parsed in tools {
        let Some(tool) = &parsed.tool else { continue };
        let (path, coworkers) = (&parsed.path, ListKind::Coworkers);
        if tool.kind == Kind::Agent {
            entries.extend(list_entries(
                ListKind::AgentTools,
                &parsed.entry,
                path,
                "tools",
            ));
            entries.extend(list_entries(coworkers, &parsed.entry, path, "coworkers"));
        } else if tool.kind == Kind::Native
            && DELEGATING_BUILTINS.contains(&builtin_name(parsed).as_str())
            && let Some(with) = parsed.entry.get("with")
        {
            let path = join_path(path, &["with"]);
            entries.extend(list_entries(coworkers, with, &path, "coworkers"));
        }
    }
    entries
}

/// The name of the built-in that an entry of kind `native` uses.
pub(super) fn builtin_name(parsed: &ParsedTool) -> String {
    let native_name = parsed.entry.get("use").map(Node::to_json);
    native_name
        .and_then(|word| word.as_str().map(str::to_owned))
        .unwrap_or_else(|| parsed.key.text.clone())
}

pub(super) fn list_entries(
    list: ListKind,
    node: &Node,
    entry_path: &str,
    key: &str,
) -> Vec<ListEntry> {
    let items = node.get(key).map(Node::items).unwrap_or_default();
    let entry = |(at, item): (usize, &Node)| {
        let text = item.as_str().filter(|text| !text.contains("${"))?;
        let path = join_path(entry_path, &[key, &at.to_string()]);
        Some(ListEntry::new(list, item, path, text))
    };
    items.iter().enumerate().filter_map(entry).collect()
}

/// The findings about the lists of a manifest when it is read. `is_standalone`: no program adds
/// tools to it.
pub(super) fn check_lists(
    manifest: &Manifest,
    parsed: &ParsedManifest,
    natives: &[&Definition],
    is_standalone: bool,
) -> Vec<Finding> {
    // Without callers, every client may register tools.
    let may_register =
        manifest.callers.is_empty() || manifest.callers.iter().any(|caller| caller.admin);
    let knowledge = match is_standalone {
        true if parsed.sources.is_empty() && !may_register => Knowledge::All,
        true => Knowledge::AllAgents,
        false => Knowledge::Some,
    };
    let of_source = |source: &DeclaredSource| -> Vec<String> {
        let (rules, prefix) = (&source.rules, &source.rules.prefix);
        rules
            .known_tools()
            .map(|own| format!("{prefix}{own}"))
            .collect()
    };
    let source_tools: Vec<String> = manifest.sources.iter().flat_map(of_source).collect();
    let own = manifest.tools.iter().map(|tool| &tool.definition);
    let mut known = KnownTools {
        knowledge,
        ..KnownTools::listed(own.chain(natives.iter().copied()))
    };
    known.names.extend(source_tools.iter().map(String::as_str));
    let is_listed = parsed.sources.is_empty();
    let mut entries = manifest.tool_lists.iter().collect::<Vec<_>>();
    entries.retain(|entry| is_listed || !entry.needs_listed_tools());
    entries
        .into_iter()
        .filter_map(|entry| entry.finding_for(&known))
        .collect()
}

/// Judges the entries again, when the sources are listed. Their tools are no coworkers.
pub(super) fn recheck_lists(
    entries: &[ListEntry],
    known: &KnownTools<'_>,
    findings: &mut Vec<Finding>,
) {
    for entry in entries.iter().filter(|one| one.kind != ListKind::Coworkers) {
        findings.retain(|finding| {
            finding.rule != Rule::IdlePattern
                || (&finding.path, &finding.location) != (&entry.path, &entry.location)
        });
        findings.extend(entry.finding_for(known));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::path::Path;

    use crate::manifest::{Finding, ManifestInput, Severity, check, load};

    struct Text(String);

    impl ManifestInput for Text {
        fn env_var(&self, name: &str) -> Option<String> {
            (name == "DENIED").then(|| "nobody".into())
        }

        fn read_text(&self, path: &Path) -> std::io::Result<String> {
            match path
                .extension()
                .is_some_and(|extension| extension == "lock")
            {
                true => Err(std::io::ErrorKind::NotFound.into()),
                false => Ok(self.0.clone()),
            }
        }
    }

    const TOOLS: &str = "tools:\n  send_mail: {kind: native, use: calculator, aliases: [mailer]}\n";

    fn findings(callers: &str, more: &str) -> Vec<Finding> {
        let text = format!("{TOOLS}{more}callers:\n{callers}");
        let mut found = check(Path::new("t.yaml"), &Text(text), &HashMap::new()).findings;
        found.retain(|finding| {
            ["idle-pattern", "unknown-coworker"].contains(&finding.rule.as_str())
        });
        found
    }

    fn caller(lists: &str) -> String {
        format!("  - {{name: a, key: a-key-0123456789abcdef, {lists}}}\n")
    }

    #[test]
    fn unknown_names_are_errors() {
        for list in ["allow: [mailr]", "deny: [mailr]"] {
            let found = findings(&caller(list), "");
            assert_eq!(found.len(), 1, "{found:?}");
            let text = found[0].to_string();
            assert!(
                text.starts_with("t.yaml:4:") && text.contains("did you mean mailer?"),
                "{text}"
            );
            assert_eq!(found[0].severity, Severity::Error);
        }
        let found = findings(&caller("deny: [\"${env:DENIED}\"]"), "");
        assert!(found[0].message.contains("`${env:DENIED}`"), "{}", found[0]);
    }

    #[test]
    fn possibly_registered_names_are_warnings() {
        let admin = "  - {name: b, key: b-key-0123456789abcdef, admin: true}\n";
        let server = "mcp_servers: {s: {command: [x], tools: {known: {}}}}\n";
        for (callers, more) in [
            (caller("deny: [mailr]") + admin, ""),
            (caller("deny: [s_other]"), server),
        ] {
            let found = findings(&callers, more);
            assert_eq!(found.len(), 1, "{found:?}");
            assert_eq!(found[0].severity, Severity::Warning);
            let loaded = load(
                Path::new("t.yaml"),
                &Text(format!("{TOOLS}{more}callers:\n{callers}")),
                &HashMap::new(),
            );
            let manifest = loaded.unwrap_or_else(|findings| panic!("{findings:?}"));
            assert_eq!(
                manifest
                    .warnings
                    .iter()
                    .filter(|found| found.rule.as_str() == "idle-pattern")
                    .count(),
                0
            );
            assert_eq!(
                manifest.tool_lists.len(),
                1,
                "checked again when the sources are listed"
            );
        }
        assert_eq!(findings(&caller("deny: [s_known, S-Known]"), server), []);
    }

    #[test]
    fn aliases_and_spellings_are_known() {
        for list in [
            "deny: [mailer]",
            "deny: [Send-Mail, functions.mailer, 'Mail*']",
            "allow: [MAILER, 'send_*', '*']",
        ] {
            assert_eq!(findings(&caller(list), ""), [], "{list}");
        }
    }

    #[test]
    fn idle_patterns_are_warnings_or_hints() {
        let severity = |list: &str| {
            findings(&caller(list), "")
                .first()
                .map(|found| found.severity)
        };
        assert_eq!(severity("deny: ['frobnicate_*']"), Some(Severity::Hint));
        assert_eq!(severity("deny: ['send_mial*']"), Some(Severity::Warning));
        assert_eq!(severity("allow: ['frobnicate_*']"), Some(Severity::Warning));
        assert_eq!(
            severity("allow: ['Send-*']"),
            Some(Severity::Warning),
            "patterns that grant are read as written"
        );
    }

    #[test]
    fn kept_tools_and_toolsets_are_checked_too() {
        let line = |discovery: &str| {
            let more = format!("discovery: {discovery}\n");
            let found = findings(&caller("allow: ['*']"), &more);
            found.first().map(ToString::to_string).unwrap_or_default()
        };
        let name = line("{keep: [mailer, mailr]}");
        let expected = "discovery.keep.1: `mailr` matches no tool, so it keeps nothing in the lists; did you mean mailer?";
        assert!(
            name.starts_with("t.yaml:3:") && name.contains(expected),
            "{name}"
        );
        assert!(line("{keep: ['fax_*']}").contains("`fax_*` matches no tool"));
        assert_eq!(line("{keep: [search_tools, 'send_*', Mailer]}"), "");

        let toolset = |keys: &str| {
            let tools = "  tagged: {kind: native, use: calculator, tags: [post]}\n";
            let found = findings(
                &caller("allow: ['*']"),
                &format!("{tools}toolsets: {{s: {{{keys}}}}}\n"),
            );
            found
                .iter()
                .map(|one| format!("{:?} {}", one.severity, one.message))
                .collect::<Vec<_>>()
        };
        assert_eq!(toolset("tags: [post]"), [""; 0]);
        assert_eq!(
            toolset("tools: ['fax_*'], tags: [pots]"),
            [
                "Warning `fax_*` matches no tool, so it adds nothing to the toolset; correct it, or leave it out",
                "Warning `pots` is a tag of no tool, so it adds nothing to the toolset; did you mean post?",
            ]
        );
    }

    #[test]
    fn tools_of_discovery_are_known() {
        let lists = "allow: [send_mail, search_tools], deny: [call_tool]";
        assert_eq!(findings(&caller(lists), "discovery: {}\n"), []);
        assert_eq!(
            findings(&caller(lists), "").len(),
            2,
            "without discovery, both names are unknown"
        );
    }

    #[test]
    fn agent_lists_are_checked_too() {
        let model = "model: {base_url: 'http://127.0.0.1:1/v1', name: m}";
        let agent = |keys: &str| {
            format!("  boss: {{kind: agent, description: It decides., {model}, {keys}}}\n")
        };
        let of = |keys: &str| findings(&caller("allow: ['*']"), &agent(keys));
        assert_eq!(of("tools: [mailer, Send-Mail], coworkers: [BOSS]"), []);
        let found = of("tools: [mailr], coworkers: [bos]");
        assert_eq!(
            found.iter().map(|found| found.severity).collect::<Vec<_>>(),
            [Severity::Error, Severity::Error]
        );
        let admin = caller("admin: true");
        let severities: Vec<_> = findings(&admin, &agent("tools: [x], coworkers: [x]"))
            .iter()
            .map(|f| f.severity)
            .collect();
        assert_eq!(
            severities,
            [Severity::Error, Severity::Warning],
            "no registration brings an agent"
        );
    }
}
