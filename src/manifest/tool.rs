//! Reads one entry of `tools:`.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use schemars::JsonSchema;
use serde_json::Value;

use super::caller_references::refuse_shared_cache;
use super::context::add_context_to_cache_key;
use super::decode::{Findings, field_names};
use super::examples::check_examples;
use super::finding::Finding;
use super::input_schema::InputSchema;
use super::node::Node;
use super::reference_context::EntryKind;
use super::references::{ManifestInput, explain_omitted_values, refuse_references};
use super::rule::Rule;
use super::sections::{DefinitionEntry, NativeEntry, PolicyEntry};
use super::variables::Variables;
use crate::access::callers::CallerSettings;
use crate::call::canonical::canonical_json;
use crate::call::json::hash_parts;
use crate::call::{ContextFields, Effect, Kind, NameError, Origin, Paging, Policy, ToolName};
use crate::kinds::{
    self, BuildContext, ConfigFault, Databases, FaultRule, HttpClients, Tool, builtin, literal,
};
use crate::schema::PageFields;
use crate::settings::to_flow;
use crate::text::sanitize;
use crate::text::suggest;

/// Reads the tools of one file.
pub(super) struct ToolReader<'a> {
    pub(super) input: &'a dyn ManifestInput,
    pub(super) base: &'a Path,
    pub(super) defaults: &'a PolicyEntry,
    /// Tools of the embedding program. An entry of kind `native` may name one.
    pub(super) natives: &'a HashMap<String, Tool>,
    /// The origin of the tools. A tool that came over HTTP is trusted less.
    pub(super) origin: Origin,
    pub(super) clients: &'a HttpClients,
    pub(super) databases: &'a Databases,
    /// The callers whose credentials tools may send.
    pub(super) callers: &'a [CallerSettings],
    /// Whether warnings about OpenAPI documents are reported.
    pub(super) warns_of_documents: bool,
    pub(super) secrets: &'a mut std::collections::BTreeSet<String>,
    pub(super) findings: &'a mut Findings,
}

/// One entry, with its references replaced.
struct Entry<'a> {
    name: &'a str,
    kind: Kind,
    definition: DefinitionEntry,
    policy: PolicyEntry,
    env: HashMap<String, String>,
    unresolved: &'a Node,
    node: Node,
    path: &'a str,
}

impl ToolReader<'_> {
    /// Reads one entry. Faults are added to the findings.
    pub(super) fn read_tool(&mut self, name: &str, unresolved: &Node) -> Option<Tool> {
        let entry_path = format!("tools.{name}");
        if ToolName::parse(name).is_err() {
            self.findings
                .error(unresolved, &[], &entry_path, NameError.to_string());
            return None;
        }
        let errors_before = self.findings.0.len();
        if !self.findings.require_entry(
            unresolved,
            &entry_path,
            "kind, description, parameters …",
            |_| None,
        ) {
            return None;
        }
        let kind = self.read_kind(unresolved, &entry_path)?;
        let known: Vec<&str> = [
            field_names::<DefinitionEntry>(),
            field_names::<PolicyEntry>(),
            kinds::manifest_keys(kind),
        ]
        .concat();
        self.findings
            .report_unknown_keys(unresolved, &entry_path, &known);

        let definition: Option<DefinitionEntry> =
            self.decode_part(unresolved, &entry_path, field_names::<DefinitionEntry>());
        let policy: Option<PolicyEntry> =
            self.decode_part(unresolved, &entry_path, field_names::<PolicyEntry>());
        // The faults so far are reported. Reading continues with defaults, to report further faults
        // at the same time.
        let (definition, policy) = (definition.unwrap_or_default(), policy.unwrap_or_default());
        let mut node = unresolved.clone();
        let (env, omitted) = match self.origin {
            Origin::Registered => {
                self.refuse_privileged_settings(&mut node, &entry_path);
                (HashMap::new(), Vec::new())
            }
            Origin::Manifest | Origin::Program => {
                let Variables {
                    values,
                    unset: declared,
                } = self.look_up_variables(&definition.env, unresolved, &entry_path);
                (
                    values,
                    self.resolve_references(&mut node, &entry_path, EntryKind::Tool, declared),
                )
            }
        };
        let tool = self.build_tool(Entry {
            name,
            kind,
            definition,
            policy,
            env,
            unresolved,
            node,
            path: &entry_path,
        });
        if self.has_errors_since(errors_before) {
            explain_omitted_values(omitted, errors_before, self.findings);
            return None;
        }
        tool
    }

    fn build_tool(&mut self, entry: Entry<'_>) -> Option<Tool> {
        let Entry {
            name,
            kind,
            mut definition,
            policy,
            env,
            unresolved,
            node,
            path: entry_path,
        } = entry;
        let fields = self.valid_context_fields(definition.context.take(), &node, entry_path);
        let input_schema = self.read_input_schema(&node, entry_path);
        let mut tool = match kind {
            Kind::Native => self.native_tool(name, &node, entry_path)?,
            Kind::Python | Kind::Mcp => return None,
            Kind::Command | Kind::Http | Kind::Sql | Kind::Agent => {
                let fields = fields.as_deref().unwrap_or_default();
                self.build_by_kind(
                    name,
                    kind,
                    &node,
                    entry_path,
                    &policy,
                    (input_schema.as_ref().map(|schema| &*schema.value), fields),
                )?
            }
        };
        self.apply_definition(&mut tool, definition, &node, entry_path, input_schema);
        check_examples(&tool.definition, &node, entry_path, self.findings);
        tool.definition.context = fields.or(tool.definition.context);
        tool.origin = self.origin;
        tool.settings.env = env;
        tool.settings.implementation = Some(
            unresolved
                .filtered(|key| kinds::manifest_keys(kind).contains(&key))
                .to_json(),
        );
        let mut replaced = node
            .filtered(|key| kinds::manifest_keys(kind).contains(&key))
            .to_json();
        literal::unescape_json(&mut replaced);
        let env: BTreeMap<&String, &String> = tool.settings.env.iter().collect();
        tool.settings.generation = hash_parts([
            canonical_json(&replaced).as_slice(),
            &serde_json::to_vec(&env).unwrap_or_default(),
        ]);
        self.apply_policy(kind, &mut tool.policy, &policy, &node, entry_path);
        if !tool.runner.caller_credentials().is_empty() {
            refuse_shared_cache(&policy, &node, entry_path, self.findings);
        }
        tool.separate_callers();
        add_context_to_cache_key(
            &mut tool.policy,
            &policy,
            tool.definition.context.as_deref(),
        );
        self.check_context(&tool, &node, entry_path);
        if policy.cache.is_some() && !tool.runner.traits().is_cacheable {
            let message =
                "has no effect: this tool returns stored results, and these are not stored again";
            self.findings
                .warning(&node, &["cache".into()], entry_path, message);
        }
        let needs_context = tool
            .policy
            .cache
            .as_ref()
            .is_some_and(|cache| cache.context.is_none());
        let takes_all = tool.context_fields() == ContextFields::All;
        if needs_context && tool.policy.effect == Effect::Read && takes_all {
            let message = "has no effect: this tool's results may depend on the caller's context; add `context` with the \
                           fields that they depend on, [] if none";
            self.findings
                .warning(&node, &["cache".into()], entry_path, message);
        }
        Some(tool)
    }

    /// Refuses settings that only the operator's file may have. A client with an admin's key must
    /// not be able to read what the process can read, or to reach the network of the service.
    fn refuse_privileged_settings(&mut self, node: &mut Node, entry_path: &str) {
        if node.get("env").is_some() {
            let message = "a tool that is registered over HTTP must not declare environment variables: they belong to the \
                 service";
            self.findings
                .error(node, &["env".into()], entry_path, message);
        }
        if node.get("auth").is_some() {
            let message = "auth is only for the manifest, where its secrets are references: a tool that is registered over \
                 HTTP cannot have it";
            self.findings
                .error(node, &["auth".into()], entry_path, message);
        }
        if node
            .get("request")
            .is_some_and(|request| request.get("allow_private").is_some())
        {
            let path = ["request".to_owned(), "allow_private".to_owned()];
            let message = "allow_private is only for the manifest: a tool that is registered over HTTP must not reach private \
                 addresses";
            self.findings.error(node, &path, entry_path, message);
        }
        let message = "a tool that is registered over HTTP must not contain references, which would read the \
                       environment and files of the service; write a literal `${` as `$${`";
        refuse_references(node, entry_path, &["${"], message, self.findings);
    }

    pub(super) fn has_errors_since(&self, before: usize) -> bool {
        self.findings.0[before..]
            .iter()
            .any(|finding| finding.severity == super::Severity::Error)
    }

    fn read_kind(&mut self, node: &Node, entry_path: &str) -> Option<Kind> {
        let key = ["kind".to_owned()];
        let Some(value) = node.get("kind").map(Node::to_json) else {
            let kinds = if self.origin == Origin::Registered {
                "http"
            } else {
                "native, command, http, sql or agent"
            };
            self.findings
                .error(node, &[], entry_path, format!("kind is missing: {kinds}"));
            return None;
        };
        let word = value.as_str().unwrap_or_default();
        if self.origin == Origin::Registered && word != Kind::Http.as_str() {
            let message = "only tools of kind http can be registered over HTTP; only the manifest can declare tools \
                           that run on the service's own machine";
            self.findings.error(node, &key, entry_path, message);
            return None;
        }
        if let Some(kind) = kinds::parse_manifest_kind(word) {
            return Some(kind);
        }
        let message = match word {
            "python" => "tools of kind python are declared in the section `python_modules:`".into(),
            "mcp" => "tools of kind mcp are declared in the section `mcp_servers:`".into(),
            _ => unknown_kind_message(&value),
        };
        self.findings.error(node, &key, entry_path, message);
        None
    }

    pub(super) fn decode_part<T: serde::de::DeserializeOwned + JsonSchema>(
        &mut self,
        node: &Node,
        entry_path: &str,
        keys: &[&str],
    ) -> Option<T> {
        self.findings
            .decode(&node.filtered(|key| keys.contains(&key)), entry_path)
    }

    fn native_tool(&mut self, name: &str, node: &Node, entry_path: &str) -> Option<Tool> {
        let native_entry: NativeEntry =
            self.decode_part(node, entry_path, kinds::manifest_keys(Kind::Native))?;
        let native_name = native_entry.native_name.as_deref().unwrap_or(name);
        let mut tool = match self.natives.get(native_name) {
            Some(tool) => {
                let mut tool = tool.clone();
                tool.definition.name = ToolName::parse(name).unwrap_or(tool.definition.name);
                tool
            }
            None => match builtin::build(
                native_name,
                name,
                &native_entry.with,
                self.base,
                self.clients,
            ) {
                Some(Ok(mut tool)) => {
                    tool.settings.base_dir = Some(self.base.to_owned());
                    tool
                }
                Some(Err(faults)) => {
                    self.report_config_faults(node, entry_path, faults);
                    return None;
                }
                None => {
                    let path: Vec<String> = native_entry
                        .native_name
                        .iter()
                        .map(|_| "use".to_owned())
                        .collect();
                    let mut known: Vec<&str> = builtin::NAMES.to_vec();
                    known.extend(self.natives.keys().map(String::as_str));
                    let near = suggest::closest_name(
                        native_name,
                        known.iter().copied(),
                        suggest::MIN_HINT_RATIO,
                    );
                    let advice = match near {
                        Some(near) => format!("did you mean {near}?"),
                        None => format!("there are {}", known.join(", ")),
                    };
                    let message = format!("there is no native tool `{native_name}`; {advice}");
                    self.findings.error(node, &path, entry_path, message);
                    return None;
                }
            },
        };
        tool.settings.with = native_entry.with;
        tool.settings.workdir = native_entry.workdir.map(|folder| self.base.join(folder));
        Some(tool)
    }

    fn build_by_kind(
        &mut self,
        name: &str,
        kind: Kind,
        node: &Node,
        entry_path: &str,
        policy: &PolicyEntry,
        (input_schema, fields): (Option<&Value>, &[String]),
    ) -> Option<Tool> {
        let mut tool = kinds::tool_with_defaults(kind, name);
        let context = BuildContext {
            base_dir: self.base,
            input_schema: input_schema.unwrap_or(&tool.definition.input_schema),
            context_fields: fields,
            effect: self.effect_for(policy, &tool.policy),
            trusted: self.origin != Origin::Registered,
        };
        let config = node
            .filtered(|key| kinds::manifest_keys(kind).contains(&key))
            .to_json();
        match kinds::build_runner(kind, config, &context, self.clients, self.databases)? {
            Ok((runner, warnings)) => {
                self.report_config_faults(node, entry_path, warnings);
                tool.settings.base_dir = Some(self.base.to_owned());
                tool.policy.timeout = runner.default_timeout().unwrap_or(tool.policy.timeout);
                Some(tool.with_runner(runner))
            }
            Err(faults) => {
                self.report_config_faults(node, entry_path, faults);
                None
            }
        }
    }

    /// The effect that a tool of this kind will have. Defaults of the manifest do not replace the
    /// kind's own.
    fn effect_for(&self, entry: &PolicyEntry, own: &Policy) -> Effect {
        let default = self
            .defaults
            .effect
            .filter(|_| own.effect == Effect::default());
        entry.effect.or(default).unwrap_or(own.effect)
    }

    pub(super) fn report_config_faults(
        &mut self,
        node: &Node,
        entry_path: &str,
        faults: Vec<ConfigFault>,
    ) {
        for mut fault in faults {
            // A kind knows the parameters, and not the key that declares them.
            if let [key, name] = &fault.path[..]
                && key == "parameters"
                && node.get("input_schema").is_some()
            {
                fault.path = ["input_schema", "properties", name]
                    .map(str::to_owned)
                    .into();
            }
            if fault.warning {
                let rule = fault_rule(fault.rule, Rule::Ineffective);
                self.findings
                    .warning_with_rule(rule, node, &fault.path, entry_path, fault.message);
            } else {
                // The key is there under another name, and that is reported already.
                let is_suggested = |key: &String| self.findings.suggests_key(entry_path, key);
                if fault.rule == FaultRule::MissingKey
                    && fault.path.last().is_some_and(is_suggested)
                {
                    continue;
                }
                let rule = fault_rule(fault.rule, Rule::Invalid);
                self.findings
                    .error_with_rule(rule, node, &fault.path, entry_path, fault.message);
            }
        }
    }

    pub(super) fn apply_definition(
        &mut self,
        tool: &mut Tool,
        entry: DefinitionEntry,
        node: &Node,
        entry_path: &str,
        schema: Option<InputSchema>,
    ) {
        let definition = &mut tool.definition;
        if let Some(schema) = schema {
            definition.input_schema = schema.value;
            tool.compiled_input = schema.compiled;
        }
        if node.get("output_schema").is_some() {
            definition.output_schema = self.read_output_schema(node, entry_path);
        }
        let described = node.get("description").map(Node::to_json);
        let text = match &described {
            Some(Value::String(text)) => Some(text.as_str()),
            Some(Value::Null) => Some(""),
            _ => None,
        };
        if let Some(text) = text {
            if sanitize::is_blank(text) {
                let message = "the description is empty: say what the tool does and when to use it";
                self.findings
                    .error(node, &["description".into()], entry_path, message);
            }
            text.clone_into(&mut definition.description);
        } else if definition.description.is_empty() {
            let message = "no description: a model cannot know when to use this tool; say what it does and when to use it";
            let missing = Finding::warning(node.location.clone(), entry_path, message)
                .with_rule(Rule::MissingDescription);
            self.findings.0.push(missing);
        }
        if let Some(annotations) = entry.annotations {
            for (name, value) in &annotations {
                let wanted = match name.as_str() {
                    "title" if !value.is_string() => "a text",
                    name if name.ends_with("Hint") && !value.is_boolean() => "true or false",
                    _ => continue,
                };
                let message =
                    format!("{wanted} is expected here: MCP's annotations have that type");
                self.findings.error(
                    node,
                    &["annotations".into(), name.clone()],
                    entry_path,
                    message,
                );
            }
            definition.annotations = annotations;
        }
        for (at, alias) in entry.aliases.iter().enumerate() {
            match ToolName::parse(alias) {
                Ok(alias) => definition.aliases.push(alias),
                Err(error) => {
                    self.findings.error(
                        node,
                        &["aliases".into(), at.to_string()],
                        entry_path,
                        error.to_string(),
                    );
                }
            }
        }
        definition.tags.extend(entry.tags);
        definition.env.extend(entry.env);
        if !entry.examples.is_empty() {
            definition.examples = entry.examples;
        }
        definition.result_as_answer = entry
            .result_as_answer
            .unwrap_or(definition.result_as_answer);
        // A tool that pages its results itself keeps doing so.
        definition.paging = entry
            .paging
            .filter(|_| definition.paging != Paging::PagedReader)
            .unwrap_or(definition.paging);
        if let Err(fault) = PageFields::for_schema(definition.paging, &definition.input_schema) {
            self.findings
                .error(node, &["paging".to_owned()], entry_path, fault.message);
        }
    }
}

fn unknown_kind_message(value: &Value) -> String {
    let (word, known) = (to_flow(value), kinds::MANIFEST_KINDS.map(Kind::as_str));
    let of_other_word = match word.as_str() {
        "postgres" | "postgresql" | "sqlite" | "database" | "db" => Some(Kind::Sql),
        "shell" | "bash" | "sh" | "exec" | "script" | "program" => Some(Kind::Command),
        "rest" | "api" | "url" => Some(Kind::Http),
        _ => None,
    };
    if matches!(&*word, "mysql" | "mariadb" | "mssql" | "oracle") {
        return format!(
            "unknown kind {word}: `kind: sql` takes SQLite and PostgreSQL; for other databases, use an MCP server"
        );
    }
    if let Some(kind) = of_other_word {
        return format!("unknown kind {word}: write `kind: {}`", kind.as_str());
    }
    match suggest::closest_name(&word, known, suggest::MIN_HINT_RATIO) {
        Some(near) => format!("unknown kind {word}, did you mean {near}?"),
        None => format!("unknown kind {word}; there are {}", known.join(", ")),
    }
}

/// The rule of a fault in the settings of a kind.
fn fault_rule(rule: FaultRule, unspecified: Rule) -> Rule {
    match rule {
        FaultRule::Unspecified | FaultRule::MissingKey => unspecified,
        FaultRule::SingleBrace => Rule::SingleBrace,
        FaultRule::UnusedParameter => Rule::UnusedParameter,
        FaultRule::WritingRead => Rule::WritingRead,
        FaultRule::UnknownKey => Rule::UnknownKey,
        FaultRule::RefusedArgument => Rule::RefusedArgument,
    }
}
