//! Reads one entry of `tools:`.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

use serde_json::Value;

use super::context::keep_apart;
use super::decode::{Findings, fields, join};
use super::finding::Finding;
use super::node::Node;
use super::parameters;
use super::reference_places::Owner;
use super::references::{Source, explain, refuse};
use super::rule::Rule;
use super::sections::{DefinitionEntry, NativeEntry, PolicyEntry};
use super::variables::Variables;
use crate::call::canonical::canonical;
use crate::call::json::{digest, pointer_token, pointer_tokens};
use crate::call::{
    CachePolicy, CacheWhen, Concurrency, ContextFields, Effect, Kind, NameError, Origin, Paging, Policy, RetryPolicy,
    ToolName,
};
use crate::expression;
use crate::sanitize;
use crate::schema::{PageFields, Schema, SchemaFault};
use crate::tools::{BuildContext, Clients, ConfigFault, Databases, Tool, builtin, kinds, literal};

/// Reads the tools of one file.
pub(super) struct ToolReader<'a> {
    pub(super) source: &'a dyn Source,
    pub(super) base: &'a Path,
    pub(super) defaults: &'a PolicyEntry,
    /// Tools of the embedding program. An entry of kind `native` may name one.
    pub(super) natives: &'a HashMap<String, Tool>,
    /// The origin of the tools. A tool that came over HTTP is trusted less.
    pub(super) origin: Origin,
    pub(super) clients: &'a Clients,
    pub(super) databases: &'a Databases,
    pub(super) secrets: &'a mut std::collections::BTreeSet<String>,
    pub(super) findings: &'a mut Findings,
}

/// One entry, with its references replaced.
struct Entry<'a> {
    name: &'a str,
    kind: Kind,
    said: DefinitionEntry,
    policy: PolicyEntry,
    env: HashMap<String, String>,
    written: &'a Node,
    node: Node,
    under: &'a str,
}

impl ToolReader<'_> {
    /// Reads one entry. Faults are added to the findings.
    pub(super) fn read(&mut self, name: &str, written: &Node) -> Option<Tool> {
        let under = format!("tools.{name}");
        if ToolName::parse(name).is_err() {
            self.findings.error(written, &[], &under, NameError.to_string());
            return None;
        }
        let errors_before = self.findings.0.len();
        if written.entries().is_none() {
            self.findings.error(written, &[], &under, "a map is expected here: kind, description, parameters …");
            return None;
        }
        let kind = self.kind(written, &under)?;
        let known: Vec<&str> = [fields::<DefinitionEntry>(), fields::<PolicyEntry>(), kinds::keys(kind)].concat();
        self.findings.unknown_keys(written, &under, &known);

        let said: Option<DefinitionEntry> = self.part(written, &under, fields::<DefinitionEntry>());
        let policy: Option<PolicyEntry> = self.part(written, &under, fields::<PolicyEntry>());
        // The faults so far are reported. Reading continues with defaults, to report further faults at the same time.
        let (said, policy) = (said.unwrap_or_default(), policy.unwrap_or_default());
        let mut node = written.clone();
        let (env, left_out) = match self.origin {
            Origin::Registered => {
                self.refuse_trust(&mut node, &under);
                (HashMap::new(), Vec::new())
            }
            Origin::Manifest | Origin::Program => {
                let Variables { values, declared } = self.variables(&said.env, written, &under);
                (values, self.resolve(&mut node, &under, Owner::Tool, declared))
            }
        };
        let tool = self.make(Entry { name, kind, said, policy, env, written, node, under: &under });
        if self.has_errors_since(errors_before) {
            explain(left_out, errors_before, self.findings);
            return None;
        }
        tool
    }

    fn make(&mut self, entry: Entry<'_>) -> Option<Tool> {
        let Entry { name, kind, mut said, policy, env, written, node, under } = entry;
        let fields = self.context_fields(said.context.take(), &node, under);
        let input_schema = self.input_schema(&node, under);
        let mut tool = match kind {
            Kind::Native => self.native(name, &node, under)?,
            Kind::Python | Kind::Mcp => return None,
            Kind::Command | Kind::Http | Kind::Sql | Kind::Agent => {
                let fields = fields.as_deref().unwrap_or_default();
                self.by_kind(name, kind, &node, under, &policy, (input_schema.as_ref(), fields))?
            }
        };
        self.define(&mut tool, said, &node, under, input_schema);
        tool.definition.context = fields.or(tool.definition.context);
        tool.origin = self.origin;
        tool.settings.env = env;
        tool.settings.implementation = Some(written.filtered(|key| kinds::keys(kind).contains(&key)).to_json());
        let mut replaced = node.filtered(|key| kinds::keys(kind).contains(&key)).to_json();
        literal::plain_json(&mut replaced);
        let env: BTreeMap<&String, &String> = tool.settings.env.iter().collect();
        tool.settings.generation =
            digest([canonical(&replaced).as_slice(), &serde_json::to_vec(&env).unwrap_or_default()]);
        self.govern(kind, &mut tool.policy, &policy, &node, under);
        keep_apart(&mut tool.policy, &policy, tool.definition.context.as_deref());
        self.check_context(&tool, &node, under);
        if policy.cache.is_some() && !tool.runner.keeps() {
            let message = "has no effect: this tool answers out of what is stored, and that is not stored again";
            self.findings.warning(&node, &["cache".into()], under, message);
        }
        let needs_context = tool.policy.cache.as_ref().is_some_and(|cache| cache.context.is_none());
        let takes_all = tool.context_fields() == ContextFields::All;
        if needs_context && tool.policy.effect == Effect::Read && takes_all {
            let message = "has no effect: this tool's results may depend on the caller's context; add `context` with the \
                           fields that they depend on, [] if none";
            self.findings.warning(&node, &["cache".into()], under, message);
        }
        Some(tool)
    }

    /// Refuses settings that only the operator's file may have. A client with an admin's key must not be able to read
    /// what the process can read, or to reach the network of the service.
    fn refuse_trust(&mut self, node: &mut Node, under: &str) {
        if node.get("env").is_some() {
            let message =
                "a tool that is registered over HTTP declares no environment variables: they are the process's";
            self.findings.error(node, &["env".into()], under, message);
        }
        if node.get("request").is_some_and(|request| request.get("allow_private").is_some()) {
            let path = ["request".to_owned(), "allow_private".to_owned()];
            let message =
                "allow_private is for the manifest: a tool that is registered over HTTP reaches no private address";
            self.findings.error(node, &path, under, message);
        }
        let message = "a tool that is registered over HTTP holds no references, they would read the process's environment \
                       and files; a literal `${` is written `$${`";
        refuse(node, under, &["${"], message, self.findings);
    }

    pub(super) fn has_errors_since(&self, before: usize) -> bool {
        self.findings.0[before..].iter().any(|finding| finding.severity == super::Severity::Error)
    }

    fn kind(&mut self, node: &Node, under: &str) -> Option<Kind> {
        let key = ["kind".to_owned()];
        let Some(said) = node.get("kind").map(Node::to_json) else {
            let kinds = if self.origin == Origin::Registered { "http" } else { "native, command, http, sql or agent" };
            self.findings.error(node, &[], under, format!("kind is missing: {kinds}"));
            return None;
        };
        let word = said.as_str().unwrap_or_default();
        if self.origin == Origin::Registered && word != Kind::Http.as_str() {
            let message = "only tools of kind http can be registered over HTTP; programs and functions of the service's \
                           own machine are for the manifest to name";
            self.findings.error(node, &key, under, message);
            return None;
        }
        if let Some(kind) = kinds::from_word(word) {
            return Some(kind);
        }
        let message = match word {
            "python" => "tools of kind python come out of `python_modules:`, a section of its own".into(),
            "mcp" => "tools of kind mcp come out of `mcp_servers:`, a section of its own".into(),
            _ => format!("unknown kind {said}; there are native, command, http, sql and agent"),
        };
        self.findings.error(node, &key, under, message);
        None
    }

    pub(super) fn part<T: serde::de::DeserializeOwned>(
        &mut self,
        node: &Node,
        under: &str,
        keys: &[&str],
    ) -> Option<T> {
        self.findings.decode_keys(&node.filtered(|key| keys.contains(&key)), under)
    }

    fn input_schema(&mut self, node: &Node, under: &str) -> Option<Value> {
        let schema = match (node.get("parameters"), node.get("input_schema")) {
            (Some(_), Some(_)) => {
                let key = ["input_schema".to_owned()];
                self.findings.error(node, &key, under, "parameters and input_schema say the same thing: keep one");
                return None;
            }
            (Some(shorthand), None) => {
                parameters::compile(shorthand, &join(under, &["parameters".into()]), self.findings)?
            }
            (None, Some(full)) => full.to_json(),
            (None, None) => return None,
        };
        let (key, skip) = if node.get("parameters").is_some() { ("parameters", 1) } else { ("input_schema", 0) };
        match Schema::compile_input(Arc::new(schema.clone())) {
            Err(fault) => self.schema_fault(node, under, key, skip, &fault),
            Ok(compiled) => {
                for (name, message) in compiled.misfit_defaults() {
                    let pointer = format!("/properties/{}/default", pointer_token(&name));
                    self.schema_fault(node, under, key, skip, &SchemaFault { pointer, message, is_too_large: false });
                }
            }
        }
        Some(schema)
    }

    fn schema_fault(&mut self, node: &Node, under: &str, key: &str, skip: usize, fault: &SchemaFault) {
        let tokens = pointer_tokens(&fault.pointer).skip(skip);
        let path: Vec<String> = std::iter::once(key.to_owned()).chain(tokens).collect();
        self.findings.error(node, &path, under, fault.message.clone());
    }

    fn native(&mut self, name: &str, node: &Node, under: &str) -> Option<Tool> {
        let said: NativeEntry = self.part(node, under, kinds::keys(Kind::Native))?;
        let which = said.which.as_deref().unwrap_or(name);
        let mut tool = match self.natives.get(which) {
            Some(tool) => {
                let mut tool = tool.clone();
                tool.definition.name = ToolName::parse(name).unwrap_or(tool.definition.name);
                tool
            }
            None => match builtin::build(which, name, &said.with, self.base, self.clients) {
                Some(Ok(mut tool)) => {
                    tool.settings.base = Some(self.base.to_owned());
                    tool
                }
                Some(Err(fault)) => {
                    self.config_faults(node, under, vec![fault]);
                    return None;
                }
                None => {
                    let path: Vec<String> = said.which.iter().map(|_| "use".to_owned()).collect();
                    let mut known: Vec<&str> = builtin::NAMES.to_vec();
                    known.extend(self.natives.keys().map(String::as_str));
                    let message = format!("there is no native tool `{which}`; there are {}", known.join(", "));
                    self.findings.error(node, &path, under, message);
                    return None;
                }
            },
        };
        tool.settings.with = said.with;
        tool.settings.workdir = said.workdir.map(|folder| self.base.join(folder));
        Some(tool)
    }

    fn by_kind(
        &mut self,
        name: &str,
        kind: Kind,
        node: &Node,
        under: &str,
        policy: &PolicyEntry,
        (input_schema, fields): (Option<&Value>, &[String]),
    ) -> Option<Tool> {
        let mut tool = kinds::blank(kind, name);
        let context = BuildContext {
            base: self.base,
            input_schema: input_schema.unwrap_or(&tool.definition.input_schema),
            fields,
            effect: policy.effect.unwrap_or(tool.policy.effect),
            trusted: self.origin != Origin::Registered,
            clients: self.clients,
            databases: self.databases,
        };
        let config = node.filtered(|key| kinds::keys(kind).contains(&key)).to_json();
        match kinds::build(kind, config, &context)? {
            Ok((runner, warnings)) => {
                self.config_faults(node, under, warnings);
                tool.settings.base = Some(self.base.to_owned());
                tool.policy.timeout = runner.own_timeout().unwrap_or(tool.policy.timeout);
                Some(tool.with_runner(runner))
            }
            Err(faults) => {
                self.config_faults(node, under, faults);
                None
            }
        }
    }

    fn config_faults(&mut self, node: &Node, under: &str, faults: Vec<ConfigFault>) {
        for fault in faults {
            if fault.warning {
                self.findings.warning(node, &fault.path, under, fault.message);
            } else {
                self.findings.fault(node, fault.path, under, fault.message);
            }
        }
    }

    /// The output schema. `None` with a warning if it is too large.
    fn output_schema(&mut self, node: &Node, under: &str) -> Option<Arc<Value>> {
        let schema = node.get("output_schema")?.to_json();
        let schema = Arc::new(schema);
        match Schema::compile(schema.clone()) {
            Err(fault) if fault.is_too_large => {
                let tokens = pointer_tokens(&fault.pointer);
                let path: Vec<String> = std::iter::once("output_schema".to_owned()).chain(tokens).collect();
                let message = format!("{}; the tool is served without its output schema", fault.message);
                self.findings.warning(node, &path, under, message);
                return None;
            }
            Err(fault) => self.schema_fault(node, under, "output_schema", 0, &fault),
            Ok(_) => {}
        }
        let root = schema.get("type").and_then(Value::as_str);
        if root.is_some_and(|root| root != "object" && root != "array") {
            let message = "structured content is an object or an array; a plain text or number needs no schema";
            self.findings.error(node, &["output_schema".into(), "type".into()], under, message);
        }
        Some(schema)
    }

    pub(super) fn define(
        &mut self,
        tool: &mut Tool,
        said: DefinitionEntry,
        node: &Node,
        under: &str,
        schema: Option<Value>,
    ) {
        let definition = &mut tool.definition;
        if let Some(schema) = schema {
            definition.input_schema = Arc::new(schema);
        }
        if node.get("output_schema").is_some() {
            definition.output_schema = self.output_schema(node, under);
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
                self.findings.error(node, &["description".into()], under, message);
            }
            text.clone_into(&mut definition.description);
        } else if definition.description.is_empty() {
            let message =
                "no description: a model cannot know when to use this tool; say what it does and when to use it";
            let missing = Finding::warning(node.place.clone(), under, message).rule(Rule::MissingDescription);
            self.findings.0.push(missing);
        }
        if let Some(annotations) = said.annotations {
            for (name, value) in &annotations {
                let wanted = match name.as_str() {
                    "title" if !value.is_string() => "a text",
                    name if name.ends_with("Hint") && !value.is_boolean() => "true or false",
                    _ => continue,
                };
                let message = format!("{wanted} is expected here: MCP's annotations have that type");
                self.findings.error(node, &["annotations".into(), name.clone()], under, message);
            }
            definition.annotations = annotations;
        }
        for (at, alias) in said.aliases.iter().enumerate() {
            match ToolName::parse(alias) {
                Ok(alias) => definition.aliases.push(alias),
                Err(error) => {
                    self.findings.error(node, &["aliases".into(), at.to_string()], under, error.to_string());
                }
            }
        }
        definition.tags.extend(said.tags);
        definition.env.extend(said.env);
        definition.result_as_answer = said.result_as_answer.unwrap_or(definition.result_as_answer);
        // A tool that pages its results itself keeps doing so.
        definition.paging = said.paging.filter(|_| definition.paging != Paging::Pages).unwrap_or(definition.paging);
        if let Err(fault) = PageFields::of(definition.paging, &definition.input_schema) {
            self.findings.error(node, &["paging".to_owned()], under, fault.message);
        }
    }

    /// Completes the policy. The entry takes precedence over the tool's own policy, and that over the manifest's
    /// defaults.
    pub(super) fn govern(&mut self, kind: Kind, policy: &mut Policy, said: &PolicyEntry, node: &Node, under: &str) {
        let (plain, defaults) = (Policy::default(), self.defaults);
        policy.effect =
            said.effect.or(defaults.effect.filter(|_| policy.effect == plain.effect)).unwrap_or(policy.effect);
        let default = defaults.timeout.filter(|_| policy.timeout == plain.timeout);
        policy.timeout = said.timeout.or(default).map_or(policy.timeout, |time| time.0);
        let default = defaults.deadline.filter(|_| policy.deadline.is_none());
        policy.deadline = said.deadline.or(default).map(|time| time.0).or(policy.deadline);
        let default = defaults.retry.filter(|_| policy.retry == plain.retry);
        policy.retry = said.retry.or(default).map_or(policy.retry, |r| RetryPolicy { attempts: r.attempts });
        let default = defaults.limits.clone().filter(|_| policy.limits.is_empty());
        policy.limits = said.limits.clone().or(default).unwrap_or_else(|| std::mem::take(&mut policy.limits));
        for entry in [defaults.concurrency.filter(|_| policy.concurrency == plain.concurrency), said.concurrency] {
            let Some(entry) = entry else { continue };
            let now = policy.concurrency;
            policy.concurrency = Concurrency {
                max: entry.max.unwrap_or(now.max),
                queue: entry.queue.unwrap_or(now.queue),
                wait: entry.wait.map_or(now.wait, |time| time.0),
                per_caller: entry.per_caller.or(now.per_caller),
            };
        }
        policy.on_disconnect = said.on_disconnect.or(policy.on_disconnect).or(defaults.on_disconnect);
        policy.idempotency = said.idempotency.or(defaults.idempotency).unwrap_or(policy.idempotency);
        policy.repeatable = said.repeatable.unwrap_or(policy.repeatable || defaults.repeatable.unwrap_or_default());
        policy.strict = said.strict.or(defaults.strict).unwrap_or(policy.strict);
        policy.enabled = said.enabled.or(defaults.enabled).unwrap_or(policy.enabled);
        // A native tool decides itself whether its results can be cached: those of a clock cannot.
        let may_default = policy.effect == Effect::Read && kind != Kind::Native;
        if let Some(cache) = said.cache.as_ref().or(defaults.cache.as_ref().filter(|_| may_default)) {
            let (ttl, scope, context) = (cache.ttl.0, cache.scope, cache.context.clone());
            policy.cache = Some(CachePolicy { ttl, scope, context });
            // A condition of the tool's own applies unless the manifest has another.
            let when = cache.when.as_deref().and_then(|text| cache_when(text, node, under, self.findings));
            policy.cache_when = when.or(policy.cache_when.take());
        }
        policy.capture = said.capture.or(policy.capture).or(defaults.capture);
        self.check_policy(policy, said, node, under);
    }

    /// Reports impossible policies as errors, and policies without effect as warnings.
    fn check_policy(&mut self, policy: &Policy, said: &PolicyEntry, node: &Node, under: &str) {
        let key = |name: &str| vec![name.to_owned()];
        if policy.timeout.is_zero() {
            self.findings.error(node, &key("timeout"), under, "a timeout of nothing lets nothing run");
        }
        if policy.deadline.is_some_and(|deadline| deadline.is_zero()) {
            self.findings.error(node, &key("deadline"), under, "a deadline of nothing lets nothing run");
        }
        if policy.concurrency.max == 0 {
            let path = vec!["concurrency".into(), "max".into()];
            self.findings.error(node, &path, under, "at least one call must be able to run");
        }
        if policy.concurrency.per_caller == Some(0) {
            let path = vec!["concurrency".into(), "per_caller".into()];
            self.findings.error(node, &path, under, "at least one call of each caller must be able to run");
        }
        if policy.concurrency.max > tokio::sync::Semaphore::MAX_PERMITS {
            let path = vec!["concurrency".into(), "max".into()];
            self.findings.error(node, &path, under, "more calls than this machine could ever hold");
        }
        if said.retry.is_some_and(|retry| retry.attempts == 0) {
            let path = vec!["retry".into(), "attempts".into()];
            self.findings.error(node, &path, under, "attempts counts the first try too: 1 is no retry");
        }
        let write = policy.effect == Effect::Write;
        if said.retry.is_some_and(|retry| retry.attempts > 1) && write {
            let message =
                "has no effect: a tool with effect write is never tried twice; say effect: read or idempotent";
            self.findings.warning(node, &key("retry"), under, message);
        }
        if said.cache.is_some() && policy.effect != Effect::Read {
            let message = "has no effect: only results of a tool with effect: read are cached";
            self.findings.warning(node, &key("cache"), under, message);
        }
    }
}

/// Compiles `cache.when` of the entry `node`.
pub(super) fn cache_when(text: &str, node: &Node, under: &str, findings: &mut Findings) -> Option<CacheWhen> {
    let path = ["cache".to_owned(), "when".to_owned()];
    if ["${env:", "${file:"].iter().any(|mark| text.contains(mark)) {
        findings.error(node, &path, under, "callers see this; a reference to a secret cannot stand here");
        return None;
    }
    expression::compile(text).map_err(|message| findings.error(node, &path, under, message)).ok()
}
