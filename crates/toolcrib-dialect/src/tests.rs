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

fn read_guessed(body: Value) -> Message {
    read_message(body.clone(), None).unwrap_or_else(|unread| panic!("{body}: {unread}"))
}

fn read_refusal(body: Value, named: Option<Dialect>) -> String {
    match read_message(body.clone(), named) {
        Ok(message) => panic!("{body} was read as {message:?}"),
        Err(unread) => unread.message,
    }
}

/// The dialect and, for each call, its id, name and arguments.
fn read_calls(body: Value) -> (Dialect, Vec<(Value, String, Value)>) {
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

fn arguments_value(arguments: &RawArguments) -> Value {
    match arguments {
        RawArguments::Object(fields) => fields.clone().into(),
        RawArguments::Text(text) | RawArguments::Input(text) => text.as_str().into(),
        RawArguments::Missing => Value::Null,
        RawArguments::Other(value) => value.clone(),
    }
}

fn one_call(id: &str, name: &str, arguments: Value) -> Vec<(Value, String, Value)> {
    vec![(id.into(), name.to_owned(), arguments)]
}

/// For each call, whether it was cut off.
fn cut_off_flags(body: Value) -> Vec<bool> {
    read_guessed(body)
        .calls
        .iter()
        .map(|call| call.as_ref().is_ok_and(|call| call.cut_off))
        .collect()
}

fn text(text: &str) -> Content {
    Content::text(text)
}

fn image(mime_type: &str) -> Content {
    Content::Image {
        data: "aGk=".into(),
        mime_type: mime_type.into(),
    }
}

fn file(uri: &str, mime_type: &str) -> Content {
    let resource = Resource {
        uri: uri.into(),
        mime_type: Some(mime_type.into()),
        blob: Some("aGk=".into()),
        text: None,
    };
    Content::Resource { resource }
}

fn tool_reply(content: &[Content]) -> ToolReply<'_> {
    ToolReply {
        content,
        structured: None,
        is_error: false,
        is_final_answer: false,
        is_invalid_call: false,
    }
}

/// The reply to a message with one call.
fn reply_to(body: Value, tool_reply: ToolReply<'_>) -> Value {
    let message = read_guessed(body);
    assert_eq!(message.calls.len(), 1);
    let reply = write_replies(&message, &[tool_reply]);
    assert_eq!(reply.len(), 1, "{reply:?}");
    reply.into_iter().next().unwrap()
}

mod openai {
    use super::*;

    fn call(id: &str) -> Value {
        json!({"id": id, "type": "function", "function": {"name": "f", "arguments": "{\"a\": 1}"}})
    }

    #[test]
    fn calls_are_found_in_every_sdk_shape() {
        let message = json!({"role": "assistant", "content": null, "refusal": null, "function_call": null,
            "audio": null, "tool_calls": [call("c1")]});
        let choice = json!({"index": 0, "finish_reason": "tool_calls", "logprobs": null, "message": message});
        let completion =
            json!({"id": "x", "object": "chat.completion", "choices": [choice], "usage": {}});
        let bare = json!([call("c1")]);
        for body in [
            message.clone(),
            choice,
            completion,
            bare,
            call("c1"),
            json!([message]),
        ] {
            assert_eq!(
                read_calls(body),
                (Dialect::Openai, one_call("c1", "f", json!("{\"a\": 1}")))
            );
        }
    }

    #[test]
    fn camel_case_keys_are_read() {
        let message =
            json!({"role": "assistant", "content": "", "toolCalls": [call("c1"), call("c2")]});
        let completion =
            json!({"choices": [{"index": 0, "message": message, "finishReason": "length"}]});
        assert_eq!(cut_off_flags(completion), [false, true]);
    }

    #[test]
    fn ollama_call_without_id_gets_one() {
        let call = json!({"function": {"name": "f", "arguments": {"a": 1}}});
        let body = json!({"model": "m", "done": true, "message": {"role": "assistant", "content": "", "tool_calls": [call]}});
        assert_eq!(
            read_calls(body.clone()),
            (Dialect::Openai, one_call("call_1", "f", json!({"a": 1})))
        );
        assert!(read_guessed(body).warnings[0].contains("`call_1`"));
    }

    #[test]
    fn function_call_gets_a_function_message() {
        let body = json!({"role": "assistant", "content": null, "function_call": {"name": "f", "arguments": "{}"}});
        let reply = reply_to(body, tool_reply(&[text("4")]));
        assert_eq!(
            reply,
            json!({"role": "function", "name": "f", "content": "4"})
        );
    }

    #[test]
    fn images_follow_in_a_user_message() {
        let message = read_guessed(json!([call("a"), call("b")]));
        let (first, second) = (
            [
                text("see"),
                image("image/png"),
                file("f:///a/r.pdf?x", "application/pdf"),
            ],
            [text("4")],
        );
        assert_eq!(
            Value::from(write_replies(
                &message,
                &[tool_reply(&first), tool_reply(&second)]
            )),
            json!([
                {"role": "tool", "tool_call_id": "a", "content": "see\n\
                    [attachment 1: in the user's message that follows]\n[attachment 2: in the user's message that follows]"},
                {"role": "tool", "tool_call_id": "b", "content": "4"},
                {"role": "user", "content": [
                    {"type": "text", "text": "Attachment 1, from the result of f:"},
                    {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}},
                    {"type": "text", "text": "Attachment 2, from the result of f:"},
                    {"type": "file", "file": {"filename": "r.pdf", "file_data": "data:application/pdf;base64,aGk="}}]}
            ])
        );
    }

    #[test]
    fn unsupported_content_is_noted_as_omitted() {
        let sound = Content::Audio {
            data: "AAAA".repeat(1024),
            mime_type: "audio/wav".into(),
        };
        let reply = reply_to(
            json!([call("a")]),
            tool_reply(&[sound, image("image/tiff")]),
        );
        let why = "left out, this API does not take it in a tool result";
        assert_eq!(
            reply["content"],
            format!("[audio/wav, 3.0 KiB: {why}]\n[image/tiff, 2 B: {why}]")
        );
    }

    #[test]
    fn calls_of_other_types_and_extra_choices_get_warnings() {
        let custom = json!({"id": "x9", "type": "other"});
        let choice = |id| json!({"message": {"role": "assistant", "tool_calls": [call(id), custom.clone()]}});
        let message = read_guessed(json!({"choices": [choice("a"), choice("b")]}));
        assert_eq!(message.calls.len(), 2);
        assert!(
            message.warnings[0].contains("2 choices"),
            "{:?}",
            message.warnings
        );
        assert!(
            message.warnings[1].contains("a call of the type `other`"),
            "{:?}",
            message.warnings
        );
    }

    #[test]
    fn length_limit_cuts_off_the_last_call() {
        let body = |reason: &str| {
            json!({"choices": [{"index": 0, "finish_reason": reason,
                "message": {"role": "assistant", "tool_calls": [call("a"), call("b")]}}]})
        };
        assert_eq!(cut_off_flags(body("length")), [false, true]);
        assert_eq!(cut_off_flags(body("tool_calls")), [false, false]);
    }
}

mod responses {
    use super::*;

    fn call() -> Value {
        json!({"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f", "arguments": "{}", "status": "completed"})
    }

    #[test]
    fn calls_are_found_among_items() {
        let message = json!({"type": "message", "id": "m", "role": "assistant", "status": "completed",
            "content": [{"type": "output_text", "text": "hm", "annotations": []}]});
        let thought = json!({"type": "reasoning", "id": "r", "summary": []});
        let items = json!([thought, message, {"type": "web_search_call", "id": "w"}, call()]);
        let response = json!({"id": "x", "object": "response", "status": "completed", "error": null, "output": items});
        let mixed = json!([{"role": "assistant", "content": "hm"}, call()]);
        for body in [call(), json!([call()]), items, response, mixed] {
            let message = read_guessed(body.clone());
            assert_eq!(message.warnings, [""; 0], "{body}");
            assert_eq!(
                read_calls(body),
                (Dialect::OpenaiResponses, one_call("c1", "f", json!("{}")))
            );
        }
    }

    #[test]
    fn unknown_items_are_ignored_with_warning() {
        let item = json!({"type": "computer_call", "call_id": "x9"});
        let message = read_guessed(json!([call(), item]));
        assert_eq!(message.calls.len(), 1);
        assert!(message.warnings[0].starts_with("the `computer_call` item x9 is ignored"));
    }

    #[test]
    fn incomplete_response_cuts_off_the_last_call() {
        let mut half = call();
        half["status"] = "incomplete".into();
        assert_eq!(cut_off_flags(json!([call(), half])), [false, true]);
        assert_eq!(
            cut_off_flags(
                json!({"object": "response", "status": "incomplete", "output": [call(), call()]})
            ),
            [false, true]
        );
        let last_message = json!({"type": "message", "role": "assistant", "content": []});
        assert_eq!(
            cut_off_flags(json!({"status": "incomplete", "output": [call(), last_message]})),
            [false]
        );
    }

    #[test]
    fn output_is_a_text_or_parts() {
        let reply = reply_to(call(), tool_reply(&[text("a"), text("b")]));
        assert_eq!(
            reply,
            json!({"type": "function_call_output", "call_id": "c1", "output": "a\nb"})
        );
        let reply = reply_to(
            call(),
            tool_reply(&[
                text("a"),
                image("image/jpg"),
                file("f:///r.pdf", "application/pdf"),
            ]),
        );
        assert_eq!(
            reply["output"],
            json!([
                {"type": "input_text", "text": "a"},
                {"type": "input_image", "image_url": "data:image/jpeg;base64,aGk="},
                {"type": "input_file", "filename": "r.pdf", "file_data": "data:application/pdf;base64,aGk="}
            ])
        );
    }
}

mod anthropic {
    use super::*;

    fn call() -> Value {
        json!({"type": "tool_use", "id": "t1", "name": "f", "input": {"a": 1}, "caller": {"type": "direct"}})
    }

    #[test]
    fn calls_are_found_among_blocks() {
        let server = json!({"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "x"}});
        let result = json!({"type": "web_search_tool_result", "tool_use_id": "s1", "content": []});
        let content = json!([{"type": "thinking", "thinking": "…", "signature": ""}, {"type": "text", "text": "hm"}, server,
            result, {"type": "mcp_tool_use", "id": "m", "name": "g", "server_name": "s", "input": {}}, call()]);
        let message = json!({"role": "assistant", "content": content});
        let response = json!({"id": "m", "type": "message", "role": "assistant", "model": "x", "content": content,
            "stop_reason": "tool_use", "stop_sequence": null, "usage": {}});
        for body in [call(), json!([call()]), content, message, response] {
            assert_eq!(read_guessed(body.clone()).warnings, [""; 0]);
            assert_eq!(
                read_calls(body),
                (Dialect::Anthropic, one_call("t1", "f", json!({"a": 1})))
            );
        }
    }

    #[test]
    fn results_form_one_message_with_error_flags() {
        let message = read_guessed(
            json!([call(), {"type": "tool_use", "id": "t2", "name": "g", "input": {}}]),
        );
        let failed = ToolReply {
            is_error: true,
            ..tool_reply(&[])
        };
        let content = [text("no"), image("image/png")];
        let reply = write_replies(
            &message,
            &[
                tool_reply(&[text("4"), text(" "), image("image/png")]),
                ToolReply {
                    content: &content,
                    ..failed
                },
            ],
        );
        assert_eq!(
            Value::from(reply),
            json!([{"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "4"},
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}]},
                {"type": "tool_result", "tool_use_id": "t2", "is_error": true, "content": [{"type": "text", "text": "no"},
                    {"type": "text", "text": "[image/png, 2 B: left out, this API takes only text in the result of a failed call]"}]}
            ]}])
        );
    }

    #[test]
    fn files_become_document_blocks() {
        let notes = Resource {
            uri: "f:///n.md".into(),
            text: Some("# n".into()),
            ..Resource::default()
        };
        let content = [
            file("f:///r.pdf", "application/pdf"),
            Content::Resource { resource: notes },
        ];
        let reply = reply_to(call(), tool_reply(&content));
        assert_eq!(
            reply["content"][0]["content"],
            json!([
                {"type": "document", "title": "r.pdf",
                 "source": {"type": "base64", "media_type": "application/pdf", "data": "aGk="}},
                {"type": "document", "title": "n.md", "source": {"type": "text", "media_type": "text/plain", "data": "# n"}}
            ])
        );
    }

    #[test]
    fn token_limit_cuts_off_the_last_call() {
        let body = |content: Value| json!({"role": "assistant", "stop_reason": "max_tokens", "content": content});
        assert_eq!(cut_off_flags(body(json!([call(), call()]))), [false, true]);
        assert_eq!(
            cut_off_flags(body(json!([call(), {"type": "text", "text": "and th"}]))),
            [false]
        );
    }

    #[test]
    fn unknown_block_types_get_warnings() {
        for (kind, warnings) in [
            ("text", 0),
            ("web_search_tool_result", 0),
            ("mcp_tool_use", 0),
            ("surprise", 1),
            ("function_call", 1),
        ] {
            let found =
                read_guessed(json!({"role": "assistant", "content": [{"type": kind}, call()]}));
            assert_eq!(
                (found.calls.len(), found.warnings.len()),
                (1, warnings),
                "{kind}: {:?}",
                found.warnings
            );
        }
        read_refusal(
            json!({"role": "user", "content": [call()]}),
            Some(Dialect::Anthropic),
        );
    }

    #[test]
    fn unsupported_documents_become_text() {
        let blank = Resource {
            mime_type: Some("text/plain".into()),
            blob: Some("IA==".into()),
            ..Resource::default()
        };
        for (block, kind) in [
            (file("f:///a.b", "application/pdf"), "document"),
            (file("f:///a.b", "application/zip"), "text"),
            (file("f:///a.b", "text/x-log"), "document"),
            (file("f:///a.b", "application/json"), "document"),
            (Content::Resource { resource: blank }, "text"),
        ] {
            let content = [block];
            let reply = reply_to(call(), tool_reply(&content));
            assert_eq!(
                reply["content"][0]["content"][0]["type"], kind,
                "{content:?}"
            );
        }
    }

    #[test]
    fn missing_id_is_generated() {
        let message = read_guessed(json!([{"type": "tool_use", "name": "f", "input": {}}]));
        assert_eq!(message.calls[0].as_ref().unwrap().id, Some(json!("call_1")));
        assert!(message.warnings[0].contains("call 1 has no id"));
    }
}

mod gemini {
    use super::*;

    #[test]
    fn camel_and_snake_case_are_read() {
        for (call, finish) in [
            ("functionCall", "finishReason"),
            ("function_call", "finish_reason"),
        ] {
            let part =
                json!({call: {"id": "g1", "name": "f", "args": {"a": 1}}, "thoughtSignature": "x"});
            let parts = json!([{"text": "hm", "thought": true, "functionCall": null}, part]);
            let content = json!({"role": "model", "parts": parts});
            let candidate = json!({"content": content, finish: "STOP", "index": 0});
            let response =
                json!({"candidates": [candidate], "usageMetadata": {}, "modelVersion": "x"});
            for body in [
                part,
                parts,
                content,
                candidate,
                response.clone(),
                json!([response]),
            ] {
                assert_eq!(
                    read_calls(body),
                    (Dialect::Gemini, one_call("g1", "f", json!({"a": 1})))
                );
            }
        }
    }

    #[test]
    fn response_id_is_present_only_if_given() {
        let message = read_guessed(
            json!([{"functionCall": {"name": "f"}}, {"functionCall": {"id": "2", "name": "g", "args": {}}}]),
        );
        let data = json!([1, 2]);
        let (first, second) = ([text("[1, 2]"), image("image/png")], [text("no")]);
        let first = ToolReply {
            structured: Some(&data),
            ..tool_reply(&first)
        };
        let reply = write_replies(
            &message,
            &[
                first,
                ToolReply {
                    is_error: true,
                    ..tool_reply(&second)
                },
            ],
        );
        assert_eq!(
            Value::from(reply),
            json!([{"role": "user", "parts": [
                {"functionResponse": {"name": "f", "response": {"output": [1, 2]},
                    "parts": [{"inlineData": {"mimeType": "image/png", "data": "aGk="}}]}},
                {"functionResponse": {"id": "2", "name": "g", "response": {"error": "no"}}}
            ]}])
        );
    }

    #[test]
    fn text_beyond_the_data_replaces_the_data() {
        let data = json!({"a": 1});
        let content = [text("page 1 of 2: {\"a\": 1}")];
        let reply = reply_to(
            json!({"functionCall": {"name": "f"}}),
            ToolReply {
                structured: Some(&data),
                ..tool_reply(&content)
            },
        );
        let response = &reply["parts"][0]["functionResponse"]["response"];
        assert_eq!(*response, json!({"output": "page 1 of 2: {\"a\": 1}"}));
    }

    #[test]
    fn response_without_candidates_has_no_calls() {
        let blocked = json!({"promptFeedback": {"blockReason": "SAFETY"}, "modelVersion": "x"});
        let dumped = json!({"candidates": null, "prompt_feedback": {"block_reason": "SAFETY"}});
        let empty = json!({"candidates": [], "usageMetadata": {"totalTokenCount": 4}});
        for body in [blocked, dumped, empty] {
            assert_eq!(read_calls(body), (Dialect::Gemini, Vec::new()));
        }
    }

    #[test]
    fn malformed_function_call_is_answered_as_text() {
        let body = json!({"candidates": [{"finishReason": "MALFORMED_FUNCTION_CALL", "finishMessage": "print(f())", "index": 0}]});
        let message = read_guessed(body);
        let malformed = message.calls[0].as_ref().unwrap_err();
        assert!(
            malformed.correction.contains("(print(f()))"),
            "{malformed:?}"
        );
        let reply = write_replies(
            &message,
            &[ToolReply {
                is_error: true,
                ..tool_reply(&[text("again")])
            }],
        );
        assert_eq!(
            reply,
            [json!({"role": "user", "parts": [{"text": "again"}]})]
        );
    }

    #[test]
    fn token_limit_cuts_off_the_last_call() {
        let parts = json!([{"functionCall": {"name": "f"}}, {"functionCall": {"name": "g"}}]);
        assert_eq!(
            cut_off_flags(json!({"finishReason": "MAX_TOKENS", "content": {"parts": parts}})),
            [false, true]
        );
    }

    #[test]
    fn text_after_the_call_was_cut_off() {
        let parts = json!([{"functionCall": {"name": "f"}}, {"text": "and then I wou"}]);
        assert_eq!(
            cut_off_flags(json!({"finishReason": "MAX_TOKENS", "content": {"parts": parts}})),
            [false]
        );
    }

    #[test]
    fn continued_call_is_cut_off() {
        for continues in ["willContinue", "will_continue"] {
            let call = |continued: bool| json!({"parts": [{"functionCall": {"name": "f", continues: continued}}]});
            let cut_by = |continued: bool| {
                cut_off_flags(json!({"finishReason": "STOP", "content": call(continued)}))
            };
            assert_eq!(
                (cut_by(true), cut_by(false)),
                (vec![true], vec![false]),
                "{continues}"
            );
        }
    }
}

mod bedrock {
    use super::*;

    fn call(id: &str) -> Value {
        json!({"toolUse": {"toolUseId": id, "name": "f", "input": {"a": 1}}})
    }

    #[test]
    fn calls_are_found_among_blocks() {
        let thought = json!({"reasoningContent": {"reasoningText": {"text": "…"}}});
        let server = json!({"toolUse": {"toolUseId": "s", "name": "nova_grounding", "input": {}, "type": "server_tool_use"}});
        let content = json!([{"text": "hm"}, thought, server, call("b1")]);
        let message = json!({"role": "assistant", "content": content});
        let response = json!({"output": {"message": message}, "stopReason": "tool_use", "usage": {}, "metrics": {}});
        for body in [call("b1"), json!([call("b1")]), content, message, response] {
            assert_eq!(read_guessed(body.clone()).warnings, [""; 0]);
            assert_eq!(
                read_calls(body),
                (Dialect::Bedrock, one_call("b1", "f", json!({"a": 1})))
            );
        }
        assert_eq!(
            cut_off_flags(
                json!({"output": {"message": {"role": "assistant", "content": [call("b1")]}}, "stopReason": "max_tokens"})
            ),
            [true]
        );
    }

    #[test]
    fn only_object_data_becomes_json() {
        let (object, list) = (json!({"a": 1}), json!([1]));
        let content = [text("{\"a\":1}"), image("image/png")];
        let reply = reply_to(
            call("b1"),
            ToolReply {
                structured: Some(&object),
                ..tool_reply(&content)
            },
        );
        assert_eq!(
            reply,
            json!({"role": "user", "content": [{"toolResult": {"toolUseId": "b1", "status": "success", "content": [
                {"json": {"a": 1}}, {"image": {"format": "png", "source": {"bytes": "aGk="}}}]}}]})
        );
        let content = [text("[1]")];
        let reply = reply_to(
            call("b1"),
            ToolReply {
                structured: Some(&list),
                is_error: true,
                ..tool_reply(&content)
            },
        );
        let result = &reply["content"][0]["toolResult"];
        assert_eq!(
            (&result["content"], &result["status"]),
            (&json!([{"text": "[1]"}]), &json!("error"))
        );
    }

    #[test]
    fn list_items_become_json_or_text() {
        let data = json!([{"a": 1}, [2], {"b": 3}]);
        let content = [
            text("first"),
            text("{\"a\":1}"),
            text("[2]"),
            text("between"),
            text("{\"b\": 3}"),
        ];
        let reply = reply_to(
            call("b1"),
            ToolReply {
                structured: Some(&data),
                ..tool_reply(&content)
            },
        );
        assert_eq!(
            reply["content"][0]["toolResult"]["content"],
            json!([{"text": "first"}, {"json": {"a": 1}}, {"text": "[2]"}, {"text": "between"}, {"json": {"b": 3}}])
        );
        let last = [text("words"), text("{\"a\":1}")];
        let reply = reply_to(
            call("b1"),
            ToolReply {
                structured: Some(&data[0]),
                ..tool_reply(&last)
            },
        );
        assert_eq!(
            reply["content"][0]["toolResult"]["content"],
            json!([{"text": "words"}, {"json": {"a": 1}}])
        );
    }

    #[test]
    fn documents_have_supported_formats() {
        let office = "application/vnd.openxmlformats-officedocument";
        let (word, sheet) = (
            format!("{office}.wordprocessingml.document"),
            format!("{office}.spreadsheetml.sheet"),
        );
        for (mime_type, format) in [
            ("application/pdf", "pdf"),
            ("text/csv", "csv"),
            ("application/msword", "doc"),
            (&word, "docx"),
            ("application/vnd.ms-excel", "xls"),
            (&sheet, "xlsx"),
            ("text/html; charset=utf-8", "html"),
            ("text/plain", "txt"),
            ("text/markdown", "md"),
        ] {
            let content = [file("f:///a.b", mime_type)];
            let reply = reply_to(call("b1"), tool_reply(&content));
            let content = &reply["content"][0]["toolResult"]["content"];
            let document = json!({"format": format, "name": "a (b1)", "source": {"bytes": "aGk="}});
            assert_eq!(
                content,
                &json!([{"text": "a.b is the document \"a (b1)\"."}, {"document": document}])
            );
        }
        let content = [file("f:///a.b", "application/zip")];
        let reply = reply_to(call("b1"), tool_reply(&content));
        assert!(
            reply["content"][0]["toolResult"]["content"][0]["text"]
                .as_str()
                .unwrap()
                .contains("left out")
        );
    }

    #[test]
    fn data_and_equal_text_are_sent_once() {
        let data = json!({"a": 1});
        let reply = reply_to(
            call("b1"),
            ToolReply {
                structured: Some(&data),
                ..tool_reply(&[])
            },
        );
        assert_eq!(
            reply["content"][0]["toolResult"]["content"],
            json!([{"json": {"a": 1}}])
        );
        for (words, expected) in [
            ("{\"a\": 1.0}", json!([{"text": "{\"a\": 1.0}"}])),
            (" {\"a\": 1 }", json!([{"json": {"a": 1}}])),
            ("one", json!([{"text": "one"}])),
        ] {
            let content = [text(words)];
            let reply = reply_to(
                call("b1"),
                ToolReply {
                    structured: Some(&data),
                    ..tool_reply(&content)
                },
            );
            assert_eq!(
                reply["content"][0]["toolResult"]["content"], expected,
                "{words}"
            );
        }
    }

    #[test]
    fn other_messages_are_refused() {
        for body in [
            json!({"role": "user", "content": [call("b1")]}),
            json!([{"type": "text", "text": "hm", "toolUse": {}}]),
        ] {
            read_refusal(body, Some(Dialect::Bedrock));
        }
        assert_eq!(
            read_guessed(json!([{"surprise": 1}, call("b1")]))
                .warnings
                .len(),
            1
        );
    }

    #[test]
    fn documents_with_equal_names_are_numbered() {
        let content: Vec<Content> = (0..4).map(|_| file("f:///a.csv", "text/csv")).collect();
        let reply = reply_to(call("b1"), tool_reply(&content));
        let blocks = reply["content"][0]["toolResult"]["content"]
            .as_array()
            .unwrap();
        let names: Vec<&str> = blocks
            .iter()
            .filter_map(|block| block["document"]["name"].as_str())
            .collect();
        assert_eq!(names, ["a (b1)", "a (b1) 2", "a (b1) 3", "a (b1) 4"]);
    }

    #[test]
    fn document_names_are_valid_and_unique() {
        let message = read_guessed(json!([call("tooluse_AbCd1234xY"), call("b:2")]));
        let content = [
            file("f:///a/Q3__report%20(v1).final.pdf", "application/pdf"),
            file("", "text/csv"),
            file("", "text/csv"),
        ];
        let reply = write_replies(
            &message,
            &[tool_reply(&content), tool_reply(&content[1..2])],
        );
        let documents = |result: usize| -> Vec<(Value, Value)> {
            let blocks = reply[0]["content"][result]["toolResult"]["content"]
                .as_array()
                .unwrap();
            let documents = blocks.iter().filter_map(|block| block.get("document"));
            documents
                .map(|document| (document["name"].clone(), document["format"].clone()))
                .collect()
        };
        let named = |name: &str, format: &str| (json!(name), json!(format));
        assert_eq!(
            documents(0),
            [
                named("Q3 report (v1) final (Cd1234xY)", "pdf"),
                named("document (Cd1234xY)", "csv"),
                named("document (Cd1234xY) 2", "csv")
            ]
        );
        assert_eq!(documents(1), [named("document (b2)", "csv")]);
    }
}

mod mcp {
    use super::*;

    fn call(id: Value) -> Value {
        json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": "f", "arguments": {"a": 1}}})
    }

    #[test]
    fn single_and_batch_requests_are_read() {
        let loose = json!({"method": "tools/call", "id": 7, "params": {"name": "f", "arguments": {"a": 1}}});
        for body in [call(json!(7)), json!([call(json!(7))]), loose] {
            assert_eq!(
                read_calls(body),
                (
                    Dialect::Mcp,
                    vec![(json!(7), "f".to_owned(), json!({"a": 1}))]
                )
            );
        }
        let without = json!({"method": "tools/call", "params": {"name": "f"}});
        let reply = reply_to(without, tool_reply(&[]));
        assert_eq!(
            reply,
            json!({"jsonrpc": "2.0", "id": null, "result": {"content": [], "isError": false}})
        );
    }

    #[test]
    fn results_have_content_and_structured_data() {
        let (object, list) = (json!({"a": 1}), json!([1]));
        let content = [text("x"), image("image/tiff")];
        let reply = reply_to(
            call(json!("q")),
            ToolReply {
                structured: Some(&object),
                is_error: true,
                ..tool_reply(&content)
            },
        );
        assert_eq!(
            reply,
            json!({"jsonrpc": "2.0", "id": "q", "result": {"isError": true, "structuredContent": {"a": 1}, "content": [
                {"type": "text", "text": "x"}, {"type": "image", "data": "aGk=", "mimeType": "image/tiff"}]}})
        );
        let reply = reply_to(
            call(json!("q")),
            ToolReply {
                structured: Some(&list),
                ..tool_reply(&content)
            },
        );
        assert_eq!(reply["result"].get("structuredContent"), None);
    }

    #[test]
    fn final_answer_is_marked() {
        let reply = reply_to(
            call(json!("q")),
            ToolReply {
                is_final_answer: true,
                ..tool_reply(&[])
            },
        );
        assert_eq!(
            reply["result"]["_meta"],
            json!({"toolcrib/resultAsAnswer": true})
        );
    }

    #[test]
    fn invalid_call_gets_a_protocol_error() {
        let content = [text("no such tool")];
        let no_call = ToolReply {
            is_error: true,
            is_invalid_call: true,
            ..tool_reply(&content)
        };
        let reply = reply_to(call(json!(1)), no_call);
        assert_eq!(
            reply,
            json!({"jsonrpc": "2.0", "id": 1, "error": {"code": -32602, "message": "no such tool"}})
        );
        let other = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list"});
        assert_eq!(reply_to(other, no_call)["error"]["code"], -32601);
        let notification =
            read_guessed(json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        assert_eq!(notification.calls, []);
        assert!(
            notification.warnings[0]
                .contains("the notification `notifications/initialized` is ignored")
        );
    }
}

mod native {
    use super::*;

    #[test]
    fn alternative_keys_are_read() {
        let arguments = json!({"a": 1});
        for body in [
            json!({"tool_name": "f", "arguments": arguments, "tool_use_id": "n1"}),
            json!({"name": "f", "arguments": arguments, "id": "n1"}),
            json!({"name": "f", "args": arguments, "id": "n1", "type": "tool_call"}),
            json!({"name": "f", "parameters": arguments, "id": "n1"}),
            json!({"tool": "f", "input": arguments, "call_id": "n1"}),
        ] {
            assert_eq!(
                read_calls(body.clone()),
                (Dialect::Native, one_call("n1", "f", json!({"a": 1})))
            );
            assert_eq!(
                read_calls(json!([body])),
                (Dialect::Native, one_call("n1", "f", json!({"a": 1})))
            );
        }
        assert!(
            read_refusal(
                json!({"name": "f", "description": "d", "parameters": {}}),
                None
            )
            .contains("no dialect")
        );
        let message = read_guessed(json!({"tool_name": "f", "arguments": {}, "run_id": "r"}));
        assert_eq!(
            message.warnings,
            ["unknown keys of a call are ignored: `run_id`"]
        );
    }

    #[test]
    fn final_answer_is_marked() {
        let body = json!({"tool_name": "f", "arguments": {}});
        assert_eq!(
            reply_to(
                body.clone(),
                ToolReply {
                    is_final_answer: true,
                    ..tool_reply(&[])
                }
            )["result_as_answer"],
            json!(true)
        );
        assert_eq!(
            reply_to(body, tool_reply(&[])).get("result_as_answer"),
            None
        );
    }

    #[test]
    fn results_use_native_keys() {
        let data = json!({"a": 1});
        let content = [text("x")];
        let body = json!({"tool_name": "f", "arguments": {}, "tool_use_id": "n1"});
        assert_eq!(
            reply_to(
                body,
                ToolReply {
                    structured: Some(&data),
                    ..tool_reply(&content)
                }
            ),
            json!({"tool_name": "f", "tool_use_id": "n1", "is_error": false, "content": [{"type": "text", "text": "x"}],
                "structured_content": {"a": 1}})
        );
    }
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
fn every_dialect_has_a_name() {
    for &dialect in Dialect::ALL {
        assert_eq!(Dialect::from_name(dialect.as_str()), Some(dialect));
        assert_eq!(json!(dialect), dialect.as_str());
        assert_eq!(
            serde_json::from_value::<Dialect>(json!(dialect)).unwrap(),
            dialect
        );
    }
}

#[test]
fn step_of_interactions_is_answered_under_its_id() {
    let step = json!({"type": "function_call", "id": "fc_1", "name": "f", "arguments": {"a": 1}});
    let interaction =
        json!({"id": "v1_x", "status": "requires_action", "steps": [{"type": "thought"}, step]});
    for body in [step.clone(), json!([step]), interaction] {
        let calls = one_call("fc_1", "f", json!({"a": 1}));
        assert_eq!(read_calls(body), (Dialect::GeminiInteractions, calls));
    }
    let message = read_guessed(step.clone());
    let (data, content) = (json!({"n": 1}), [text("{\"n\":1}")]);
    let reply = ToolReply {
        structured: Some(&data),
        ..tool_reply(&content)
    };
    let expected =
        json!([{"type": "function_result", "call_id": "fc_1", "name": "f", "result": {"n": 1}}]);
    assert_eq!(json!(write_replies(&message, &[reply])), expected);
    let content = [
        text("no"),
        Content::Image {
            data: "aGk=".into(),
            mime_type: "image/png".into(),
        },
    ];
    let reply = ToolReply {
        is_error: true,
        ..tool_reply(&content)
    };
    let parts = json!([{"type": "text", "text": "no"}, {"type": "image", "mime_type": "image/png", "data": "aGk="}]);
    let expected = json!([{"type": "function_result", "call_id": "fc_1", "name": "f", "result": parts, "is_error": true}]);
    assert_eq!(json!(write_replies(&message, &[reply])), expected);
    // Read as another API, the call would run under an id that its provider does not know.
    let message = read_message(step, Some(Dialect::OpenaiResponses)).unwrap();
    let malformed = message.calls[0].as_ref().unwrap_err();
    assert!(
        malformed.fault.contains("gemini-interactions"),
        "{malformed:?}"
    );
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

#[test]
fn calls_of_the_provider_s_own_tools_are_answered() {
    let calls = json!([
        {"type": "tool_search_call", "id": "ts", "call_id": "c1", "execution": "client", "status": "completed", "arguments": {}},
        {"type": "shell_call", "id": "sh", "call_id": "c2", "action": {"commands": ["ls"]}, "status": "completed"},
        {"type": "apply_patch_call", "id": "ap", "call_id": "c3", "operation": {}, "status": "completed"},
        {"type": "local_shell_call", "id": "c4", "action": {}, "status": "completed"},
        {"type": "tool_search_call", "execution": "server", "arguments": {}},
        {"type": "shell_call", "call_id": "c6", "environment": {"type": "container_reference"}},
    ]);
    let message = read_guessed(calls);
    assert_eq!(
        (
            message.calls.len(),
            message.calls.iter().filter(|call| call.is_err()).count()
        ),
        (4, 4)
    );
    let content = [text("no")];
    let reply = ToolReply {
        is_error: true,
        is_invalid_call: true,
        ..tool_reply(&content)
    };
    let replied = write_replies(&message, &[reply; 4]);
    assert_eq!(
        replied[0],
        json!({"type": "tool_search_output", "call_id": "c1", "execution": "client", "status": "completed", "tools": []})
    );
    assert_eq!(
        (
            &replied[1]["type"],
            &replied[1]["output"][0]["outcome"]["exit_code"]
        ),
        (&json!("shell_call_output"), &json!(1))
    );
    assert_eq!(
        replied[2],
        json!({"type": "apply_patch_call_output", "call_id": "c3", "status": "failed", "output": "Error: no"})
    );
    assert_eq!(
        replied[3],
        json!({"type": "local_shell_call_output", "id": "c4", "output": "Error: no"})
    );
}

#[test]
fn marks_of_harmony_are_no_part_of_a_name() {
    let message = read_guessed(
        json!({"tool_calls": [{"id": "1", "function": {"name": "search<|channel|>commentary", "arguments": "{}"}}]}),
    );
    assert_eq!(tool_name(&message.calls[0]), Some("search"));
    assert!(
        message.warnings[0].contains("read as `search`"),
        "{:?}",
        message.warnings
    );
}

#[test]
fn openai_texts_say_that_a_call_failed() {
    let message = read_guessed(
        json!([{"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}]),
    );
    for (said, shown) in [
        ("no such city", "Error: no such city"),
        ("Error 42", "Error 42"),
    ] {
        let content = [text(said)];
        let reply = ToolReply {
            is_error: true,
            ..tool_reply(&content)
        };
        assert_eq!(write_replies(&message, &[reply])[0]["output"], shown);
    }
}
