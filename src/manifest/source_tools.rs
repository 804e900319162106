//! Reads the rules for the tools of a source. They are the same in every section that declares
//! sources.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::context::add_context_to_cache_key;
use super::decode::{Findings, field_names, join_path};
use super::node::{Key, Node};
use super::parsed::ParsedTool;
use super::policy::PolicyPattern;
use super::reference_context::EntryKind;
use super::references::{OmittedValue, References, UnsetVariable};
use super::sections::{DefinitionEntry, PolicyEntry};
use super::source::{SourceRules, ToolRules};
use super::tool::ToolReader;
use super::variables::Variables;
use crate::access::tool_pattern::is_glob;
use crate::call::canonical::canonical_json;
use crate::call::json::hash_parts;
use crate::call::{EnvVar, Kind, NameError, Policy, ToolName};
use crate::kinds::http::AuthConfig;
use crate::kinds::http::address_policy::AddressPolicy;
use crate::kinds::http::auth::RequestAuth;
use crate::kinds::{Tool, UnavailableTool};
use crate::sources::openapi::reader as openapi;

/// The definition keys of a tool that may also be set for a source's tool. The source itself
/// supplies the other parts of the definition.
pub(super) const SOURCE_TOOL_KEYS: [&str; 7] = [
    "description",
    "aliases",
    "tags",
    "annotations",
    "result_as_answer",
    "paging",
    "context",
];

/// `context:` and `env:` of a source.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct SourceInputsEntry {
    #[schemars(extend("examples" = [["tenant"]]))]
    context: Option<Vec<String>>,
    #[schemars(extend("examples" = [[{"name": "API_KEY"}]]))]
    env: Vec<EnvVar>,
}

impl ToolReader<'_> {
    /// Replaces references below `node`. `declared` contains the variables that `node` may refer to
    /// and that are not set. Returns the values that were left out.
    pub(super) fn resolve_references(
        &mut self,
        node: &mut Node,
        entry_path: &str,
        owner: EntryKind,
        declared: HashMap<String, UnsetVariable>,
    ) -> Vec<OmittedValue> {
        let secrets = std::mem::take(self.secrets);
        let mut references = References {
            unset: declared,
            entry_kind: owner,
            callers: self.callers,
            ..References::new(self.input, self.base, secrets)
        };
        references.resolve(node, entry_path, self.findings);
        *self.secrets = references.secrets;
        references.omitted
    }

    /// Checks that the entry of a source is a map of known keys. `example` names some of them.
    /// `as_entry` makes an entry of a text that was written instead of one.
    pub(super) fn check_source_entry(
        &mut self,
        unresolved: &Node,
        entry_path: &str,
        known: &[&str],
        example: &str,
        as_entry: fn(&str) -> Value,
    ) -> Option<()> {
        if !self
            .findings
            .require_entry(unresolved, entry_path, example, |text| Some(as_entry(text)))
        {
            return None;
        }
        self.findings
            .report_unknown_keys(unresolved, entry_path, known);
        Some(())
    }

    /// Reads `defaults:` and `tools:` of a source. `base` is what other keys of the source say
    /// about the policy.
    pub(super) fn read_source_tools(
        &mut self,
        kind: Kind,
        source: &Node,
        entry_path: &str,
        base: PolicyEntry,
        rules: &mut SourceRules,
    ) -> Vec<ParsedTool> {
        rules.policies.manifest = self.defaults.clone();
        rules.policies.source = match source.get("defaults") {
            Some(node) => self
                .read_policy(kind, node, &join_path(entry_path, &["defaults".into()]))
                .or(Some(&base)),
            None => base,
        };
        let Some(node) = source.get("tools") else {
            return Vec::new();
        };
        let entry_path = join_path(entry_path, &["tools".into()]);
        let Some(entries) = self.findings.require_names(node, &entry_path, "its tools") else {
            return Vec::new();
        };
        let (patterns, names): (Vec<_>, Vec<_>) =
            entries.iter().partition(|(key, _)| is_glob(&key.text));
        for (key, entry) in patterns {
            let policy = self.read_policy(
                kind,
                entry,
                &join_path(&entry_path, std::slice::from_ref(&key.text)),
            );
            let names = match kind {
                Kind::Http => openapi::name_pattern(&key.text),
                _ => key.text.clone(),
            };
            let pattern = PolicyPattern::new(&key.text, &names, policy);
            rules.policies.patterns.push(pattern);
        }
        let mut tools = Vec::new();
        for (key, entry) in names {
            let entry_path = join_path(&entry_path, std::slice::from_ref(&key.text));
            // A key may be an operationId, of which the tool's name is made.
            let own = match kind {
                Kind::Http => openapi::tool_name(&key.text),
                _ => key.text.clone(),
            };
            let tool = self.read_tool_rules(kind, &own, entry, &entry_path, rules);
            let name = format!("{}{own}", rules.prefix);
            if let Some((tool_rules, _)) = &tool {
                rules.tools.insert(own, tool_rules.clone());
            }
            tools.push(ParsedTool {
                key: Key {
                    text: name,
                    location: key.location.clone(),
                },
                path: entry_path,
                entry: entry.clone(),
                tool: tool.map(|(_, tool)| tool),
                base: self.base.to_owned(),
            });
        }
        tools
    }

    /// Reads the policy of several tools: `defaults:` of a source, or the entry of a pattern.
    fn read_policy(&mut self, kind: Kind, unresolved: &Node, entry_path: &str) -> PolicyEntry {
        if !self.findings.require_entry(
            unresolved,
            entry_path,
            "effect, timeout, limits, cache …",
            |_| None,
        ) {
            return PolicyEntry::default();
        }
        let known = field_names::<PolicyEntry>();
        self.findings
            .report_unknown_keys(unresolved, entry_path, known);
        let mut node = unresolved.filtered(|key| known.contains(&key));
        self.resolve_references(&mut node, entry_path, EntryKind::Tool, HashMap::new());
        let entry: PolicyEntry = self
            .decode_part(&node, entry_path, known)
            .unwrap_or_default();
        self.apply_source_policy(
            kind,
            &mut Policy::default(),
            &entry,
            false,
            &node,
            entry_path,
        );
        entry
    }

    /// Reads the rules of one tool. Also makes a tool of that kind, for the checks that examine
    /// policies.
    fn read_tool_rules(
        &mut self,
        kind: Kind,
        own_name: &str,
        unresolved: &Node,
        entry_path: &str,
        rules: &mut SourceRules,
    ) -> Option<(ToolRules, Tool)> {
        let name = format!("{}{own_name}", rules.prefix);
        if ToolName::parse(&name).is_err() {
            self.findings
                .error(unresolved, &[], entry_path, NameError.to_string());
            return None;
        }
        if !self.findings.require_entry(
            unresolved,
            entry_path,
            "effect, timeout, limits, cache …",
            |_| None,
        ) {
            return None;
        }
        let before = self.findings.0.len();
        let known: Vec<&str> = [field_names::<PolicyEntry>(), &SOURCE_TOOL_KEYS].concat();
        self.findings
            .report_unknown_keys(unresolved, entry_path, &known);
        let mut node = unresolved.filtered(|key| known.contains(&key));
        self.resolve_references(&mut node, entry_path, EntryKind::Tool, HashMap::new());
        let mut definition: DefinitionEntry = self
            .decode_part(&node, entry_path, &SOURCE_TOOL_KEYS)
            .unwrap_or_default();
        let context = self
            .valid_context_fields(definition.context.take(), &node, entry_path)
            .or_else(|| rules.context.clone());
        let policy: PolicyEntry = self
            .decode_part(&node, entry_path, field_names::<PolicyEntry>())
            .unwrap_or_default();
        rules
            .policies
            .exact
            .insert(own_name.to_owned(), policy.clone());
        let (own_policy, policy) = (policy, rules.policies.entry_for(own_name));
        let (description, result_as_answer) =
            (definition.description.clone(), definition.result_as_answer);
        // The source supplies the description unless the entry has one.
        let mut tool = Tool::new(&name, "…");
        tool.kind = kind;
        tool.policy = Policy::default();
        let mut tool = tool.with_runner(Arc::new(UnavailableTool::new(|| {
            ("it is not listed yet".into(), None)
        })));
        self.apply_definition(&mut tool, definition, &node, entry_path, None);
        tool.definition.context = context;
        // The method of an operation, or the trusted hint of a server, decides the effect.
        let is_effect_final = kind != Kind::Http && !rules.trust_hints;
        self.apply_source_policy(
            kind,
            &mut tool.policy,
            &policy,
            is_effect_final,
            &node,
            entry_path,
        );
        add_context_to_cache_key(
            &mut tool.policy,
            &own_policy,
            tool.definition.context.as_deref(),
        );
        let rules = ToolRules {
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
pub(super) struct SourceInputs {
    pub(super) context: Option<Vec<String>>,
    pub(super) env: Vec<EnvVar>,
    pub(super) variables: Variables,
}

impl ToolReader<'_> {
    /// Reads `context:` and `env:` of a source. References are not allowed there, because callers
    /// see these values.
    pub(super) fn read_source_inputs(
        &mut self,
        unresolved: &Node,
        entry_path: &str,
    ) -> SourceInputs {
        let key = |name: &str| ["env", "context"].contains(&name);
        let inputs: SourceInputsEntry = self
            .findings
            .decode(&unresolved.filtered(key), entry_path)
            .unwrap_or_default();
        let context = self.valid_context_fields(inputs.context, unresolved, entry_path);
        let variables = self.look_up_variables(&inputs.env, unresolved, entry_path);
        SourceInputs {
            context,
            env: inputs.env,
            variables,
        }
    }
}

impl ToolReader<'_> {
    /// Reports faults of `auth` of a source, which is prepared when the source is started.
    /// `headers` are the names of the header fields that the source sets itself.
    pub(super) fn check_auth<'h>(
        &mut self,
        auth: &AuthConfig,
        policy: AddressPolicy,
        mut headers: impl Iterator<Item = &'h String>,
        node: &Node,
        entry_path: &str,
    ) {
        if headers.any(|name| name.eq_ignore_ascii_case("authorization")) {
            let path = ["headers".to_owned(), "authorization".to_owned()];
            self.findings.error(
                node,
                &path,
                entry_path,
                "`auth` sets this header: leave one of them out",
            );
        }
        let faults = match RequestAuth::build(auth, policy, self.clients) {
            Ok((_, warnings)) => warnings,
            Err(errors) => errors,
        };
        self.report_config_faults(node, entry_path, faults);
    }

    /// Warns where `environment:` of a source overrides a variable that its `env:` declares, unless
    /// the value is that variable.
    pub(super) fn warn_overridden_variables(
        &mut self,
        env: &[EnvVar],
        unresolved: &Node,
        entry_path: &str,
    ) {
        let Some(environment) = unresolved.get("environment") else {
            return;
        };
        for EnvVar { name, .. } in env {
            let is_copy = |value: &Node| value.to_json() == format!("${{env:{name}}}");
            if environment.get(name).is_some_and(|value| !is_copy(value)) {
                let message = "takes precedence over the variable of this name in `env`, which is not used: leave \
                               one of them out";
                self.findings.warning(
                    unresolved,
                    &["environment".to_owned(), name.clone()],
                    entry_path,
                    message,
                );
            }
        }
    }
}

impl SourceInputs {
    /// The environment of the program that runs the source: declared variables with a value.
    /// Entries of `environment` take precedence.
    pub(super) fn process_environment(
        &self,
        environment: BTreeMap<String, String>,
    ) -> BTreeMap<String, String> {
        self.variables
            .values
            .clone()
            .into_iter()
            .chain(environment)
            .collect()
    }

    /// The source's settings as written, with the names of its declared variables.
    pub(super) fn with_variable_names(&self, mut settings: Value) -> Value {
        if !self.env.is_empty() {
            settings["env"] = self
                .env
                .iter()
                .map(|var| Value::from(var.name.as_str()))
                .collect();
        }
        settings
    }

    /// A hash of what the source runs, with references and variables replaced.
    pub(super) fn generation(&self, settings: &Value) -> [u8; 32] {
        let settings = canonical_json(settings);
        match self.variables.values.is_empty() {
            true => hash_parts([settings.as_slice()]),
            false => hash_parts([
                &*settings,
                &serde_json::to_vec(&self.variables.sorted_values()).unwrap_or_default(),
            ]),
        }
    }
}

/// Reports faults at the keys of one entry.
pub(super) struct EntryChecks<'a> {
    pub(super) findings: &'a mut Findings,
    pub(super) node: &'a Node,
    pub(super) entry_path: &'a str,
}

impl EntryChecks<'_> {
    pub(super) fn error(&mut self, key: &str, message: &str) {
        self.findings
            .error(self.node, &[key.to_owned()], self.entry_path, message);
    }

    /// The path of the file that a key names. The file must exist.
    pub(super) fn existing_file(
        &mut self,
        key: &str,
        base: &Path,
        file: &str,
        exists: &dyn Fn(&Path) -> bool,
    ) -> Option<PathBuf> {
        let path = absolute_path(&base.join(file));
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
pub(super) fn absolute_path(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}
