//! Reads one entry of `tools:`.

use std::collections::{BTreeMap, HashMap};

use serde_json::Value;

use super::context::{add_context_to_cache_key, check_context, valid_context_fields};
use super::decode::{Entry, field_names};
use super::finding::Severity;
use super::inputs::Inputs;
use super::node::Node;
use super::policy::{apply_policy, refuse_shared_cache, unknown_arguments};
use super::reference_context::EntryKind;
use super::references::{explain_omitted_values, refuse_references};
use super::rule::Rule;
use super::sections::{DefinitionEntry, NativeEntry, PolicyEntry};
use super::tool_schemas::{InputSchema, check_examples, read_input_schema, read_output_schema};
use super::variables::{Variables, look_up_variables};
use crate::call::canonical::canonical_json;
use crate::call::json::hash_parts;
use crate::call::{ContextFields, Effect, Kind, NameError, Origin, Paging, ToolName};
use crate::kinds::{self, BuildContext, ConfigFault, FaultRule, Tool, builtin, literal};
use crate::schema::PageFields;
use crate::settings::to_flow;
use crate::text::{sanitize, suggest};

/// The parts of one entry.
struct Parts {
    kind: Kind,
    definition: DefinitionEntry,
    policy: PolicyEntry,
    env: HashMap<String, String>,
}

/// Reads one entry of `tools:`.
pub(super) fn read_tool(inputs: &Inputs<'_>, name: &str, unresolved: Entry<'_>) -> Option<Tool> {
    if ToolName::parse(name).is_err() {
        unresolved.own_error(NameError.to_string());
        return None;
    }
    let before = unresolved.findings.len();
    if !unresolved.require_map("kind, description, parameters …", |_| None) {
        return None;
    }
    let kind = read_kind(inputs, unresolved)?;
    let (of_definition, of_policy) = (
        field_names::<DefinitionEntry>(),
        field_names::<PolicyEntry>(),
    );
    unresolved
        .report_unknown_keys(&[of_definition, of_policy, kinds::manifest_keys(kind)].concat());
    // The faults so far are reported. Reading continues with defaults, to report further faults at
    // the same time.
    let definition: DefinitionEntry = unresolved.decode_keys(of_definition).unwrap_or_default();
    let policy = unresolved.decode_keys(of_policy).unwrap_or_default();
    let mut node = unresolved.node.clone();
    let (env, omitted) = match inputs.origin {
        Origin::Registered => {
            refuse_privileged_settings(&mut node, unresolved);
            (HashMap::new(), Vec::new())
        }
        Origin::Manifest | Origin::Program => {
            let Variables { values, unset } =
                look_up_variables(inputs, &definition.env, unresolved);
            let omitted = inputs.resolve_references(&mut node, unresolved, EntryKind::Tool, unset);
            (values, omitted)
        }
    };
    let parts = Parts {
        kind,
        definition,
        policy,
        env,
    };
    let tool = build_tool(inputs, name, parts, unresolved, unresolved.with_node(&node));
    if unresolved.findings.has_error(before, |_| true) {
        explain_omitted_values(omitted, before, unresolved.findings);
        return None;
    }
    tool
}

fn build_tool(
    inputs: &Inputs<'_>,
    name: &str,
    parts: Parts,
    unresolved: Entry<'_>,
    entry: Entry<'_>,
) -> Option<Tool> {
    let (kind, policy, mut definition) = (parts.kind, parts.policy, parts.definition);
    let fields = valid_context_fields(definition.context.take(), entry);
    let input_schema = read_input_schema(entry);
    let mut tool = match kind {
        Kind::Native => native_tool(inputs, name, entry)?,
        Kind::Python | Kind::Typescript | Kind::Mcp => return None,
        Kind::Command | Kind::Http | Kind::Sql | Kind::Agent => {
            let schema = input_schema.as_ref().map(|schema| &*schema.value);
            let fields = fields.as_deref().unwrap_or_default();
            build_by_kind(inputs, name, kind, entry, &policy, (schema, fields))?
        }
    };
    apply_definition(&mut tool, definition, entry, input_schema);
    check_examples(&tool.definition, entry);
    tool.definition.context = fields.or(tool.definition.context);
    tool.origin = inputs.origin;
    tool.settings.env = parts.env;
    let own = |node: &Node| {
        node.filtered(|key| kinds::manifest_keys(kind).contains(&key))
            .to_json()
    };
    tool.settings.implementation = Some(own(unresolved.node));
    let mut replaced = own(entry.node);
    literal::unescape_json(&mut replaced);
    let env: BTreeMap<&String, &String> = tool.settings.env.iter().collect();
    tool.settings.generation = hash_parts([
        canonical_json(&replaced).as_slice(),
        &serde_json::to_vec(&env).unwrap_or_default(),
    ]);
    apply_policy(kind, &mut tool.policy, &policy, inputs, true, entry);
    for (keys, message) in unknown_arguments(&policy, &[&tool.definition.input_schema]) {
        entry.warning(&keys, message);
    }
    if !tool.runner.caller_credentials().is_empty() {
        refuse_shared_cache(&policy, entry);
    }
    tool.separate_callers();
    add_context_to_cache_key(
        &mut tool.policy,
        &policy,
        tool.definition.context.as_deref(),
    );
    check_context(&tool, entry);
    if policy.cache.is_some() && !tool.runner.traits().is_cacheable {
        let message =
            "has no effect: this tool returns stored results, and these are not stored again";
        entry.warning(&["cache"], message);
    }
    let cache = tool.policy.cache.as_ref();
    let takes_all = tool.context_fields() == ContextFields::All;
    if cache.is_some_and(|cache| cache.context.is_none())
        && tool.policy.effect == Effect::Read
        && takes_all
    {
        let message = "has no effect: this tool's results may depend on the caller's context; add `context` with the \
                       fields that they depend on, [] if none";
        entry.warning(&["cache"], message);
    }
    Some(tool)
}

/// Refuses settings that only the operator's file may have. A client with an admin's key must not
/// be able to read what the process can read, or to reach the network of the service.
fn refuse_privileged_settings(node: &mut Node, entry: Entry<'_>) {
    let privileged: [(&[&str], &str); 3] = [
        (
            &["env"],
            "a tool that is registered over HTTP must not declare environment variables: they belong to the service",
        ),
        (
            &["auth"],
            "auth is only for the manifest, where its secrets are references: a tool that is registered over HTTP \
             cannot have it",
        ),
        (
            &["request", "allow_private"],
            "allow_private is only for the manifest: a tool that is registered over HTTP must not reach private \
             addresses",
        ),
    ];
    for (keys, message) in privileged {
        let found = keys.iter().try_fold(entry.node, |node, key| node.get(key));
        if found.is_some() {
            entry.error(keys, message);
        }
    }
    let message = "a tool that is registered over HTTP must not contain references, which would read the \
                   environment and files of the service; write a literal `${` as `$${`";
    refuse_references(node, entry.path, &["${"], message, entry.findings);
}

fn read_kind(inputs: &Inputs<'_>, entry: Entry<'_>) -> Option<Kind> {
    let is_registered = inputs.origin == Origin::Registered;
    let Some(value) = entry.get("kind").map(Node::to_json) else {
        let kinds = match is_registered {
            true => "http",
            false => "native, command, http, sql or agent",
        };
        entry.own_error(format!("kind is missing: {kinds}"));
        return None;
    };
    let word = value.as_str().unwrap_or_default();
    let kind =
        kinds::parse_manifest_kind(word).filter(|kind| !is_registered || *kind == Kind::Http);
    if kind.is_none() {
        let message = match word {
            _ if is_registered => {
                "only tools of kind http can be registered over HTTP; only the manifest can declare tools that run on \
                 the service's own machine"
                    .into()
            }
            "python" => "tools of kind python are declared in the section `python_modules:`".into(),
            "typescript" => {
                "tools of kind typescript are declared in the section `typescript_modules:`".into()
            }
            "mcp" => "tools of kind mcp are declared in the section `mcp_servers:`".into(),
            _ => unknown_kind_message(&value),
        };
        entry.error(&["kind"], message);
    }
    kind
}

fn native_tool(inputs: &Inputs<'_>, name: &str, entry: Entry<'_>) -> Option<Tool> {
    let settings: NativeEntry = entry.decode_keys(kinds::manifest_keys(Kind::Native))?;
    let native_name = settings.native_name.as_deref().unwrap_or(name);
    let built = || {
        builtin::build(
            native_name,
            name,
            &settings.with,
            inputs.base,
            inputs.clients,
        )
    };
    let mut tool = if let Some(tool) = inputs.natives.get(native_name) {
        let mut tool = tool.clone();
        tool.definition.name = ToolName::parse(name).unwrap_or(tool.definition.name);
        tool
    } else if let Some(built) = built() {
        let mut tool = built
            .map_err(|faults| report_config_faults(entry, faults))
            .ok()?;
        tool.settings.base_dir = Some(inputs.base.to_owned());
        tool
    } else {
        let mut known: Vec<&str> = builtin::NAMES.to_vec();
        known.extend(inputs.natives.keys().map(String::as_str));
        let near = suggest::near_name(native_name, known.iter().copied());
        let advice = match near {
            Some(near) => format!("did you mean {near}?"),
            None => format!("there are {}", known.join(", ")),
        };
        let message = format!("there is no native tool `{native_name}`; {advice}");
        match settings.native_name {
            Some(_) => entry.error(&["use"], message),
            None => entry.own_error(message),
        }
        return None;
    };
    tool.settings.with = settings.with;
    tool.settings.workdir = settings.workdir.map(|folder| inputs.base.join(folder));
    Some(tool)
}

fn build_by_kind(
    inputs: &Inputs<'_>,
    name: &str,
    kind: Kind,
    entry: Entry<'_>,
    policy: &PolicyEntry,
    (input_schema, fields): (Option<&Value>, &[String]),
) -> Option<Tool> {
    let mut tool = kinds::tool_with_defaults(kind, name);
    // Defaults of the manifest do not replace the effect of the kind.
    let own_effect = tool.policy.effect;
    let default = inputs
        .defaults
        .effect
        .filter(|_| own_effect == Effect::default());
    let context = BuildContext {
        name,
        base_dir: inputs.base,
        input_schema: input_schema.unwrap_or(&tool.definition.input_schema),
        context_fields: fields,
        effect: policy.effect.or(default).unwrap_or(own_effect),
        trusted: inputs.origin != Origin::Registered,
    };
    let keys = kinds::manifest_keys(kind);
    let config = entry.node.filtered(|key| keys.contains(&key)).to_json();
    let (runner, warnings) = kinds::build_runner(
        kind,
        config,
        &context,
        inputs.clients,
        inputs.databases,
        inputs.sandboxes,
    )?
    .map_err(|faults| report_config_faults(entry, faults))
    .ok()?;
    report_config_faults(entry, warnings);
    tool.settings.base_dir = Some(inputs.base.to_owned());
    tool.policy.timeout = runner.default_timeout().unwrap_or(tool.policy.timeout);
    Some(tool.with_runner(runner))
}

/// Reports faults that a kind found in its settings.
pub(super) fn report_config_faults(entry: Entry<'_>, faults: Vec<ConfigFault>) {
    for mut fault in faults {
        // A kind knows the parameters, and not the key that declares them.
        if let [key, name] = &fault.path[..]
            && key == "parameters"
            && entry.get("input_schema").is_some()
        {
            fault.path = ["input_schema", "properties", name]
                .map(str::to_owned)
                .into();
        }
        let (severity, unspecified) = match fault.warning {
            true => (Severity::Warning, Rule::Ineffective),
            false => (Severity::Error, Rule::Invalid),
        };
        // The key is there under another name, and that is reported already.
        let is_suggested = |key: &String| entry.suggests_key(key);
        if fault.rule == FaultRule::MissingKey && fault.path.last().is_some_and(is_suggested) {
            continue;
        }
        let rule = match fault.rule {
            FaultRule::Unspecified | FaultRule::MissingKey => unspecified,
            FaultRule::SingleBrace => Rule::SingleBrace,
            FaultRule::UnusedParameter => Rule::UnusedParameter,
            FaultRule::WritingRead => Rule::WritingRead,
            FaultRule::UnknownKey => Rule::UnknownKey,
            FaultRule::RefusedArgument => Rule::RefusedArgument,
        };
        entry.report(severity, rule, &fault.path, fault.message);
    }
}

/// Completes the definition of a tool.
pub(super) fn apply_definition(
    tool: &mut Tool,
    settings: DefinitionEntry,
    entry: Entry<'_>,
    schema: Option<InputSchema>,
) {
    let definition = &mut tool.definition;
    if let Some(schema) = schema {
        definition.input_schema = schema.value;
        tool.compiled_input = schema.compiled;
    }
    if entry.get("output_schema").is_some() {
        definition.output_schema = read_output_schema(entry);
    }
    let described = entry.get("description").map(Node::to_json);
    let text = match &described {
        Some(Value::String(text)) => Some(text.as_str()),
        Some(Value::Null) => Some(""),
        _ => None,
    };
    if let Some(text) = text {
        if sanitize::is_blank(text) {
            let message = "the description is empty: say what the tool does and when to use it";
            entry.error(&["description"], message);
        }
        text.clone_into(&mut definition.description);
    } else if definition.description.is_empty() {
        let message = "no description: a model cannot know when to use this tool; say what it does and when to use it";
        entry.report::<&str>(Severity::Warning, Rule::MissingDescription, &[], message);
    }
    if let Some(annotations) = settings.annotations {
        for (name, value) in &annotations {
            let wanted = match name.as_str() {
                "title" if !value.is_string() => "a text",
                name if name.ends_with("Hint") && !value.is_boolean() => "true or false",
                _ => continue,
            };
            let message = format!("{wanted} is expected here: MCP's annotations have that type");
            entry.error(&["annotations", name], message);
        }
        definition.annotations = annotations;
    }
    for (at, alias) in settings.aliases.iter().enumerate() {
        match ToolName::parse(alias) {
            Ok(alias) => definition.aliases.push(alias),
            Err(error) => entry.error(&["aliases", &at.to_string()], error.to_string()),
        }
    }
    definition.tags.extend(settings.tags);
    definition.env.extend(settings.env);
    if !settings.examples.is_empty() {
        definition.examples = settings.examples;
    }
    definition.result_as_answer = settings
        .result_as_answer
        .unwrap_or(definition.result_as_answer);
    // A tool that pages its results itself keeps doing so.
    definition.paging = settings
        .paging
        .filter(|_| definition.paging != Paging::PagedReader)
        .unwrap_or(definition.paging);
    if let Err(fault) = PageFields::for_schema(definition.paging, &definition.input_schema) {
        entry.error(&["paging"], fault.message);
    }
}

fn unknown_kind_message(value: &Value) -> String {
    let (word, known) = (to_flow(value), kinds::MANIFEST_KINDS.map(Kind::as_str));
    if matches!(&*word, "mysql" | "mariadb" | "mssql" | "oracle") {
        return format!(
            "unknown kind {word}: `kind: sql` takes SQLite and PostgreSQL; for other databases, use an MCP server"
        );
    }
    let of_other_word = match word.as_str() {
        "postgres" | "postgresql" | "sqlite" | "database" | "db" => Some(Kind::Sql),
        "shell" | "bash" | "sh" | "exec" | "script" | "program" => Some(Kind::Command),
        "rest" | "api" | "url" => Some(Kind::Http),
        _ => None,
    };
    if let Some(kind) = of_other_word {
        return format!("unknown kind {word}: write `kind: {}`", kind.as_str());
    }
    match suggest::near_name(&word, known) {
        Some(near) => format!("unknown kind {word}, did you mean {near}?"),
        None => format!("unknown kind {word}; there are {}", known.join(", ")),
    }
}
