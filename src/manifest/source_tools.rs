//! Reads the entry of a source, and the rules for its tools. They are the same in every section that
//! declares sources.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::context::{add_context_to_cache_key, valid_context_fields};
use super::decode::{Entry, field_names};
use super::finding::join_path;
use super::inputs::Inputs;
use super::node::{Key, Node};
use super::parsed::ParsedTool;
use super::policy::{PolicyPattern, apply_policy, refuse_shared_cache};
use super::reference_context::EntryKind;
use super::references::explain_omitted_values;
use super::sections::{DefinitionEntry, PolicyEntry};
use super::source::{DeclaredSource, SourceRules, ToolRules};
use super::tool::{apply_definition, report_config_faults};
use super::variables::{Variables, look_up_variables};
use crate::access::tool_pattern::is_glob;
use crate::call::canonical::canonical_json;
use crate::call::json::hash_parts;
use crate::call::units::HumanDuration;
use crate::call::words;
use crate::call::{EnvVar, Kind, NameError, Policy, ToolName};
use crate::kinds::http::AuthConfig;
use crate::kinds::http::address_policy::AddressPolicy;
use crate::kinds::http::auth::RequestAuth;
use crate::kinds::literal::has_caller_reference;
use crate::kinds::{Tool, UnavailableTool};
use crate::sources::SourceSettings;
use crate::sources::openapi::reader as openapi;

/// The definition keys of a tool that may also be set for a source's tool. The source itself
/// supplies the other parts of the definition.
pub(super) const SOURCE_TOOL_KEYS: [&str; 7] =
    words("description aliases tags annotations result_as_answer paging context");
/// Keys of a source that are read separately.
const SEPARATE_KEYS: [&str; 4] = ["tools", "defaults", "context", "env"];
/// The default time to start a source and to list its tools. `npx` and `uvx` download on their
/// first run, and imports of large libraries take many seconds.
pub(super) const DEFAULT_START_TIMEOUT: Duration = Duration::from_secs(60);

/// The entry of a section that declares sources of tools.
pub(super) trait SourceEntry: Default + DeserializeOwned + JsonSchema {
    const KIND: Kind;
    /// Keys that define what runs.
    const RUNTIME_KEYS: &[&str];
    /// Some keys, for a message.
    const SOME_KEYS: &str;

    /// The longest name of a source.
    const MAX_NAME: usize = ToolName::MAX_LEN;
    /// What is expected of a name.
    const NAME_RULE: &str;

    /// The entry of a text that was written instead of one.
    fn from_text(text: &str) -> Value;

    /// The rules for its tools, apart from what all sections have.
    fn rules(&self, name: &str) -> SourceRules;

    /// What its own keys say about the policy of its tools.
    fn base_policy(&self) -> PolicyEntry {
        PolicyEntry::default()
    }

    /// The settings. `None` if something was reported that prevents them.
    fn settings(self, name: &str, source: &Source<'_>) -> Option<SourceSettings>;

    /// Reports what does not fit together. Everything else fits.
    fn check(_: &SourceSettings, _: &SourceRules, _: &Inputs<'_>, _: Entry<'_>) {}
}

/// The entry of a source that is read.
pub(super) struct Source<'a> {
    pub(super) inputs: &'a Inputs<'a>,
    /// With its references replaced.
    pub(super) entry: Entry<'a>,
    pub(super) declared: DeclaredInputs,
}

/// Reads one entry, and the entries of its tools.
pub(super) fn read_source<S: SourceEntry>(
    inputs: &Inputs<'_>,
    name: &str,
    unresolved: Entry<'_>,
) -> Option<(DeclaredSource, Vec<ParsedTool>)> {
    if ToolName::parse(name).is_err() || name.len() > S::MAX_NAME {
        unresolved.own_error(S::NAME_RULE);
        return None;
    }
    let findings = unresolved.findings;
    let before = findings.len();
    if !unresolved.require_map(S::SOME_KEYS, |text| Some(S::from_text(text))) {
        return None;
    }
    let known = field_names::<S>();
    unresolved.report_unknown_keys(known);
    let declared = match known.contains(&"env") {
        true => read_declared_inputs(inputs, unresolved),
        false => DeclaredInputs::default(),
    };
    warn_overridden_variables(&declared.env, unresolved);
    let is_read = |key: &str| known.contains(&key) && !SEPARATE_KEYS.contains(&key);
    let mut node = unresolved.node.filtered(is_read);
    let unset = declared.variables.unset.clone();
    let omitted = inputs.resolve_references(&mut node, unresolved, EntryKind::Source, unset);
    let entry = unresolved.with_node(&node);
    let settings = entry
        .decode::<S>()
        .filter(|_| !findings.has_error(before, |_| true));
    let is_readable = settings.is_some();
    let settings = settings.unwrap_or_default();

    let mut rules = SourceRules {
        context: declared.context.clone(),
        env: declared.env.clone(),
        ..settings.rules(name)
    };
    if ToolName::parse(&format!("{}x", rules.prefix)).is_err() {
        entry.error(&["prefix"], NameError.to_string());
    }
    let base = settings.base_policy();
    if base != PolicyEntry::default() {
        apply_policy(S::KIND, &mut Policy::default(), &base, inputs, true, entry);
    }
    // The entries of its tools are checked even if the source cannot be used.
    let tools = read_source_tools(inputs, S::KIND, unresolved, base, &mut rules);
    let source = Source {
        inputs,
        entry,
        declared,
    };
    let settings = is_readable
        .then(|| settings.settings(name, &source))
        .flatten();
    if has_caller_reference(&node.to_json().to_string()) {
        refuse_shared_caches(&rules, unresolved);
    }
    if let Some(settings) = settings
        .as_ref()
        .filter(|_| !findings.has_error(before, |_| true))
    {
        S::check(settings, &rules, inputs, unresolved);
    }
    if findings.has_error(before, |_| true) {
        explain_omitted_values(omitted, before, findings);
        return None;
    }
    let runs = |node: &Node| {
        node.filtered(|key| S::RUNTIME_KEYS.contains(&key))
            .to_json()
    };
    let source = DeclaredSource {
        settings: settings?,
        rules,
        written_settings: source.declared.with_variable_names(runs(unresolved.node)),
        generation: source.declared.generation(&runs(&node)),
    };
    Some((source, tools))
}

/// Reads `defaults:` and `tools:` of a source. `base` is what other keys of the source say about
/// the policy.
fn read_source_tools(
    inputs: &Inputs<'_>,
    kind: Kind,
    source: Entry<'_>,
    base: PolicyEntry,
    rules: &mut SourceRules,
) -> Vec<ParsedTool> {
    let findings = source.findings;
    rules.policies.manifest = inputs.defaults.clone();
    rules.policies.source = match source.get("defaults") {
        Some(node) => {
            let path = join_path(source.path, &["defaults"]);
            read_policy(inputs, kind, findings.entry(node, &path)).or(Some(&base))
        }
        None => base,
    };
    let path = join_path(source.path, &["tools"]);
    let node = source.get("tools");
    let entries = node.and_then(|node| findings.entry(node, &path).require_names("its tools"));
    let (patterns, names): (Vec<_>, Vec<_>) = entries
        .unwrap_or_default()
        .iter()
        .partition(|(key, _)| is_glob(&key.text));
    for (key, node) in patterns {
        let path = join_path(&path, &[&key.text]);
        let policy = read_policy(inputs, kind, findings.entry(node, &path));
        let names = match kind {
            Kind::Http => openapi::name_pattern(&key.text),
            _ => key.text.clone(),
        };
        let pattern = PolicyPattern::new(&key.text, &names, policy);
        rules.policies.patterns.push(pattern);
    }
    let mut tools = Vec::new();
    for (key, node) in names {
        let path = join_path(&path, &[&key.text]);
        // A key may be an operationId, of which the tool's name is made.
        let own = match kind {
            Kind::Http => openapi::tool_name(&key.text),
            _ => key.text.clone(),
        };
        let tool = read_tool_rules(inputs, kind, &own, findings.entry(node, &path), rules);
        let text = format!("{}{own}", rules.prefix);
        if let Some((tool_rules, _)) = &tool {
            rules.tools.insert(own, tool_rules.clone());
        }
        let location = key.location.clone();
        tools.push(ParsedTool {
            key: Key { text, location },
            path,
            entry: node.clone(),
            tool: tool.map(|(_, tool)| tool),
            base: inputs.base.to_owned(),
        });
    }
    tools
}

/// Checks that an entry with a policy is a map of known keys. Returns it with its references
/// replaced.
fn resolved_policy(inputs: &Inputs<'_>, known: &[&str], unresolved: Entry<'_>) -> Option<Node> {
    if !unresolved.require_map("effect, timeout, limits, cache …", |_| None) {
        return None;
    }
    unresolved.report_unknown_keys(known);
    let mut node = unresolved.node.filtered(|key| known.contains(&key));
    inputs.resolve_references(&mut node, unresolved, EntryKind::Tool, HashMap::new());
    Some(node)
}

/// Reads the policy of several tools: `defaults:` of a source, or the entry of a pattern.
fn read_policy(inputs: &Inputs<'_>, kind: Kind, unresolved: Entry<'_>) -> PolicyEntry {
    let Some(node) = resolved_policy(inputs, field_names::<PolicyEntry>(), unresolved) else {
        return PolicyEntry::default();
    };
    let entry = unresolved.with_node(&node);
    let settings: PolicyEntry = entry.decode().unwrap_or_default();
    let mut policy = Policy::default();
    apply_policy(kind, &mut policy, &settings, inputs, false, entry);
    settings
}

/// Reads the rules of one tool. Also makes a tool of that kind, for the checks that examine
/// policies.
fn read_tool_rules(
    inputs: &Inputs<'_>,
    kind: Kind,
    own_name: &str,
    unresolved: Entry<'_>,
    rules: &mut SourceRules,
) -> Option<(ToolRules, Tool)> {
    let name = format!("{}{own_name}", rules.prefix);
    if ToolName::parse(&name).is_err() {
        unresolved.own_error(NameError.to_string());
        return None;
    }
    let before = unresolved.findings.len();
    let of_policy = field_names::<PolicyEntry>();
    let node = resolved_policy(inputs, &[of_policy, &SOURCE_TOOL_KEYS].concat(), unresolved)?;
    let entry = unresolved.with_node(&node);
    let mut definition: DefinitionEntry = entry.decode_keys(&SOURCE_TOOL_KEYS).unwrap_or_default();
    let context =
        valid_context_fields(definition.context.take(), entry).or_else(|| rules.context.clone());
    let own_policy: PolicyEntry = entry.decode_keys(of_policy).unwrap_or_default();
    rules
        .policies
        .exact
        .insert(own_name.to_owned(), own_policy.clone());
    let policy = rules.policies.entry_for(own_name);
    let (description, result_as_answer) =
        (definition.description.clone(), definition.result_as_answer);
    // The source supplies the description unless the entry has one.
    let mut tool = Tool::new(&name, "…");
    tool.kind = kind;
    tool.policy = Policy::default();
    let mut tool = tool.with_runner(Arc::new(UnavailableTool::new(|| {
        ("it is not listed yet".into(), None)
    })));
    apply_definition(&mut tool, definition, entry, None);
    tool.definition.context = context;
    // The method of an operation, or the trusted hint of a server, decides the effect.
    let is_effect_final = kind != Kind::Http && !rules.trust_hints;
    let own = &mut tool.policy;
    apply_policy(kind, own, &policy, inputs, is_effect_final, entry);
    let definition = &tool.definition;
    add_context_to_cache_key(&mut tool.policy, &own_policy, definition.context.as_deref());
    let rules = ToolRules {
        description,
        aliases: definition.aliases.clone(),
        tags: definition.tags.clone(),
        annotations: definition.annotations.clone(),
        result_as_answer,
        paging: definition.paging,
        context: definition.context.clone(),
    };
    (!entry.findings.has_error(before, |_| true)).then_some((rules, tool))
}

/// Reports policies of a source that share results among callers.
fn refuse_shared_caches(rules: &SourceRules, source: Entry<'_>) {
    let policies = &rules.policies;
    let named = policies
        .exact
        .iter()
        .map(|(name, policy)| (name.as_str(), policy));
    let patterns = policies.patterns.iter();
    let patterns = patterns.map(|pattern| (pattern.text.as_str(), &pattern.entry));
    let of_tools = named
        .chain(patterns)
        .map(|(name, policy)| (vec!["tools", name], policy));
    for (keys, policy) in of_tools.chain([(vec!["defaults"], &policies.source)]) {
        let node = keys.iter().try_fold(source.node, |node, key| node.get(key));
        if let Some(node) = node {
            let path = join_path(source.path, &keys);
            refuse_shared_cache(policy, source.findings.entry(node, &path));
        }
    }
}

/// `context:` and `env:` of a source.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct DeclaredEntry {
    #[schemars(extend("examples" = [["tenant"]]))]
    context: Option<Vec<String>>,
    #[schemars(extend("examples" = [[{"name": "API_KEY"}]]))]
    env: Vec<EnvVar>,
}

/// The context fields and variables that a source declares.
#[derive(Default)]
pub(super) struct DeclaredInputs {
    context: Option<Vec<String>>,
    env: Vec<EnvVar>,
    variables: Variables,
}

/// Reads `context:` and `env:` of a source. References are not allowed there, because callers see
/// these values.
fn read_declared_inputs(inputs: &Inputs<'_>, unresolved: Entry<'_>) -> DeclaredInputs {
    let declared: DeclaredEntry = unresolved
        .decode_keys(&["env", "context"])
        .unwrap_or_default();
    DeclaredInputs {
        context: valid_context_fields(declared.context, unresolved),
        variables: look_up_variables(inputs, &declared.env, unresolved),
        env: declared.env,
    }
}

/// Warns where `environment:` of a source overrides a variable that its `env:` declares, unless the
/// value is that variable.
fn warn_overridden_variables(env: &[EnvVar], unresolved: Entry<'_>) {
    let Some(environment) = unresolved.get("environment") else {
        return;
    };
    for EnvVar { name, .. } in env {
        let is_copy = |value: &Node| value.to_json() == format!("${{env:{name}}}");
        if environment.get(name).is_some_and(|value| !is_copy(value)) {
            let message = "takes precedence over the variable of this name in `env`, which is not used: leave one of \
                           them out";
            unresolved.warning(&["environment", name], message);
        }
    }
}

impl DeclaredInputs {
    /// The environment of the program that runs the source: declared variables with a value.
    /// Entries of `environment` take precedence.
    pub(super) fn process_environment(
        &self,
        environment: BTreeMap<String, String>,
    ) -> BTreeMap<String, String> {
        let declared = self.variables.values.clone();
        declared.into_iter().chain(environment).collect()
    }

    /// The source's settings as written, with the names of its declared variables.
    fn with_variable_names(&self, mut settings: Value) -> Value {
        if !self.env.is_empty() {
            let names = self.env.iter().map(|var| Value::from(var.name.as_str()));
            settings["env"] = names.collect();
        }
        settings
    }

    /// A hash of what the source runs, with references and variables replaced.
    fn generation(&self, settings: &Value) -> [u8; 32] {
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

impl Source<'_> {
    pub(super) fn error(&self, key: &str, message: impl Into<String>) {
        self.entry.error(&[key], message);
    }

    /// The time to start the source.
    pub(super) fn start_timeout(&self, time: Option<HumanDuration>) -> Duration {
        if time.is_some_and(|time| time.0.is_zero()) {
            let message = "the time must be above zero; leave the key out for 60s";
            self.error("start_timeout", message);
        }
        time.map_or(DEFAULT_START_TIMEOUT, |time| time.0)
    }

    /// The path of the file that a key names. The file must exist.
    pub(super) fn existing_file(&self, key: &str, file: &str) -> Option<PathBuf> {
        let named = self.inputs.base.join(file);
        let path = absolute_path(&named);
        if self.inputs.input.is_file(&path) {
            return Some(path);
        }
        // Without `.` components, which come from a base folder `.` or a name such as `./program`.
        let shown: PathBuf = named.components().collect();
        self.error(key, format!("there is no file {}", shown.display()));
        None
    }

    /// Reports faults of `auth`, which is prepared when the source is started. `headers` are the
    /// names of the header fields that the source sets itself.
    pub(super) fn check_auth<'h>(
        &self,
        auth: &AuthConfig,
        policy: AddressPolicy,
        mut headers: impl Iterator<Item = &'h String>,
    ) {
        if headers.any(|name| name.eq_ignore_ascii_case("authorization")) {
            let message = "`auth` sets this header: leave one of them out";
            self.entry.error(&["headers", "authorization"], message);
        }
        let faults = match RequestAuth::build(auth, policy, self.inputs.clients) {
            Ok((_, warnings)) => warnings,
            Err(errors) => errors,
        };
        report_config_faults(self.entry, faults);
    }
}

/// The absolute path, so that it stays valid if the service changes its working folder.
pub(super) fn absolute_path(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}
