//! Reads the rules for the tools of a source. They are the same in every section that declares sources.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;

use super::context::keep_apart;
use super::decode::{Findings, fields, join};
use super::load::WrittenTool;
use super::node::{Key, Node};
use super::reference_places::Owner;
use super::references::{Declared, OmittedValue, References};
use super::sections::{DefinitionEntry, PolicyEntry};
use super::source::{SourceRules, ToolRules};
use super::tool::ToolReader;
use super::variables::Variables;
use crate::call::canonical::canonical;
use crate::call::json::digest;
use crate::call::{EnvVar, Kind, NameError, Policy, ToolName};
use crate::tools::{Tool, UnavailableTool};

/// The definition keys of a tool that may also be set for a source's tool. The source itself supplies the other parts
/// of the definition.
pub(super) const OF_TOOLS: [&str; 7] =
    ["description", "aliases", "tags", "annotations", "result_as_answer", "paging", "context"];

/// `context:` and `env:` of a source.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct GivenEntry {
    context: Option<Vec<String>>,
    env: Vec<EnvVar>,
}

impl ToolReader<'_> {
    /// Replaces references below `node`. `declared` contains the variables that `node` may refer to and that are not
    /// set. Returns the values that were left out.
    pub(super) fn resolve(
        &mut self,
        node: &mut Node,
        under: &str,
        owner: Owner,
        declared: HashMap<String, Declared>,
    ) -> Vec<OmittedValue> {
        let secrets = std::mem::take(self.secrets);
        let mut references = References { declared, owner, ..References::new(self.source, self.base, secrets) };
        references.resolve(node, under, self.findings);
        *self.secrets = references.secrets;
        references.left_out
    }

    /// Reads `tools:` of a source. `plain` is the policy of tools that are not listed.
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
            let tool = self.rules_of(kind, &name, entry, &under, (plain, rules.context.as_ref()));
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

    /// Reads the rules of one tool. Also makes a tool of that kind, for the checks that examine policies.
    fn rules_of(
        &mut self,
        kind: Kind,
        name: &str,
        written: &Node,
        under: &str,
        (plain, context): (&PolicyEntry, Option<&Vec<String>>),
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
        self.resolve(&mut node, under, Owner::Tool, HashMap::new());
        let mut said: DefinitionEntry = self.part(&node, under, &OF_TOOLS).unwrap_or_default();
        let context = self.context_fields(said.context.take(), &node, under).or_else(|| context.cloned());
        let policy: PolicyEntry = self.part(&node, under, fields::<PolicyEntry>()).unwrap_or_default();
        let policy = PolicyEntry { timeout: policy.timeout.or(plain.timeout), ..policy };
        let (description, result_as_answer) = (said.description.clone(), said.result_as_answer);
        // The source supplies the description unless the entry has one.
        let mut tool = Tool::new(name, "…");
        tool.kind = kind;
        tool.policy = Policy::default();
        let mut tool = tool.with_runner(Arc::new(UnavailableTool::new(|| ("it is not listed yet".into(), None))));
        self.define(&mut tool, said, &node, under, None);
        tool.definition.context = context;
        self.govern(kind, &mut tool.policy, &policy, &node, under);
        keep_apart(&mut tool.policy, &policy, tool.definition.context.as_deref());
        let rules = ToolRules {
            policy: tool.policy.clone(),
            description,
            aliases: tool.definition.aliases.clone(),
            tags: tool.definition.tags.clone(),
            annotations: tool.definition.annotations.clone(),
            result_as_answer,
            paging: tool.definition.paging,
            context: tool.definition.context.clone(),
        };
        (!self.has_errors_since(before)).then_some((rules, tool))
    }
}

/// The context fields and variables that a source declares.
#[derive(Default)]
pub(super) struct Given {
    pub(super) context: Option<Vec<String>>,
    pub(super) env: Vec<EnvVar>,
    pub(super) variables: Variables,
}

impl ToolReader<'_> {
    /// Reads `context:` and `env:` of a source. References are not allowed there, because callers see these values.
    pub(super) fn given(&mut self, written: &Node, under: &str) -> Given {
        let key = |name: &str| ["env", "context"].contains(&name);
        let said: GivenEntry = self.findings.decode_keys(&written.filtered(key), under).unwrap_or_default();
        let context = self.context_fields(said.context, written, under);
        let variables = self.variables(&said.env, written, under);
        Given { context, env: said.env, variables }
    }
}

impl ToolReader<'_> {
    /// Warns where `environment:` of a source overrides a variable that its `env:` declares, unless the value is that
    /// variable.
    pub(super) fn warn_of_overridden(&mut self, env: &[EnvVar], written: &Node, under: &str) {
        let Some(environment) = written.get("environment") else { return };
        for EnvVar { name, .. } in env {
            let is_copy = |value: &Node| value.to_json() == format!("${{env:{name}}}");
            if environment.get(name).is_some_and(|value| !is_copy(value)) {
                let message = "goes before the variable of this name that `env` declares, which is not used: leave one of them out";
                self.findings.warning(written, &["environment".to_owned(), name.clone()], under, message);
            }
        }
    }
}

impl Given {
    /// The environment of the program that runs the source: declared variables with a value. Entries of `environment`
    /// take precedence.
    pub(super) fn environment(&self, environment: BTreeMap<String, String>) -> BTreeMap<String, String> {
        self.variables.values.clone().into_iter().chain(environment).collect()
    }

    /// The source's settings as written, with the names of its declared variables.
    pub(super) fn written(&self, mut written: Value) -> Value {
        if !self.env.is_empty() {
            written["env"] = self.env.iter().map(|var| Value::from(var.name.as_str())).collect();
        }
        written
    }

    /// A hash of what the source runs, with references and variables replaced.
    pub(super) fn generation(&self, replaced: &Value) -> [u8; 32] {
        let replaced = canonical(replaced);
        match self.variables.values.is_empty() {
            true => digest([replaced.as_slice()]),
            false => digest([&*replaced, &serde_json::to_vec(&self.variables.sorted()).unwrap_or_default()]),
        }
    }
}

/// Reports faults at the keys of one entry.
pub(super) struct Checks<'a> {
    pub(super) findings: &'a mut Findings,
    pub(super) node: &'a Node,
    pub(super) under: &'a str,
}

impl Checks<'_> {
    pub(super) fn error(&mut self, key: &str, message: &str) {
        self.findings.error(self.node, &[key.to_owned()], self.under, message);
    }

    /// The path of the file that a key names. The file must exist.
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
        // Without `.` components, which come from a base folder `.` or a name such as `./program`.
        let shown: PathBuf = base.join(file).components().collect();
        self.error(key, &format!("there is no file {}", shown.display()));
        None
    }
}

/// The absolute path, so that it stays valid if the service changes its working folder.
pub(super) fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}
