//! Makes one tool of what a source offers and what the manifest says about it.

use std::sync::Arc;

use serde::Serialize;
use serde_json::{Value, json};

use crate::call::json::hash_parts;
use crate::call::{ContextFields, Effect, JsonObject, Limit, LimitScope, NameError, Per, ToolName};
use crate::kinds::{Tool, UnavailableTool};
use crate::manifest::definition_change::DefinitionChange;
use crate::manifest::{DeclaredSource, ToolRules};
use crate::schema::Schema;
use crate::sources::DiscoveredTool;
use crate::sources::live::file_snapshot::FileSnapshot;

/// A quarantined tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[schema(as = StoppedView)]
pub struct QuarantinedTool {
    /// Name of the tool.
    pub tool: String,
    /// How its definition differs.
    #[serde(rename = "why")]
    pub reason: String,
    /// What differs.
    #[serde(skip)]
    pub change: Arc<DefinitionChange>,
}

/// The tool under the rules of the manifest. Adds warnings for the operator.
pub(super) fn build_tool(
    declared: &DeclaredSource,
    discovered: &DiscoveredTool,
    files: &FileSnapshot,
    warnings: &mut Vec<String>,
) -> Result<Tool, String> {
    let rules = &declared.rules;
    let tool_rules = rules.tools.get(&discovered.name);
    let description = tool_rules
        .and_then(|tool_rules| tool_rules.description.clone())
        .unwrap_or_else(|| discovered.description.clone());
    let runner = match &discovered.snapshot {
        Some(snapshot) if rules.pins.is_some() => &snapshot.runner,
        _ => &discovered.runner,
    };
    let mut tool = Tool::new(served_name(declared, &discovered.name)?, description)
        .with_runner(runner.clone());
    tool.definition.input_schema = Arc::new(discovered.input_schema.clone());
    tool.schema_owner = discovered.schema_owner;
    tool.compiled_input =
        Schema::compile_input(tool.definition.input_schema.clone(), tool.schema_owner)
            .ok()
            .map(Arc::new);
    // The author of an own schema can mend it. A foreign party fills in its own defaults.
    if let Some(compiled) = &tool.compiled_input
        && !tool.schema_owner.is_foreign()
    {
        let misfits = compiled.misfit_defaults().into_iter();
        warnings.extend(misfits.map(|(parameter, reason)| {
            format!(
                "tool `{}`: parameter `{parameter}`: {reason}; it is not filled in",
                tool.name()
            )
        }));
    }
    let output_schema = discovered.output_schema.clone().map(Arc::new);
    let output_fault = output_schema.as_ref().and_then(|schema| {
        let compiled = Schema::compile_output(schema.clone(), tool.schema_owner);
        compiled.err()
    });
    match output_fault {
        // The author of an own schema can mend it, so its tool is refused later.
        Some(fault) if fault.is_too_large || tool.schema_owner.is_foreign() => {
            warnings.push(format!(
                "tool `{}`: it is served without its output schema, which cannot be used: {fault}",
                tool.name()
            ));
        }
        _ => tool.definition.output_schema = output_schema,
    }
    tool.definition.annotations = discovered.annotations.clone();
    tool.definition.meta = discovered.meta.clone();
    tool.definition.tags.clone_from(&discovered.tags);
    tool.definition.result_as_answer = discovered.result_as_answer;
    let is_trusted = rules.trust_hints && rules.pins.is_some();
    let hinted = promised_effect(&discovered.annotations).filter(|_| is_trusted);
    let effect = discovered.effect.or(hinted);
    apply_rules(&mut tool, declared, &discovered.name, effect);
    let env = &mut tool.definition.env;
    for var in &discovered.env {
        if env.iter().all(|other| other.name != var.name) {
            env.push(var.clone());
        }
    }
    let limits = &mut tool.policy.limits;
    if let Some(calls) = discovered.max_calls.filter(|_| limits.is_empty()) {
        limits.push(Limit {
            calls,
            per: Per::Lifetime,
            scope: LimitScope::Tool,
        });
    }
    if declared.settings.is_foreign() {
        warnings.extend(apply_hints(&mut tool, discovered, tool_rules));
    }
    set_origin(&mut tool, declared, &discovered.name, files);
    let context = tool.definition.context.as_ref();
    if tool_rules.is_some_and(|tool_rules| tool_rules.context != rules.context)
        && context.is_some_and(|fields| !fields.is_empty())
        && !discovered.runner.traits().takes_context_fields
    {
        let name = tool.name();
        warnings.push(format!(
            "tool `{name}`: context has no effect: the function has no parameter for it; give it `tool_context`"
        ));
    }
    let cache = tool.policy.cache.as_ref();
    let is_cached =
        tool.policy.effect == Effect::Read && cache.is_some_and(|cache| cache.context.is_none());
    let is_declared = tool_rules.is_some() || rules.declares_cache(&discovered.name);
    if is_declared && is_cached && tool.context_fields() == ContextFields::All {
        warnings.push(format!(
            "tool `{}`: cache has no effect: the tool gets the caller's context; set cache.context to the fields that its \
             results depend on ([] if none), or set context to the fields that the tool needs",
            tool.name()
        ));
    }
    Ok(tool)
}

/// The name under which a tool is served.
fn served_name(declared: &DeclaredSource, own: &str) -> Result<String, String> {
    let name = format!("{}{own}", declared.rules.prefix);
    ToolName::parse(&name)
        .map_err(|error: NameError| format!("its tool `{}`: {error}", shown_name(&name)))?;
    Ok(name)
}

/// A name that may be invalid, for a message.
pub(super) fn shown_name(name: &str) -> String {
    let shown = name.chars().filter(|c| !c.is_control());
    shown.take(ToolName::MAX_LEN).collect()
}

/// Applies the manifest's rules to a tool.
fn apply_rules(
    tool: &mut Tool,
    declared: &DeclaredSource,
    own: &str,
    derived_effect: Option<Effect>,
) {
    let tool_rules = declared.rules.tools.get(own);
    if let Some(tool_rules) = tool_rules {
        tool.definition
            .annotations
            .extend(tool_rules.annotations.clone());
        tool.definition.result_as_answer = tool_rules
            .result_as_answer
            .unwrap_or(tool.definition.result_as_answer);
        tool.definition.paging = tool_rules.paging;
        tool.definition.tags.extend(tool_rules.tags.iter().cloned());
        tool.definition.aliases.clone_from(&tool_rules.aliases);
    }
    apply_source_rules(tool, declared, own, derived_effect);
}

/// Applies the rules that hold for an unavailable tool, too.
pub(super) fn apply_source_rules(
    tool: &mut Tool,
    declared: &DeclaredSource,
    own: &str,
    derived_effect: Option<Effect>,
) {
    let rules = &declared.rules;
    let context = rules
        .tools
        .get(own)
        .map_or(&rules.context, |tool_rules| &tool_rules.context);
    tool.definition.context.clone_from(context);
    tool.definition.env.clone_from(&rules.env);
    tool.policy = rules.policy_for(own, declared.settings.kind(), derived_effect);
}

/// Applies the effect hints of a foreign source that tighten the policy, and removes the others.
/// `annotations` in the manifest are the operator's own and stay. Returns a warning if the effect
/// is not the one that the operator wrote.
fn apply_hints(
    tool: &mut Tool,
    discovered: &DiscoveredTool,
    tool_rules: Option<&ToolRules>,
) -> Option<String> {
    let declared_effect = tool.policy.effect;
    let (effect, because) = tighten_effect(declared_effect, &tool.definition.annotations);
    tool.policy.effect = effect;
    let mut annotations = discovered.annotations.clone();
    remove_promises(&mut annotations, effect);
    let declared = tool_rules.map(|tool_rules| tool_rules.annotations.clone());
    annotations.extend(declared.unwrap_or_default());
    tool.definition.annotations = annotations;
    because.map(|hint| {
        let (name, wanted, effect) = (tool.name(), declared_effect.as_str(), effect.as_str());
        format!(
            "tool `{name}`: effect: {wanted} is taken as {effect}, since its server says {hint}; to override this hint, set it \
             in the tool's `annotations`"
        )
    })
}

/// The entry for a quarantined tool. It has only the name and the manifest's description, so that
/// no model reads the new definition.
pub(super) fn quarantined_tool(declared: &DeclaredSource, own: &str) -> Result<Tool, String> {
    let description = format!(
        "A tool of server `{}`. It is quarantined, because its definition differs from its pin.",
        declared.name()
    );
    let runner = UnavailableTool::new(|| ("its definition differs from its pin".into(), None));
    let name = served_name(declared, own)?;
    let mut tool = stand_in(declared, own, name, description, runner);
    tool.quarantined = true;
    apply_rules(&mut tool, declared, own, None);
    Ok(tool)
}

/// A tool that cannot be called now. The manifest's description comes before this one.
pub(super) fn stand_in(
    declared: &DeclaredSource,
    own: &str,
    name: String,
    description: String,
    runner: UnavailableTool,
) -> Tool {
    let tool_rules = declared.rules.tools.get(own);
    let own_text = tool_rules.and_then(|tool_rules| tool_rules.description.clone());
    let mut tool = Tool::new(name, own_text.unwrap_or(description)).with_runner(Arc::new(runner));
    tool.definition.input_schema = Arc::new(json!({"type": "object"}));
    set_source(&mut tool, declared);
    tool
}

/// Sets what the tool has of its source.
fn set_source(tool: &mut Tool, declared: &DeclaredSource) {
    let settings = &declared.settings;
    (tool.kind, tool.origin) = (settings.kind(), settings.origin());
    tool.settings.source = Some(declared.name().into());
}

/// Sets the origin, and what the definition hash covers: the declaration of the source and the
/// contents of its files.
fn set_origin(tool: &mut Tool, declared: &DeclaredSource, own: &str, files: &FileSnapshot) {
    set_source(tool, declared);
    let contents: Vec<Value> = files
        .content_hashes()
        .map(|content| content.map(hex::encode).into())
        .collect();
    let implementation =
        json!({"source": declared.written_settings, "tool": own, "files": contents});
    tool.settings.implementation = Some(implementation);
    tool.settings.generation = hash_parts([declared.generation.as_slice()]);
}

/// The effect under which a tool runs, and the hint that tightened it.
///
/// MCP calls annotations hints, and untrusted if the server is unknown. So a hint can only tighten
/// the effect that the manifest declares. With `trust_hints`, the hints of a pinned server also
/// decide the effect where the manifest declares none.
fn tighten_effect(effect: Effect, annotations: &JsonObject) -> (Effect, Option<&'static str>) {
    let hint_value = |hint: &str| annotations.get(hint).and_then(Value::as_bool);
    if hint_value("readOnlyHint") == Some(true) {
        return (effect, None);
    }
    // Only a hint that the tool is idempotent keeps it repeatable. Otherwise a repetition may write
    // twice.
    let least = if hint_value("idempotentHint") == Some(true) {
        Effect::Idempotent
    } else {
        Effect::Write
    };
    match effect {
        Effect::Read if hint_value("readOnlyHint") == Some(false) => {
            (least, Some("readOnlyHint: false"))
        }
        Effect::Read if hint_value("destructiveHint") == Some(true) => {
            (least, Some("destructiveHint: true"))
        }
        Effect::Read | Effect::Idempotent if hint_value("idempotentHint") == Some(false) => {
            (Effect::Write, Some("idempotentHint: false"))
        }
        _ => (effect, None),
    }
}

/// The effect that the hints of a trusted server promise.
fn promised_effect(annotations: &JsonObject) -> Option<Effect> {
    let is_hinted = |hint: &str| annotations.get(hint).and_then(Value::as_bool) == Some(true);
    match (is_hinted("readOnlyHint"), is_hinted("idempotentHint")) {
        (true, _) => Some(Effect::Read),
        (false, true) => Some(Effect::Idempotent),
        (false, false) => None,
    }
}

/// Removes hints that promise more than the effect permits. A reader would take them for the
/// operator's promise.
fn remove_promises(annotations: &mut JsonObject, effect: Effect) {
    let promises: &[&str] = match effect {
        Effect::Read => &[],
        Effect::Idempotent => &["readOnlyHint"],
        Effect::Write => &["readOnlyHint", "idempotentHint"],
    };
    annotations
        .retain(|name, value| !(promises.contains(&name.as_str()) && *value == Value::Bool(true)));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn annotations(value: Value) -> JsonObject {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn hints_only_tighten_the_effect() {
        use Effect::{Idempotent, Read, Write};
        for (declared, hints, effect, because) in [
            (
                Write,
                json!({"readOnlyHint": true, "idempotentHint": true, "destructiveHint": false}),
                Write,
                None,
            ),
            (Idempotent, json!({"readOnlyHint": true}), Idempotent, None),
            (Read, json!({}), Read, None),
            (
                Read,
                json!({"readOnlyHint": true, "destructiveHint": true, "idempotentHint": false}),
                Read,
                None,
            ),
            (
                Read,
                json!({"openWorldHint": true, "title": "Search"}),
                Read,
                None,
            ),
            (
                Read,
                json!({"readOnlyHint": false}),
                Write,
                Some("readOnlyHint: false"),
            ),
            (
                Read,
                json!({"readOnlyHint": false, "idempotentHint": true}),
                Idempotent,
                Some("readOnlyHint: false"),
            ),
            (
                Read,
                json!({"destructiveHint": true}),
                Write,
                Some("destructiveHint: true"),
            ),
            (
                Read,
                json!({"idempotentHint": false}),
                Write,
                Some("idempotentHint: false"),
            ),
            (Read, json!({"readOnlyHint": "no"}), Read, None),
            (Idempotent, json!({"readOnlyHint": false}), Idempotent, None),
            (
                Idempotent,
                json!({"idempotentHint": false}),
                Write,
                Some("idempotentHint: false"),
            ),
        ] {
            assert_eq!(
                tighten_effect(declared, &annotations(hints.clone())),
                (effect, because),
                "{declared:?} {hints}"
            );
        }
    }

    #[test]
    fn promises_beyond_the_effect_are_removed() {
        let all = json!({"title": "T", "readOnlyHint": true, "idempotentHint": true, "destructiveHint": false, "openWorldHint": true});
        for (effect, left) in [
            (
                Effect::Read,
                vec![
                    "title",
                    "readOnlyHint",
                    "idempotentHint",
                    "destructiveHint",
                    "openWorldHint",
                ],
            ),
            (
                Effect::Idempotent,
                vec![
                    "title",
                    "idempotentHint",
                    "destructiveHint",
                    "openWorldHint",
                ],
            ),
            (
                Effect::Write,
                vec!["title", "destructiveHint", "openWorldHint"],
            ),
        ] {
            let mut annotations = annotations(all.clone());
            remove_promises(&mut annotations, effect);
            assert_eq!(annotations.keys().collect::<Vec<_>>(), left);
        }
    }
}
