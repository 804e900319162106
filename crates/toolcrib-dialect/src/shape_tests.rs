//! Tests which bodies are accepted as messages of a dialect.

use super::*;

/// The part of a refusal that describes the correct shape.
fn shape(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Openai => "`tool_calls`",
        Dialect::OpenaiResponses | Dialect::GeminiInteractions => "`function_call`",
        Dialect::Anthropic => "`tool_use`",
        Dialect::Gemini => "`functionCall`",
        Dialect::Bedrock => "`toolUse`",
        Dialect::Mcp => "JSON-RPC",
        Dialect::Native | Dialect::Text => "\"tool_name\"",
    }
}

#[test]
fn lists_of_unknown_objects_are_refused() {
    for dialect in JSON {
        let refusal = read_refusal(json!([{"a": 1}]), Some(dialect));
        assert!(refusal.contains(shape(dialect)), "{refusal}");
        assert!(
            read_message(json!([]), Some(dialect))
                .unwrap()
                .calls
                .is_empty(),
            "{dialect:?}"
        );
    }
}

#[test]
fn refusal_names_each_dialect_once() {
    let user = json!({"role": "user", "content": [{"type": "tool_use", "id": "1", "name": "f", "input": {}}]});
    let refusal = read_refusal(user.clone(), Some(Dialect::Anthropic));
    assert!(!refusal.contains("it looks like anthropic"), "{refusal}");
    read_refusal(
        json!({"role": "user", "content": [{"toolUse": {"toolUseId": "1", "name": "f"}}]}),
        Some(Dialect::Bedrock),
    );
}

#[test]
fn blocks_need_a_string_type() {
    for block in [
        json!({"type": 7}),
        json!({"type": "function"}),
        json!({"name": "f", "input": {}}),
    ] {
        read_refusal(json!([block]), Some(Dialect::Anthropic));
    }
}

#[test]
fn one_candidate_needs_no_warning() {
    let candidate = json!({"content": {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {}}}]}});
    for (candidates, warnings) in [(1, 0), (2, 1)] {
        let message = read_guessed(json!({"candidates": vec![candidate.clone(); candidates]}));
        assert_eq!(
            (message.calls.len(), message.warnings.len()),
            (1, warnings),
            "{:?}",
            message.warnings
        );
    }
}

#[test]
fn data_stays_structured_beside_an_image() {
    let call = json!({"functionCall": {"name": "f", "args": {}}});
    let data = json!({"a": 1});
    let output = |content: &[Content]| {
        let tool_reply = ToolReply {
            structured: Some(&data),
            ..tool_reply(content)
        };
        reply_to(call.clone(), tool_reply)["parts"][0]["functionResponse"]["response"]["output"]
            .clone()
    };
    assert_eq!(output(&[text("{\"a\":1}"), image("image/png")]), data);
    assert!(output(&[text("{\"a\":1}"), text("and more"), image("image/png")]).is_string());
}

#[test]
fn openai_calls_have_several_shapes() {
    let function = json!({"name": "f", "arguments": "{}"});
    let call = json!({"id": "1", "type": "function", "function": function.clone()});
    for body in [
        json!({"role": "assistant", "tool_calls": [], "function_call": function.clone()}),
        json!({"role": "assistant", "tool_calls": call.clone()}),
        json!([{"function": function.clone()}]),
        json!([{"type": "function", "name": "f", "arguments": "{}"}]),
        json!([{"type": "other", "function": function.clone()}]),
    ] {
        let message = read_message(body.clone(), Some(Dialect::Openai))
            .unwrap_or_else(|unread| panic!("{body}: {unread}"));
        let names: Vec<String> = message
            .calls
            .into_iter()
            .flatten()
            .map(|call| call.name)
            .collect();
        assert_eq!(names, ["f"], "{body}");
    }
    let message = read_message(
        json!([{"type": "custom", "id": "1", "custom": {"name": "f"}}]),
        Some(Dialect::Openai),
    )
    .unwrap();
    assert_eq!(
        (message.calls.len(), message.warnings.len()),
        (1, 0),
        "{:?}",
        message.warnings
    );
    read_refusal(
        json!([{"type": "function", "role": "tool", "name": "f"}]),
        Some(Dialect::Openai),
    );
}

#[test]
fn type_without_its_object_does_not_panic() {
    let _ = read_message(json!({"type": "function", "name": "f"}), None);
    let _ = read_message(json!({"type": "custom", "custom": 7}), None);
    assert!(
        read_message(
            json!({"type": "function", "function": {"name": "f", "description": "…"}}),
            None
        )
        .is_err()
    );
}

#[test]
fn unsupported_files_are_described_in_text() {
    let call = json!({"role": "assistant", "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f"}}]});
    let message = read_guessed(call);
    for (mime_type, messages) in [("application/pdf", 2), ("application/zip", 1)] {
        let content = [file("file:///a", mime_type)];
        assert_eq!(
            write_replies(&message, &[tool_reply(&content)]).len(),
            messages,
            "{mime_type}"
        );
    }
}

#[test]
fn mcp_file_has_text_or_bytes() {
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "f"}});
    for (text, blob, shown) in [
        (None, None, (Some(""), None)),
        (Some("t"), None, (Some("t"), None)),
        (None, Some("aGk="), (None, Some("aGk="))),
    ] {
        let (text, blob) = (text.map(str::to_owned), blob.map(str::to_owned));
        let resource = Resource {
            uri: "file:///a".into(),
            mime_type: None,
            text,
            blob,
        };
        let reply = reply_to(call.clone(), tool_reply(&[Content::Resource { resource }]));
        let file = &reply["result"]["content"][0]["resource"];
        assert_eq!((file["text"].as_str(), file["blob"].as_str()), shown);
    }
}

#[test]
fn empty_result_gets_a_text() {
    let silent = [vec![], vec![Content::text("")], vec![Content::text(" \n")]];
    for &dialect in Dialect::ALL {
        let message = read_message(body_with_one_call(dialect), Some(dialect)).unwrap();
        assert_eq!(message.calls.len(), 1, "{dialect:?}");
        for content in &silent {
            let failed = ToolReply {
                is_error: true,
                ..tool_reply(content)
            };
            let replied = Value::from(write_replies(&message, &[failed])).to_string();
            assert!(
                replied.contains("The tool failed without a message."),
                "{dialect:?}: {replied}"
            );
            // In these two dialects a result may be empty.
            if !matches!(dialect, Dialect::Mcp | Dialect::Native) {
                let replied =
                    Value::from(write_replies(&message, &[tool_reply(content)])).to_string();
                assert!(replied.contains("(no output)"), "{dialect:?}: {replied}");
            }
        }
        let words = [Content::text("no such city")];
        let replied = Value::from(write_replies(
            &message,
            &[ToolReply {
                is_error: true,
                ..tool_reply(&words)
            }],
        ))
        .to_string();
        assert!(
            !replied.contains("without a message"),
            "{dialect:?}: {replied}"
        );
    }
    // A picture counts as output.
    let picture = [Content::Image {
        data: "iVBO".into(),
        mime_type: "image/png".into(),
    }];
    for &dialect in Dialect::ALL {
        let message = read_message(body_with_one_call(dialect), Some(dialect)).unwrap();
        let replied = Value::from(write_replies(&message, &[tool_reply(&picture)])).to_string();
        assert!(!replied.contains("(no output)"), "{dialect:?}: {replied}");
    }
}

fn body_with_one_call(dialect: Dialect) -> Value {
    match dialect {
        Dialect::Openai => {
            json!({"tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]})
        }
        Dialect::OpenaiResponses => {
            json!([{"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"}])
        }
        Dialect::Anthropic => json!([{"type": "tool_use", "id": "1", "name": "f", "input": {}}]),
        Dialect::Gemini => json!([{"functionCall": {"name": "f", "args": {}}}]),
        Dialect::GeminiInteractions => {
            json!([{"type": "function_call", "id": "1", "name": "f", "arguments": {}}])
        }
        Dialect::Bedrock => json!([{"toolUse": {"toolUseId": "1", "name": "f", "input": {}}}]),
        Dialect::Mcp => {
            json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "f", "arguments": {}}})
        }
        Dialect::Native => json!({"tool_name": "f"}),
        Dialect::Text => json!("{\"tool_name\": \"f\"}"),
    }
}

#[test]
fn action_with_input_is_a_call() {
    let body = json!({"action": "f", "action_input": {"x": 1}, "thought": "so"});
    let message = read_message(body, None).unwrap();
    assert_eq!((message.dialect, message.calls.len()), (Dialect::Native, 1));
    let call = message.calls[0].as_ref().unwrap();
    assert_eq!(
        (call.name.as_str(), &call.arguments),
        (
            "f",
            &RawArguments::Object(json!({"x": 1}).as_object().unwrap().clone())
        )
    );
    let named = read_message(
        json!({"tool_name": "g", "action": "f", "action_input": {}}),
        None,
    )
    .unwrap();
    assert_eq!(named.calls[0].as_ref().unwrap().name, "g");
    let answered = read_message(
        json!({"action": "Final Answer", "action_input": "42"}),
        None,
    )
    .unwrap();
    assert_eq!(
        (answered.calls.len(), answered.warnings.as_slice()),
        (0, &["the message has no tool calls".to_owned()][..])
    );
}
