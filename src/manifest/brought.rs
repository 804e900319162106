//! What is said of the tools that a source brings: the same in every section that declares sources.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::decode::{Findings, fields, join};
use super::load::WrittenTool;
use super::node::{Key, Node};
use super::references::References;
use super::sections::{DefinitionEntry, PolicyEntry};
use super::source::{SourceRules, ToolRules};
use super::tool::ToolReader;
use crate::call::{Kind, NameError, Policy, ToolName};
use crate::tools::{StandIn, Tool};

/// Of the keys of a tool, those that a source's tool has beside its policy: the rest comes with the source.
const OF_TOOLS: [&str; 6] = ["description", "aliases", "tags", "annotations", "result_as_answer", "paging"];

impl ToolReader<'_> {
    /// Replaces references below `node`.
    pub(super) fn resolve(&mut self, node: &mut Node, under: &str, tool: bool) {
        let secrets = std::mem::take(self.secrets);
        let mut references = References { source: self.source, base: self.base, defaults: HashMap::new(), secrets };
        references.resolve(node, under, self.findings, tool);
        *self.secrets = references.secrets;
    }

    /// `tools:` below a source. `plain` is the policy of tools of which nothing is said.
    pub(super) fn tools_of(
        &mut self,
        kind: Kind,
        source: &Node,
        under: &str,
        plain: &PolicyEntry,
        rules: &mut SourceRules,
    ) -> Vec<WrittenTool> {
        let Some(node) = source.get("tools") else { return Vec::new() };
        let under = join(under, &["tools".into()]);
        let Some(entries) = node.entries() else {
            self.findings.error(node, &[], &under, "a map of the tools that it brings is expected here");
            return Vec::new();
        };
        let mut written = Vec::new();
        for (key, entry) in entries {
            let under = join(&under, std::slice::from_ref(&key.text));
            let name = format!("{}{}", rules.prefix, key.text);
            let tool = self.rules_of(kind, &name, entry, &under, plain);
            if let Some((tool_rules, _)) = &tool {
                rules.tools.insert(key.text.clone(), tool_rules.clone());
            }
            written.push(WrittenTool {
                key: Key { text: name, place: key.place.clone() },
                under,
                entry: entry.clone(),
                tool: tool.map(|(_, tool)| tool),
                base: self.base.to_owned(),
            });
        }
        written
    }

    /// What is said of one tool, and a tool of that kind for those who look at policies.
    fn rules_of(
        &mut self,
        kind: Kind,
        name: &str,
        written: &Node,
        under: &str,
        plain: &PolicyEntry,
    ) -> Option<(ToolRules, Tool)> {
        if ToolName::parse(name).is_err() {
            self.findings.error(written, &[], under, NameError.to_string());
            return None;
        }
        if written.entries().is_none() {
            self.findings.error(written, &[], under, "a map is expected here: effect, timeout, limits, cache …");
            return None;
        }
        let before = self.findings.0.len();
        let known: Vec<&str> = [fields::<PolicyEntry>(), &OF_TOOLS].concat();
        self.findings.unknown_keys(written, under, &known);
        let mut node = written.filtered(|key| known.contains(&key));
        self.resolve(&mut node, under, true);
        let said: DefinitionEntry = self.part(&node, under, &OF_TOOLS).unwrap_or_default();
        let policy: PolicyEntry = self.part(&node, under, fields::<PolicyEntry>()).unwrap_or_default();
        let policy = PolicyEntry { timeout: policy.timeout.or(plain.timeout), ..policy };
        let (description, result_as_answer) = (said.description.clone(), said.result_as_answer);
        // Its description comes with the source unless there is one here.
        let mut tool = Tool::new(name, "…");
        tool.kind = kind;
        tool.policy = Policy::default();
        let mut tool = tool.with_runner(Arc::new(StandIn::new(|| ("it is not listed yet".into(), None))));
        self.define(&mut tool, said, &node, under, None);
        self.govern(kind, &mut tool.policy, &policy, &node, under);
        let rules = ToolRules {
            policy: tool.policy.clone(),
            description,
            aliases: tool.definition.aliases.clone(),
            tags: tool.definition.tags.clone(),
            annotations: tool.definition.annotations.clone(),
            result_as_answer,
            paging: tool.definition.paging,
        };
        (!self.has_errors_since(before)).then_some((rules, tool))
    }
}

/// Says what is wrong at the keys of one entry.
pub(super) struct Checks<'a> {
    pub(super) findings: &'a mut Findings,
    pub(super) node: &'a Node,
    pub(super) under: &'a str,
}

impl Checks<'_> {
    pub(super) fn error(&mut self, key: &str, message: &str) {
        self.findings.error(self.node, &[key.to_owned()], self.under, message);
    }

    /// The file that a key names, which must be there.
    pub(super) fn file(
        &mut self,
        key: &str,
        base: &Path,
        file: &str,
        exists: &dyn Fn(&Path) -> bool,
    ) -> Option<PathBuf> {
        let path = absolute(&base.join(file));
        if exists(&path) {
            return Some(path);
        }
        // Without the `.` between: a folder `.` and `./program` make one.
        let shown: PathBuf = base.join(file).components().collect();
        self.error(key, &format!("there is no file {}", shown.display()));
        None
    }
}

/// The path seen from the root, wherever the service runs once it has started.
pub(super) fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}
