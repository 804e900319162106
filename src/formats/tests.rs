use std::sync::Arc;

use serde_json::json;

use super::*;
use crate::call::{Effect, JsonObject, NameMatching, ToolName};

fn definition(name: &str, input_schema: Value) -> Definition {
    Definition {
        name: ToolName::parse(name).unwrap(),
        description: "Does it.".into(),
        input_schema: Arc::new(input_schema),
        output_schema: None,
        annotations: JsonObject::new(),
        meta: JsonObject::new(),
        result_as_answer: false,
        paging: crate::call::Paging::Caller,
        tags: Vec::new(),
        aliases: Vec::new(),
        env: Vec::new(),
        context: None,
        examples: Vec::new(),
    }
}

fn render_definitions(format: Format, definitions: &[Definition]) -> Value {
    let offers = definitions.iter().map(|definition| ListedTool {
        definition,
        effect: Effect::Write,
        available: true,
        deferred: false,
    });
    render_offers(format, offers, NameMatching::Normalized)
}

fn render_offers<'a>(
    format: Format,
    offers: impl Iterator<Item = ListedTool<'a>> + Clone,
    matching: NameMatching,
) -> Value {
    let names = offers
        .clone()
        .map(|offer| (&offer.definition.name, offer.definition.aliases.as_slice()));
    render(
        format,
        offers,
        NameRules {
            spellings: &names.collect(),
            matching,
        },
    )
}

/// The names under which the tools are sent.
fn shown_names(format: Format, tools: &[(&str, &[&str])]) -> Vec<String> {
    let made = tools.iter().map(|(name, aliases)| {
        let aliases = aliases
            .iter()
            .map(|alias| ToolName::parse(alias).unwrap())
            .collect();
        Definition {
            aliases,
            ..definition(name, json!({"type": "object"}))
        }
    });
    let list = render_definitions(format, &made.collect::<Vec<_>>());
    let list = if format == Format::Gemini {
        list[0]["functionDeclarations"].clone()
    } else {
        list
    };
    let name = |tool: &Value| tool["name"].as_str().map(str::to_owned);
    list.as_array()
        .unwrap()
        .iter()
        .map(|tool| name(tool).or_else(|| name(&tool["function"])).unwrap())
        .collect()
}

#[test]
fn render_uses_the_shape_of_each_api() {
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
    let one = |format| render_definitions(format, &[definition("add", schema.clone())]);
    assert_eq!(
        one(Format::Openai),
        json!([{"type": "function", "function": {"name": "add", "description": "Does it.", "parameters": schema}}])
    );
    assert_eq!(
        one(Format::OpenaiResponses),
        json!([{"type": "function", "name": "add", "description": "Does it.", "parameters": schema, "strict": false}])
    );
    assert_eq!(
        one(Format::Anthropic),
        json!([{"name": "add", "description": "Does it.", "input_schema": schema}])
    );
    assert_eq!(
        one(Format::Gemini),
        json!([{"functionDeclarations": [{"name": "add", "description": "Does it.", "parametersJsonSchema": schema}]}])
    );
    assert_eq!(
        one(Format::Bedrock),
        json!({"tools": [{"toolSpec": {"name": "add", "description": "Does it.", "inputSchema": {"json": schema}}}]})
    );
    assert_eq!(
        one(Format::Mcp),
        json!({"tools": [{"name": "add", "description": "Does it.", "inputSchema": schema,
            "annotations": {"readOnlyHint": false, "destructiveHint": true, "idempotentHint": false}}]})
    );
}

#[test]
fn render_without_tools_is_valid() {
    for (format, none) in [
        (Format::Openai, json!([])),
        (Format::OpenaiResponses, json!([])),
        (Format::Anthropic, json!([])),
        (Format::Gemini, json!([])),
        (Format::Bedrock, json!({"tools": []})),
        (Format::Mcp, json!({"tools": []})),
    ] {
        assert_eq!(render_definitions(format, &[]), none);
    }
}

#[test]
fn disabled_tool_is_hidden_and_keeps_name() {
    let (dotted, off) = (
        definition("a.b", json!({"type": "object"})),
        definition("a_b", json!({"type": "object"})),
    );
    let offer = |definition, available| ListedTool {
        definition,
        effect: Effect::Read,
        available,
        deferred: false,
    };
    let offers = [offer(&dotted, true), offer(&off, false)].into_iter();
    let list = render_offers(Format::Anthropic, offers, NameMatching::Normalized);
    assert_eq!(
        list,
        json!([{"name": "a.b", "description": "Does it.", "input_schema": {"type": "object", "properties": {}}}])
    );
}

#[test]
fn changed_name_is_unambiguous() {
    assert_eq!(
        shown_names(Format::Openai, &[("weather.get", &[])]),
        ["weather_get"]
    );
    assert_eq!(
        shown_names(Format::Gemini, &[("weather.get", &[])]),
        ["weather.get"],
        "which Gemini takes"
    );
    assert_eq!(shown_names(Format::Gemini, &[("-x", &[])]), ["_x"]);
    // `weather_get` would be a name of the other tool, and so would `Weather-Get`. The name would
    // be ambiguous.
    for other in ["weather_get", "Weather-Get"] {
        assert_eq!(
            shown_names(Format::Openai, &[("weather.get", &[]), (other, &[])]),
            ["weather.get", other]
        );
        assert_eq!(
            shown_names(Format::Openai, &[("weather.get", &[]), ("b", &[other])]),
            ["weather.get", "b"]
        );
    }
    assert_eq!(
        shown_names(Format::Openai, &[("weather.get", &["weather_get"])]),
        ["weather_get"],
        "its own alias"
    );
}

#[test]
fn exact_matching_changes_no_name() {
    let mut one = definition("a.b", json!({"type": "object"}));
    let name = |one: &Definition| {
        let offer = ListedTool {
            definition: one,
            effect: Effect::Read,
            available: true,
            deferred: false,
        };
        render_offers(
            Format::Anthropic,
            std::iter::once(offer),
            NameMatching::Exact,
        )[0]["name"]
            .clone()
    };
    assert_eq!(name(&one), "a.b");
    one.aliases.push(ToolName::parse("ab").unwrap());
    assert_eq!(name(&one), "ab");
}

#[test]
fn alias_replaces_an_invalid_name() {
    assert_eq!(
        shown_names(Format::Gemini, &[("3d_render", &["3d", "render_3d"])]),
        ["render_3d"]
    );
    assert_eq!(
        shown_names(Format::Anthropic, &[("3d_render", &["render_3d"])]),
        ["3d_render"]
    );
    let long = "x".repeat(65);
    assert_eq!(
        shown_names(Format::Openai, &[(&long, &["short"])]),
        ["short"]
    );
    assert_eq!(
        shown_names(Format::Openai, &[(&long, &[])]),
        [long.as_str()],
        "rather refused than missed"
    );
}

#[test]
fn empty_parameters_follow_each_api() {
    let (none, any) = (
        json!({"type": "object"}),
        json!({"type": "object", "additionalProperties": {"type": "string"}}),
    );
    let closed =
        json!({"type": "object", "properties": {}, "required": [], "additionalProperties": false});
    let gemini = |schema: &Value| {
        render_definitions(Format::Gemini, &[definition("t", schema.clone())])[0]["functionDeclarations"][0].clone()
    };
    assert_eq!(
        gemini(&none),
        json!({"name": "t", "description": "Does it."})
    );
    assert_eq!(
        gemini(&closed),
        json!({"name": "t", "description": "Does it."})
    );
    assert_eq!(
        gemini(&any)["parametersJsonSchema"]["additionalProperties"],
        json!({"type": "string"})
    );
    let openai = render_definitions(Format::Openai, &[definition("t", none)]);
    assert_eq!(
        openai[0]["function"]["parameters"],
        json!({"type": "object", "properties": {}})
    );
}

#[test]
fn empty_description_is_omitted() {
    let mut silent = definition("t", json!({"type": "object"}));
    silent.description = " ".into();
    let list = render_definitions(Format::Bedrock, &[silent]);
    assert_eq!(list["tools"][0]["toolSpec"].get("description"), None);
}

#[test]
fn mcp_hints_default_to_the_effect() {
    let hints = |effect, annotations: Value| {
        let mut one = definition("t", json!({"type": "object"}));
        one.annotations = annotations.as_object().unwrap().clone();
        let offer = ListedTool {
            definition: &one,
            effect,
            available: true,
            deferred: false,
        };
        render_offers(
            Format::Mcp,
            std::iter::once(offer),
            NameMatching::Normalized,
        )["tools"][0]["annotations"]
            .clone()
    };
    let all = |read_only, destructive, idempotent| json!({"readOnlyHint": read_only, "destructiveHint": destructive, "idempotentHint": idempotent});
    assert_eq!(hints(Effect::Read, json!({})), all(true, false, true));
    assert_eq!(hints(Effect::Idempotent, json!({})), all(false, true, true));
    assert_eq!(hints(Effect::Write, json!({})), all(false, true, false));
    assert_eq!(
        hints(Effect::Write, json!({"readOnlyHint": true})),
        all(true, false, true)
    );
    assert_eq!(
        hints(Effect::Write, json!({"destructiveHint": false})),
        all(false, false, false)
    );
    assert_eq!(
        hints(Effect::Read, json!({"title": 5, "readOnlyHint": "yes"})),
        all(true, false, true)
    );
    assert_eq!(
        hints(Effect::Read, json!({"openWorldHint": true}))["openWorldHint"],
        json!(true)
    );
}

#[test]
fn mcp_output_schema_must_be_an_object() {
    let output = |schema: Value| {
        let mut one = definition("t", json!({"type": "object"}));
        one.output_schema = Some(Arc::new(schema));
        render_definitions(Format::Mcp, &[one])["tools"][0]
            .get("outputSchema")
            .cloned()
    };
    assert_eq!(output(json!({"type": "array", "items": {}})), None);
    let object = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
    assert_eq!(output(object.clone()), Some(object.clone()));
    assert_eq!(
        output(json!({"$ref": "#/$defs/N", "$defs": {"N": object}})),
        Some(object),
        "a root that only refers"
    );
}
