//! Tests which bodies are accepted as messages of a dialect.

use super::*;

/// The part of a refusal that describes the correct shape.
fn shape(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Openai => "`tool_calls`",
        Dialect::OpenaiResponses => "`function_call`",
        Dialect::Anthropic => "`tool_use`",
        Dialect::Gemini => "`functionCall`",
        Dialect::Bedrock => "`toolUse`",
        Dialect::Mcp => "JSON-RPC",
        Dialect::Native | Dialect::Text => "\"tool_name\"",
    }
}

#[test]
fn lists_of_other_things_are_refused() {
    for dialect in JSON {
        let said = refused(json!([{"a": 1}]), Some(dialect));
        assert!(said.contains(shape(dialect)), "{said}");
        assert!(read(json!([]), Some(dialect)).unwrap().asks.is_empty(), "{dialect:?}");
    }
}

#[test]
fn a_refusal_names_no_dialect_twice() {
    let user = json!({"role": "user", "content": [{"type": "tool_use", "id": "1", "name": "f", "input": {}}]});
    let said = refused(user.clone(), Some(Dialect::Anthropic));
    assert!(!said.contains("it looks like anthropic"), "{said}");
    refused(json!({"role": "user", "content": [{"toolUse": {"toolUseId": "1", "name": "f"}}]}), Some(Dialect::Bedrock));
}

#[test]
fn blocks_have_a_type_that_is_a_word() {
    for block in [json!({"type": 7}), json!({"type": "function"}), json!({"name": "f", "input": {}})] {
        refused(json!([block]), Some(Dialect::Anthropic));
    }
}

#[test]
fn one_candidate_needs_no_warning() {
    let candidate = json!({"content": {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {}}}]}});
    for (candidates, warnings) in [(1, 0), (2, 1)] {
        let message = found(json!({"candidates": vec![candidate.clone(); candidates]}));
        assert_eq!((message.asks.len(), message.warnings.len()), (1, warnings), "{:?}", message.warnings);
    }
}

#[test]
fn data_stays_data_beside_a_picture() {
    let call = json!({"functionCall": {"name": "f", "args": {}}});
    let data = json!({"a": 1});
    let output = |content: &[Content]| {
        let told = ToolReply { structured: Some(&data), ..said(content) };
        reply_to(call.clone(), told)["parts"][0]["functionResponse"]["response"]["output"].clone()
    };
    assert_eq!(output(&[text("{\"a\":1}"), image("image/png")]), data);
    assert!(output(&[text("{\"a\":1}"), text("and more"), image("image/png")]).is_string());
}

#[test]
fn openai_calls_come_in_several_shapes() {
    let function = json!({"name": "f", "arguments": "{}"});
    let call = json!({"id": "1", "type": "function", "function": function.clone()});
    for body in [
        json!({"role": "assistant", "tool_calls": [], "function_call": function.clone()}),
        json!({"role": "assistant", "tool_calls": call.clone()}),
        json!([{"function": function.clone()}]),
        json!([{"type": "function", "name": "f", "arguments": "{}"}]),
        json!([{"type": "other", "function": function.clone()}]),
    ] {
        let message = read(body.clone(), Some(Dialect::Openai)).unwrap_or_else(|unread| panic!("{body}: {unread}"));
        let names: Vec<String> = message.asks.into_iter().flatten().map(|ask| ask.name).collect();
        assert_eq!(names, ["f"], "{body}");
    }
    let left = read(json!([{"type": "custom", "id": "1", "custom": {"name": "f"}}]), Some(Dialect::Openai)).unwrap();
    assert_eq!((left.asks.len(), left.warnings.len()), (0, 2), "{:?}", left.warnings);
    refused(json!([{"type": "function", "role": "tool", "name": "f"}]), Some(Dialect::Openai));
}

#[test]
fn a_type_without_its_object_is_guessed_at() {
    let _ = read(json!({"type": "function", "name": "f"}), None);
    let _ = read(json!({"type": "custom", "custom": 7}), None);
    assert!(read(json!({"type": "function", "function": {"name": "f", "description": "…"}}), None).is_err());
}

#[test]
fn files_of_other_types_are_said_in_words() {
    let call = json!({"role": "assistant", "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f"}}]});
    let message = found(call);
    for (mime_type, messages) in [("application/pdf", 2), ("application/zip", 1)] {
        let content = [file("file:///a", mime_type)];
        assert_eq!(reply(&message, &[said(&content)]).len(), messages, "{mime_type}");
    }
}

#[test]
fn a_file_of_mcp_has_text_or_bytes() {
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "f"}});
    for (text, blob, shown) in [
        (None, None, (Some(""), None)),
        (Some("t"), None, (Some("t"), None)),
        (None, Some("aGk="), (None, Some("aGk="))),
    ] {
        let (text, blob) = (text.map(str::to_owned), blob.map(str::to_owned));
        let resource = Resource { uri: "file:///a".into(), mime_type: None, text, blob };
        let reply = reply_to(call.clone(), said(&[Content::Resource { resource }]));
        let file = &reply["result"]["content"][0]["resource"];
        assert_eq!((file["text"].as_str(), file["blob"].as_str()), shown);
    }
}

#[test]
fn a_silent_result_has_words() {
    let silent = [vec![], vec![Content::text("")], vec![Content::text(" \n")]];
    for dialect in Dialect::ALL {
        let message = read(body_with_one_call(dialect), Some(dialect)).unwrap();
        assert_eq!(message.asks.len(), 1, "{dialect:?}");
        for content in &silent {
            let failed = ToolReply { is_error: true, ..said(content) };
            let replied = Value::from(reply(&message, &[failed])).to_string();
            assert!(replied.contains("The tool failed without a message."), "{dialect:?}: {replied}");
            // In these two dialects a result may be empty.
            if !matches!(dialect, Dialect::Mcp | Dialect::Native) {
                let replied = Value::from(reply(&message, &[said(content)])).to_string();
                assert!(replied.contains("(no output)"), "{dialect:?}: {replied}");
            }
        }
        let words = [Content::text("no such city")];
        let replied = Value::from(reply(&message, &[ToolReply { is_error: true, ..said(&words) }])).to_string();
        assert!(!replied.contains("without a message"), "{dialect:?}: {replied}");
    }
    // A picture counts as output.
    let picture = [Content::Image { data: "iVBO".into(), mime_type: "image/png".into() }];
    for dialect in Dialect::ALL {
        let message = read(body_with_one_call(dialect), Some(dialect)).unwrap();
        let replied = Value::from(reply(&message, &[said(&picture)])).to_string();
        assert!(!replied.contains("(no output)"), "{dialect:?}: {replied}");
    }
}

fn body_with_one_call(dialect: Dialect) -> Value {
    match dialect {
        Dialect::Openai => {
            json!({"tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]})
        }
        Dialect::OpenaiResponses => json!([{"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"}]),
        Dialect::Anthropic => json!([{"type": "tool_use", "id": "1", "name": "f", "input": {}}]),
        Dialect::Gemini => json!([{"functionCall": {"name": "f", "args": {}}}]),
        Dialect::Bedrock => json!([{"toolUse": {"toolUseId": "1", "name": "f", "input": {}}}]),
        Dialect::Mcp => {
            json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "f", "arguments": {}}})
        }
        Dialect::Native => json!({"tool_name": "f"}),
        Dialect::Text => json!("{\"tool_name\": \"f\"}"),
    }
}

#[test]
fn an_action_is_a_call() {
    let body = json!({"action": "f", "action_input": {"x": 1}, "thought": "so"});
    let message = read(body, None).unwrap();
    assert_eq!((message.dialect, message.asks.len()), (Dialect::Native, 1));
    let ask = message.asks[0].as_ref().unwrap();
    assert_eq!(
        (ask.name.as_str(), &ask.arguments),
        ("f", &RawArguments::Object(json!({"x": 1}).as_object().unwrap().clone()))
    );
    let named = read(json!({"tool_name": "g", "action": "f", "action_input": {}}), None).unwrap();
    assert_eq!(named.asks[0].as_ref().unwrap().name, "g");
    let answered = read(json!({"action": "Final Answer", "action_input": "42"}), None).unwrap();
    assert_eq!(
        (answered.asks.len(), answered.warnings.as_slice()),
        (0, &["the message has no tool calls".to_owned()][..])
    );
}
