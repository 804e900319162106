use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::*;
use crate::content::{Content, Resource};

#[path = "shape_tests.rs"]
mod shapes;

/// The dialects that use JSON.
const JSON: [Dialect; 8] = [
    Dialect::Openai,
    Dialect::OpenaiResponses,
    Dialect::Anthropic,
    Dialect::Gemini,
    Dialect::GeminiInteractions,
    Dialect::Bedrock,
    Dialect::Mcp,
    Dialect::Native,
];

pub(crate) fn read_guessed(body: Value) -> Message {
    read_message(body.clone(), None).unwrap_or_else(|unread| panic!("{body}: {unread}"))
}

pub(crate) fn read_refusal(body: Value, named: Option<Dialect>) -> String {
    match read_message(body.clone(), named) {
        Ok(message) => panic!("{body} was read as {message:?}"),
        Err(unread) => unread.message,
    }
}

/// The dialect and, for each call, its id, name and arguments.
pub(crate) fn read_calls(body: Value) -> (Dialect, Vec<(Value, String, Value)>) {
    let message = read_guessed(body);
    let calls = message.calls.iter().map(|call| {
        let call = call.as_ref().unwrap();
        (
            call.id.clone().unwrap_or_default(),
            call.name.clone(),
            arguments_value(&call.arguments),
        )
    });
    (message.dialect, calls.collect())
}

pub(crate) fn arguments_value(arguments: &RawArguments) -> Value {
    match arguments {
        RawArguments::Object(fields) => fields.clone().into(),
        RawArguments::Text(text) | RawArguments::Input(text) => text.as_str().into(),
        RawArguments::Missing => Value::Null,
        RawArguments::Other(value) => value.clone(),
    }
}

pub(crate) fn one_call(id: &str, name: &str, arguments: Value) -> Vec<(Value, String, Value)> {
    vec![(id.into(), name.to_owned(), arguments)]
}

/// For each call, whether it was cut off.
pub(crate) fn cut_off_flags(body: Value) -> Vec<bool> {
    read_guessed(body)
        .calls
        .iter()
        .map(|call| call.as_ref().is_ok_and(|call| call.cut_off))
        .collect()
}

pub(crate) fn text(text: &str) -> Content {
    Content::text(text)
}

pub(crate) fn image(mime_type: &str) -> Content {
    Content::Image {
        data: "aGk=".into(),
        mime_type: mime_type.into(),
    }
}

pub(crate) fn file(uri: &str, mime_type: &str) -> Content {
    let resource = Resource {
        uri: uri.into(),
        mime_type: Some(mime_type.into()),
        blob: Some("aGk=".into()),
        text: None,
    };
    Content::Resource { resource }
}

pub(crate) fn tool_reply(content: &[Content]) -> ToolReply<'_> {
    ToolReply {
        content,
        structured: None,
        is_error: false,
        is_final_answer: false,
        is_invalid_call: false,
    }
}

/// The reply to a message with one call.
pub(crate) fn reply_to(body: Value, tool_reply: ToolReply<'_>) -> Value {
    let message = read_guessed(body);
    assert_eq!(message.calls.len(), 1);
    let reply = write_replies(&message, &[tool_reply]);
    assert_eq!(reply.len(), 1, "{reply:?}");
    reply.into_iter().next().unwrap()
}

#[test]
fn malformed_call_does_not_affect_others() {
    for (dialect, bad) in [
        (
            Dialect::Openai,
            json!({"id": "x", "type": "function", "function": {"name": 7, "arguments": "{}"}}),
        ),
        (
            Dialect::Anthropic,
            json!({"type": "tool_use", "id": "x", "input": {}}),
        ),
        (
            Dialect::Bedrock,
            json!({"toolUse": {"toolUseId": "x", "name": "", "input": {}}}),
        ),
        (
            Dialect::Native,
            json!({"tool_name": ["f"], "tool_use_id": "x", "arguments": {}}),
        ),
    ] {
        let good = write_calls(dialect, &[("y".into(), "f".into(), Map::new())], Wrap::Bare);
        let message = read_guessed(json!([bad, good[0]]));
        let malformed = message.calls[0].as_ref().unwrap_err();
        assert!(
            malformed.fault.contains("name") && malformed.correction.contains("exact name"),
            "{malformed:?}"
        );
        assert_eq!(malformed.id, Some(json!("x")));
        assert_eq!(message.calls[1].as_ref().unwrap().name, "f");
        let content = [text("again")];
        let reply = write_replies(&message, &[tool_reply(&content), tool_reply(&content)]);
        assert!(Value::from(reply).to_string().contains("\"x\""));
    }
}

#[test]
fn message_without_calls_has_a_warning() {
    let messages = |text: &str| {
        [
            (
                Dialect::Openai,
                json!({"role": "assistant", "content": text, "tool_calls": null}),
            ),
            (
                Dialect::Openai,
                json!({"choices": [{"message": {"role": "assistant", "content": text}}]}),
            ),
            (
                Dialect::OpenaiResponses,
                json!({"output": [{"type": "message", "role": "assistant",
                "content": [{"type": "output_text", "text": text}]}]}),
            ),
            (
                Dialect::Anthropic,
                json!({"role": "assistant", "content": [{"type": "text", "text": text}]}),
            ),
            (
                Dialect::Gemini,
                json!({"candidates": [{"content": {"role": "model", "parts": [{"text": text}]}}]}),
            ),
            (
                Dialect::Bedrock,
                json!({"output": {"message": {"role": "assistant", "content": [{"text": text}]}}}),
            ),
        ]
    };
    for (dialect, body) in messages("Hello.") {
        let message = read_guessed(body);
        assert_eq!((message.dialect, message.calls.len()), (dialect, 0));
        assert_eq!(message.warnings, ["the message has no tool calls"]);
        assert_eq!(write_replies(&message, &[]), [] as [Value; 0]);
    }
    for text in [
        "[TOOL_CALL]{}[/TOOL_CALL]",
        "Thought: hm\n Action: f\nAction Input: {}",
    ] {
        for (_, body) in messages(text) {
            assert!(read_guessed(body).warnings[0].contains("`dialect=text` reads"));
        }
    }
}

#[test]
fn refusal_describes_a_valid_message() {
    for (body, expected) in [
        (
            json!({"object": "chat.completion.chunk", "choices": [{"delta": {}}]}),
            "put the stream together first",
        ),
        (
            json!({"type": "content_block_delta", "index": 0, "delta": {}}),
            "put the stream together first",
        ),
        (
            json!({"type": "response.output_item.done", "item": {}}),
            "put the stream together first",
        ),
        (
            json!({"contentBlockDelta": {}}),
            "put the stream together first",
        ),
        (
            json!([{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]),
            "only the last",
        ),
        (
            json!({"role": "user", "content": "x"}),
            "a message to the model",
        ),
        (
            json!({"model": "m", "messages": []}),
            "a request to a model",
        ),
        (
            json!({"error": {"message": "overloaded"}}),
            "a provider's error",
        ),
        (json!(7), "neither an object, an array nor a text"),
        (
            json!({"weather": "fine"}),
            "openai, openai-responses, anthropic",
        ),
        // This is not an envelope, because its option is misspelled, and not a choice. If it were
        // read as a choice, its calls would be overlooked.
        (
            json!({"message": {"role": "assistant", "content": [{"type": "tool_use"}]}, "runid": "r"}),
            "no dialect",
        ),
    ] {
        let what = read_refusal(body, None);
        assert!(what.contains(expected), "{what}");
    }
}

#[test]
fn named_dialect_is_enforced() {
    let body = json!({"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {}}]});
    let what = read_refusal(body, Some(Dialect::Openai));
    assert!(
        what.contains("not a message of the dialect openai")
            && what.contains("looks like anthropic"),
        "{what}"
    );
    let plain = json!({"role": "assistant", "content": "Hello."});
    assert_eq!(
        read_message(plain, Some(Dialect::Anthropic))
            .unwrap()
            .dialect,
        Dialect::Anthropic
    );
}

#[test]
fn text_dialect_reads_provider_messages() {
    assert_eq!(read_guessed(json!("hm")).dialect, Dialect::Text);
    assert_eq!(read_guessed(json!({"text": "hm"})).dialect, Dialect::Text);
    let body = json!({"role": "assistant", "content": [{"type": "thinking", "text": "no"}, {"type": "text", "text": "hm"}]});
    assert_eq!(
        read_message(body.clone(), Some(Dialect::Text))
            .unwrap()
            .dialect,
        Dialect::Text
    );
    assert_eq!(
        message_texts::join_texts(
            &json!({"choices": [{"message": {"content": "a"}}, {"message": {"content": "b"}}]})
        ),
        "a"
    );
}

/// How much of the provider's message surrounds the calls.
#[derive(Debug, Clone, Copy)]
enum Wrap {
    Bare,
    Message,
    Response,
}

/// The id, name and arguments.
type Call = (String, String, Map<String, Value>);

fn map_calls(calls: &[Call], one: impl Fn(&Call) -> Value) -> Value {
    calls.iter().map(one).collect()
}

/// Writes calls in the provider's format.
fn write_calls(dialect: Dialect, calls: &[Call], wrap: Wrap) -> Value {
    match dialect {
        Dialect::Openai => {
            let calls = map_calls(calls, |(id, name, arguments)| {
                let arguments = Value::from(arguments.clone()).to_string();
                json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}})
            });
            let message = json!({"role": "assistant", "content": "hm", "tool_calls": calls});
            match wrap {
                Wrap::Bare => calls,
                Wrap::Message => message,
                Wrap::Response => {
                    json!({"object": "chat.completion", "choices": [{"index": 0, "message": message}]})
                }
            }
        }
        Dialect::OpenaiResponses => {
            let items = map_calls(calls, |(id, name, arguments)| {
                let arguments = Value::from(arguments.clone()).to_string();
                json!({"type": "function_call", "call_id": id, "name": name, "arguments": arguments})
            });
            match wrap {
                Wrap::Bare | Wrap::Message => items,
                Wrap::Response => {
                    json!({"object": "response", "status": "completed", "output": items})
                }
            }
        }
        Dialect::Anthropic => {
            let blocks = map_calls(
                calls,
                |(id, name, input)| json!({"type": "tool_use", "id": id, "name": name, "input": input}),
            );
            match wrap {
                Wrap::Bare => blocks,
                Wrap::Message => json!({"role": "assistant", "content": blocks}),
                Wrap::Response => {
                    json!({"type": "message", "role": "assistant", "content": blocks, "stop_reason": "tool_use"})
                }
            }
        }
        Dialect::Gemini => {
            let parts = map_calls(
                calls,
                |(id, name, args)| json!({"functionCall": {"id": id, "name": name, "args": args}}),
            );
            let content = json!({"role": "model", "parts": parts});
            match wrap {
                Wrap::Bare => parts,
                Wrap::Message => content,
                Wrap::Response => {
                    json!({"candidates": [{"content": content, "finishReason": "STOP"}]})
                }
            }
        }
        Dialect::GeminiInteractions => {
            let steps = map_calls(
                calls,
                |(id, name, arguments)| json!({"type": "function_call", "id": id, "name": name, "arguments": arguments}),
            );
            match wrap {
                Wrap::Bare | Wrap::Message => steps,
                Wrap::Response => json!({"status": "requires_action", "steps": steps}),
            }
        }
        Dialect::Bedrock => {
            let blocks = map_calls(
                calls,
                |(id, name, input)| json!({"toolUse": {"toolUseId": id, "name": name, "input": input}}),
            );
            let message = json!({"role": "assistant", "content": blocks});
            match wrap {
                Wrap::Bare => blocks,
                Wrap::Message => message,
                Wrap::Response => json!({"output": {"message": message}, "stopReason": "tool_use"}),
            }
        }
        Dialect::Mcp => map_calls(
            calls,
            |(id, name, arguments)| json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": name, "arguments": arguments}}),
        ),
        Dialect::Native | Dialect::Text => map_calls(
            calls,
            |(id, name, arguments)| json!({"tool_name": name, "tool_use_id": id, "arguments": arguments}),
        ),
    }
}

/// Field names that have a meaning in some dialect.
const FIELDS: [&str; 32] = [
    "role",
    "content",
    "tool_calls",
    "function",
    "function_call",
    "name",
    "arguments",
    "id",
    "type",
    "choices",
    "message",
    "output",
    "call_id",
    "input",
    "parts",
    "functionCall",
    "args",
    "candidates",
    "finishReason",
    "toolUse",
    "toolUseId",
    "stopReason",
    "jsonrpc",
    "method",
    "params",
    "tool_name",
    "text",
    "status",
    "stop_reason",
    "finish_reason",
    "custom",
    "error",
];

const WORDS: [&str; 12] = [
    "assistant",
    "model",
    "function",
    "custom",
    "tool_use",
    "function_call",
    "message",
    "tools/call",
    "MAX_TOKENS",
    "max_tokens",
    "MALFORMED_FUNCTION_CALL",
    "",
];

fn arguments() -> impl Strategy<Value = Map<String, Value>> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(|number| json!(number)),
        "\\PC{0,8}".prop_map(Value::from),
    ];
    let value = leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("\\PC{0,5}", inner, 0..4)
                .prop_map(|fields| fields.into_iter().collect()),
        ]
    });
    prop::collection::btree_map("\\PC{1,6}", value, 0..4)
        .prop_map(|fields| fields.into_iter().collect())
}

fn calls() -> impl Strategy<Value = Vec<Call>> {
    prop::collection::vec(
        (
            "[a-zA-Z0-9_.:-]{1,16}",
            "[\\PC&&\\S]\\PC{0,12}",
            arguments(),
        ),
        1..5,
    )
}

/// JSON that resembles messages and is mostly broken.
fn garbage() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<u8>().prop_map(Value::from),
        prop::sample::select(WORDS.to_vec()).prop_map(Value::from),
        "\\PC{0,6}".prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 64, 6, |inner| {
        let field = prop::sample::select(FIELDS.to_vec()).prop_map(str::to_owned);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(field, inner, 0..6)
                .prop_map(|fields| fields.into_iter().collect()),
        ]
    })
}

fn content() -> impl Strategy<Value = Vec<Content>> {
    let kind = prop::sample::select(vec![
        "image/png",
        "image/tiff",
        "application/pdf",
        "text/markdown",
        "audio/wav",
        "x",
    ]);
    let data = "([A-Za-z0-9+/]{4}){0,3}";
    let block =
        (0..5u8, "\\PC{0,6}", kind, data).prop_map(|(which, text, kind, data)| match which {
            0 => Content::Text { text },
            1 => Content::Image {
                data,
                mime_type: kind.into(),
            },
            2 => Content::Audio {
                data,
                mime_type: kind.into(),
            },
            3 => Content::Resource {
                resource: Resource {
                    uri: text,
                    mime_type: Some(kind.into()),
                    blob: Some(data),
                    text: None,
                },
            },
            _ => Content::Resource {
                resource: Resource {
                    uri: text.clone(),
                    mime_type: None,
                    text: Some(text),
                    blob: None,
                },
            },
        });
    prop::collection::vec(block, 0..4)
}

/// Every string value of a key, at any depth.
fn collect_strings<'a>(value: &'a Value, name: &str, into: &mut Vec<&'a str>) {
    match value {
        Value::Array(items) => items
            .iter()
            .for_each(|item| collect_strings(item, name, into)),
        Value::Object(fields) => {
            into.extend(fields.get(name).and_then(Value::as_str));
            fields
                .values()
                .for_each(|inner| collect_strings(inner, name, into));
        }
        _ => {}
    }
}

proptest! {
    #[test]
    fn written_calls_are_read_back(calls in calls()) {
        for dialect in JSON {
            for wrap in [Wrap::Bare, Wrap::Message, Wrap::Response] {
                let body = write_calls(dialect, &calls, wrap);
                let guessed = read_message(body.clone(), None).unwrap();
                prop_assert_eq!(&guessed, &read_message(body, Some(dialect)).unwrap());
                prop_assert_eq!(guessed.dialect, dialect);
                prop_assert_eq!(guessed.calls.len(), calls.len());
                for (call, (id, name, arguments)) in guessed.calls.iter().zip(&calls) {
                    let call = call.as_ref().unwrap();
                    prop_assert_eq!(call.id.as_ref().unwrap(), id);
                    prop_assert_eq!(&call.name, name);
                    let read = match &call.arguments {
                        RawArguments::Text(text) => serde_json::from_str(text).unwrap(),
                        other => arguments_value(other),
                    };
                    prop_assert_eq!(read, Value::from(arguments.clone()));
                }
            }
        }
    }

    #[test]
    fn every_call_is_answered_under_its_id(calls in calls(), content in content(), is_error in any::<bool>()) {
        for dialect in JSON {
            let message = read_message(write_calls(dialect, &calls, Wrap::Bare), None).unwrap();
            let replies = vec![ToolReply { is_error, ..tool_reply(&content) }; calls.len()];
            let replied = Value::from(write_replies(&message, &replies));
            let name = match dialect {
                Dialect::Openai => "tool_call_id",
                Dialect::OpenaiResponses | Dialect::GeminiInteractions => "call_id",
                Dialect::Anthropic | Dialect::Native | Dialect::Text => "tool_use_id",
                Dialect::Bedrock => "toolUseId",
                Dialect::Gemini | Dialect::Mcp => "id",
            };
            let mut ids = Vec::new();
            collect_strings(&replied, name, &mut ids);
            let expected: Vec<&str> = calls.iter().map(|(id, ..)| id.as_str()).collect();
            prop_assert_eq!(ids, expected);
        }
    }

    #[test]
    fn replies_contain_no_blank_text(calls in calls(), content in content()) {
        for dialect in [Dialect::Anthropic, Dialect::Bedrock] {
            let message = read_message(write_calls(dialect, &calls, Wrap::Bare), None).unwrap();
            let replied = Value::from(write_replies(&message, &vec![tool_reply(&content); calls.len()]));
            let mut texts = Vec::new();
            collect_strings(&replied, "text", &mut texts);
            prop_assert!(texts.iter().all(|text| !text.trim().is_empty()), "{}", replied);
            prop_assert!(!replied.to_string().contains("\"content\":[]"), "{}", replied);
        }
    }

    #[test]
    fn any_json_is_answered_or_refused(body in garbage()) {
        for named in JSON.into_iter().map(Some).chain([None, Some(Dialect::Text)]) {
            match read_message(body.clone(), named) {
                Ok(message) => {
                    let content = [text("x")];
                    let replies = vec![ToolReply { is_error: true, is_invalid_call: true, ..tool_reply(&content) }; message.calls.len()];
                    prop_assert_eq!(write_replies(&message, &replies).is_empty(), message.calls.is_empty());
                    prop_assert!(!message.calls.is_empty() || !message.warnings.is_empty() || message.dialect == Dialect::Text);
                }
                Err(unread) => prop_assert!(unread.message.starts_with("the body ")),
            }
        }
    }
}

#[test]
fn reply_repeats_what_the_provider_compares() {
    let content = [text("x")];
    let replied = |body: Value| {
        let message = read_guessed(body);
        let namespace = message.calls[0]
            .as_ref()
            .ok()
            .and_then(|call| call.namespace.clone());
        (
            json!(write_replies(&message, &[tool_reply(&content)])),
            namespace,
        )
    };
    let caller = json!({"type": "program", "caller_id": "prog_1"});
    let (output, namespace) = replied(
        json!([{"type": "function_call", "call_id": "c", "name": "get", "arguments": "{}",
        "caller": caller, "namespace": "crm"}]),
    );
    assert_eq!(namespace.as_deref(), Some("crm"));
    assert_eq!(
        output,
        json!([{"type": "function_call_output", "call_id": "c", "output": "x", "caller": caller, "namespace": "crm"}])
    );
    let (output, _) = replied(
        json!([{"type": "tool_use", "id": "t", "name": "click", "input": {}, "toolset_name": "browser"}]),
    );
    assert_eq!(output[0]["content"][0]["toolset_name"], "browser");
    let (output, _) =
        replied(json!({"type": "agent.custom_tool_use", "id": "sevt_1", "name": "f", "input": {}}));
    let content = json!([{"type": "text", "text": "x"}]);
    assert_eq!(
        output,
        json!([{"type": "user.custom_tool_result", "custom_tool_use_id": "sevt_1", "content": content}])
    );
    for id in [json!(null), json!("")] {
        let (output, _) =
            replied(json!({"type": "agent.custom_tool_use", "id": id, "name": "f", "input": {}}));
        assert_eq!(output[0]["custom_tool_use_id"], "call_1", "{id}");
    }
    let (output, _) = replied(json!([{"type": "local_shell_call", "action": {}}]));
    assert_eq!(output[0]["id"], "call_1");
}

#[test]
fn custom_tools_get_their_input() {
    for (body, output) in [
        (
            json!([{"type": "custom_tool_call", "call_id": "c", "name": "sql", "input": "select 1"}]),
            json!([{"type": "custom_tool_call_output", "call_id": "c", "output": "x"}]),
        ),
        (
            json!({"role": "assistant", "tool_calls": [{"id": "c", "type": "custom", "custom": {"name": "sql", "input": "select 1"}}]}),
            json!([{"role": "tool", "tool_call_id": "c", "content": "x"}]),
        ),
    ] {
        let message = read_guessed(body);
        let call = message.calls[0].as_ref().unwrap();
        assert_eq!(call.arguments, RawArguments::Input("select 1".into()));
        let content = [text("x")];
        assert_eq!(
            json!(write_replies(&message, &[tool_reply(&content)])),
            output
        );
    }
}
