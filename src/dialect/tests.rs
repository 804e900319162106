use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::*;
use crate::call::{Content, Resource};

#[path = "shape_tests.rs"]
mod shapes;

/// The dialects that use JSON.
const JSON: [Dialect; 7] = [
    Dialect::Openai,
    Dialect::OpenaiResponses,
    Dialect::Anthropic,
    Dialect::Gemini,
    Dialect::Bedrock,
    Dialect::Mcp,
    Dialect::Native,
];

fn found(body: Value) -> Message {
    read(body.clone(), None).unwrap_or_else(|unread| panic!("{body}: {unread}"))
}

fn refused(body: Value, named: Option<Dialect>) -> String {
    match read(body.clone(), named) {
        Ok(message) => panic!("{body} was read as {message:?}"),
        Err(unread) => unread.what,
    }
}

/// The dialect and, for each call, its id, name and arguments.
fn seen(body: Value) -> (Dialect, Vec<(Value, String, Value)>) {
    let message = found(body);
    let calls = message.asks.iter().map(|ask| {
        let ask = ask.as_ref().unwrap();
        (ask.id.clone().unwrap_or_default(), ask.name.clone(), written(&ask.arguments))
    });
    (message.dialect, calls.collect())
}

fn written(arguments: &RawArguments) -> Value {
    match arguments {
        RawArguments::Object(fields) => fields.clone().into(),
        RawArguments::Text(text) => text.as_str().into(),
        RawArguments::Nothing => Value::Null,
        RawArguments::Other(value) => value.clone(),
    }
}

fn one(id: &str, name: &str, arguments: Value) -> Vec<(Value, String, Value)> {
    vec![(id.into(), name.to_owned(), arguments)]
}

/// For each call, whether it was cut off.
fn cut(body: Value) -> Vec<bool> {
    found(body).asks.iter().map(|ask| ask.as_ref().is_ok_and(|ask| ask.cut_off)).collect()
}

fn text(text: &str) -> Content {
    Content::text(text)
}

fn image(mime_type: &str) -> Content {
    Content::Image { data: "aGk=".into(), mime_type: mime_type.into() }
}

fn file(uri: &str, mime_type: &str) -> Content {
    let resource =
        Resource { uri: uri.into(), mime_type: Some(mime_type.into()), blob: Some("aGk=".into()), text: None };
    Content::Resource { resource }
}

fn said(content: &[Content]) -> ToolReply<'_> {
    ToolReply { content, structured: None, is_error: false, is_answer: false, is_no_call: false }
}

/// The reply to a message with one call.
fn reply_to(body: Value, said: ToolReply<'_>) -> Value {
    let message = found(body);
    assert_eq!(message.asks.len(), 1);
    let reply = reply(&message, &[said]);
    assert_eq!(reply.len(), 1, "{reply:?}");
    reply.into_iter().next().unwrap()
}

mod openai {
    use super::*;

    fn call(id: &str) -> Value {
        json!({"id": id, "type": "function", "function": {"name": "f", "arguments": "{\"a\": 1}"}})
    }

    #[test]
    fn calls_are_found_in_whatever_an_sdk_gives() {
        let message = json!({"role": "assistant", "content": null, "refusal": null, "function_call": null,
            "audio": null, "tool_calls": [call("c1")]});
        let choice = json!({"index": 0, "finish_reason": "tool_calls", "logprobs": null, "message": message});
        let completion = json!({"id": "x", "object": "chat.completion", "choices": [choice], "usage": {}});
        let bare = json!([call("c1")]);
        for body in [message.clone(), choice, completion, bare, call("c1"), json!([message])] {
            assert_eq!(seen(body), (Dialect::Openai, one("c1", "f", json!("{\"a\": 1}"))));
        }
    }

    #[test]
    fn an_sdk_may_write_camel_case() {
        let message = json!({"role": "assistant", "content": "", "toolCalls": [call("c1"), call("c2")]});
        let completion = json!({"choices": [{"index": 0, "message": message, "finishReason": "length"}]});
        assert_eq!(cut(completion), [false, true]);
    }

    #[test]
    fn ollama_gives_an_object_and_no_id() {
        let call = json!({"function": {"name": "f", "arguments": {"a": 1}}});
        let body =
            json!({"model": "m", "done": true, "message": {"role": "assistant", "content": "", "tool_calls": [call]}});
        assert_eq!(seen(body.clone()), (Dialect::Openai, one("call_1", "f", json!({"a": 1}))));
        assert!(found(body).warnings[0].contains("`call_1`"));
    }

    #[test]
    fn the_first_way_of_calling_is_answered_in_its_own_way() {
        let body = json!({"role": "assistant", "content": null, "function_call": {"name": "f", "arguments": "{}"}});
        let reply = reply_to(body, said(&[text("4")]));
        assert_eq!(reply, json!({"role": "function", "name": "f", "content": "4"}));
    }

    #[test]
    fn results_have_the_id_and_pictures_follow_in_a_message_of_their_own() {
        let message = found(json!([call("a"), call("b")]));
        let (first, second) =
            ([text("see"), image("image/png"), file("f:///a/r.pdf?x", "application/pdf")], [text("4")]);
        assert_eq!(
            Value::from(reply(&message, &[said(&first), said(&second)])),
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
    fn what_cannot_be_carried_is_said_to_be_left_out() {
        let sound = Content::Audio { data: "AAAA".repeat(1024), mime_type: "audio/wav".into() };
        let reply = reply_to(json!([call("a")]), said(&[sound, image("image/tiff")]));
        let why = "left out, this API does not take it in a tool result";
        assert_eq!(reply["content"], format!("[audio/wav, 3.0 KiB: {why}]\n[image/tiff, 2 B: {why}]"));
    }

    #[test]
    fn calls_of_other_types_and_further_choices_are_named() {
        let custom = json!({"id": "x9", "type": "custom", "custom": {"name": "sql", "input": "select 1"}});
        let choice = |id| json!({"message": {"role": "assistant", "tool_calls": [call(id), custom.clone()]}});
        let message = found(json!({"choices": [choice("a"), choice("b")]}));
        assert_eq!(message.asks.len(), 1);
        assert!(message.warnings[0].contains("2 choices"), "{:?}", message.warnings);
        assert!(message.warnings[1].contains("the `custom` call x9 is left alone"), "{:?}", message.warnings);
    }

    #[test]
    fn only_the_last_call_was_cut_off() {
        let body = |reason: &str| {
            json!({"choices": [{"index": 0, "finish_reason": reason,
                "message": {"role": "assistant", "tool_calls": [call("a"), call("b")]}}]})
        };
        assert_eq!(cut(body("length")), [false, true]);
        assert_eq!(cut(body("tool_calls")), [false, false]);
    }
}

mod responses {
    use super::*;

    fn call() -> Value {
        json!({"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f", "arguments": "{}", "status": "completed"})
    }

    #[test]
    fn calls_are_found_among_items() {
        let spoken = json!({"type": "message", "id": "m", "role": "assistant", "status": "completed",
            "content": [{"type": "output_text", "text": "hm", "annotations": []}]});
        let thought = json!({"type": "reasoning", "id": "r", "summary": []});
        let items = json!([thought, spoken, {"type": "web_search_call", "id": "w"}, call()]);
        let whole = json!({"id": "x", "object": "response", "status": "completed", "error": null, "output": items});
        let mixed = json!([{"role": "assistant", "content": "hm"}, call()]);
        for body in [call(), json!([call()]), items, whole, mixed] {
            let message = found(body.clone());
            assert_eq!(message.warnings, [""; 0], "{body}");
            assert_eq!(seen(body), (Dialect::OpenaiResponses, one("c1", "f", json!("{}"))));
        }
    }

    #[test]
    fn calls_that_others_answer_are_left_alone() {
        let custom = json!({"type": "custom_tool_call", "call_id": "x9", "name": "sql", "input": "select 1"});
        let message = found(json!([call(), custom]));
        assert_eq!(message.asks.len(), 1);
        assert!(message.warnings[0].starts_with("the `custom_tool_call` item x9 is left alone"));
    }

    #[test]
    fn a_response_that_was_cut_off_says_so() {
        let mut half = call();
        half["status"] = "incomplete".into();
        assert_eq!(cut(json!([call(), half])), [false, true]);
        assert_eq!(
            cut(json!({"object": "response", "status": "incomplete", "output": [call(), call()]})),
            [false, true]
        );
        let said_last = json!({"type": "message", "role": "assistant", "content": []});
        assert_eq!(cut(json!({"status": "incomplete", "output": [call(), said_last]})), [false]);
    }

    #[test]
    fn output_is_a_text_or_parts() {
        let reply = reply_to(call(), said(&[text("a"), text("b")]));
        assert_eq!(reply, json!({"type": "function_call_output", "call_id": "c1", "output": "a\nb"}));
        let reply = reply_to(call(), said(&[text("a"), image("image/jpg"), file("f:///r.pdf", "application/pdf")]));
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
        let whole = json!({"id": "m", "type": "message", "role": "assistant", "model": "x", "content": content,
            "stop_reason": "tool_use", "stop_sequence": null, "usage": {}});
        for body in [call(), json!([call()]), content, message, whole] {
            assert_eq!(found(body.clone()).warnings, [""; 0]);
            assert_eq!(seen(body), (Dialect::Anthropic, one("t1", "f", json!({"a": 1}))));
        }
    }

    #[test]
    fn all_results_are_one_message_and_errors_are_flagged() {
        let message = found(json!([call(), {"type": "tool_use", "id": "t2", "name": "g", "input": {}}]));
        let failed = ToolReply { is_error: true, ..said(&[]) };
        let content = [text("no"), image("image/png")];
        let reply = reply(
            &message,
            &[said(&[text("4"), text(" "), image("image/png")]), ToolReply { content: &content, ..failed }],
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
    fn documents_are_documents() {
        let notes = Resource { uri: "f:///n.md".into(), text: Some("# n".into()), ..Resource::default() };
        let content = [file("f:///r.pdf", "application/pdf"), Content::Resource { resource: notes }];
        let reply = reply_to(call(), said(&content));
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
    fn cut_off_is_what_was_written_last() {
        let body = |content: Value| json!({"role": "assistant", "stop_reason": "max_tokens", "content": content});
        assert_eq!(cut(body(json!([call(), call()]))), [false, true]);
        assert_eq!(cut(body(json!([call(), {"type": "text", "text": "and th"}]))), [false]);
    }

    #[test]
    fn blocks_of_other_types_are_named() {
        for (kind, warnings) in
            [("text", 0), ("web_search_tool_result", 0), ("mcp_tool_use", 0), ("surprise", 1), ("function_call", 1)]
        {
            let found = found(json!({"role": "assistant", "content": [{"type": kind}, call()]}));
            assert_eq!((found.asks.len(), found.warnings.len()), (1, warnings), "{kind}: {:?}", found.warnings);
        }
        refused(json!({"role": "user", "content": [call()]}), Some(Dialect::Anthropic));
    }

    #[test]
    fn documents_without_a_form_are_said_in_words() {
        let blank = Resource { mime_type: Some("text/plain".into()), blob: Some("IA==".into()), ..Resource::default() };
        for (block, kind) in [
            (file("f:///a.b", "application/pdf"), "document"),
            (file("f:///a.b", "application/zip"), "text"),
            (file("f:///a.b", "text/x-log"), "document"),
            (file("f:///a.b", "application/json"), "document"),
            (Content::Resource { resource: blank }, "text"),
        ] {
            let content = [block];
            let reply = reply_to(call(), said(&content));
            assert_eq!(reply["content"][0]["content"][0]["type"], kind, "{content:?}");
        }
    }

    #[test]
    fn an_id_is_made_where_there_is_none() {
        let message = found(json!([{"type": "tool_use", "name": "f", "input": {}}]));
        assert_eq!(message.asks[0].as_ref().unwrap().id, Some(json!("call_1")));
        assert!(message.warnings[0].contains("call 1 has no id"));
    }
}

mod gemini {
    use super::*;

    #[test]
    fn calls_are_found_in_camel_and_in_snake_case() {
        for (call, finish) in [("functionCall", "finishReason"), ("function_call", "finish_reason")] {
            let part = json!({call: {"id": "g1", "name": "f", "args": {"a": 1}}, "thoughtSignature": "x"});
            let parts = json!([{"text": "hm", "thought": true, "functionCall": null}, part]);
            let content = json!({"role": "model", "parts": parts});
            let candidate = json!({"content": content, finish: "STOP", "index": 0});
            let whole = json!({"candidates": [candidate], "usageMetadata": {}, "modelVersion": "x"});
            for body in [part, parts, content, candidate, whole.clone(), json!([whole])] {
                assert_eq!(seen(body), (Dialect::Gemini, one("g1", "f", json!({"a": 1}))));
            }
        }
    }

    #[test]
    fn responses_have_the_name_and_an_id_only_if_the_call_had_one() {
        let message =
            found(json!([{"functionCall": {"name": "f"}}, {"functionCall": {"id": "2", "name": "g", "args": {}}}]));
        let data = json!([1, 2]);
        let (first, second) = ([text("[1, 2]"), image("image/png")], [text("no")]);
        let first = ToolReply { structured: Some(&data), ..said(&first) };
        let reply = reply(&message, &[first, ToolReply { is_error: true, ..said(&second) }]);
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
    fn words_that_say_more_than_the_data_are_what_the_model_hears() {
        let data = json!({"a": 1});
        let content = [text("page 1 of 2: {\"a\": 1}")];
        let reply =
            reply_to(json!({"functionCall": {"name": "f"}}), ToolReply { structured: Some(&data), ..said(&content) });
        let response = &reply["parts"][0]["functionResponse"]["response"];
        assert_eq!(*response, json!({"output": "page 1 of 2: {\"a\": 1}"}));
    }

    #[test]
    fn a_response_without_candidates_has_no_calls() {
        let blocked = json!({"promptFeedback": {"blockReason": "SAFETY"}, "modelVersion": "x"});
        let dumped = json!({"candidates": null, "prompt_feedback": {"block_reason": "SAFETY"}});
        let empty = json!({"candidates": [], "usageMetadata": {"totalTokenCount": 4}});
        for body in [blocked, dumped, empty] {
            assert_eq!(seen(body), (Dialect::Gemini, Vec::new()));
        }
    }

    #[test]
    fn a_call_that_the_api_could_not_read_is_answered_in_text() {
        let body = json!({"candidates": [{"finishReason": "MALFORMED_FUNCTION_CALL", "finishMessage": "print(f())", "index": 0}]});
        let message = found(body);
        let misread = message.asks[0].as_ref().unwrap_err();
        assert!(misread.correction.contains("(print(f()))"), "{misread:?}");
        let reply = reply(&message, &[ToolReply { is_error: true, ..said(&[text("again")]) }]);
        assert_eq!(reply, [json!({"role": "user", "parts": [{"text": "again"}]})]);
    }

    #[test]
    fn cut_off_is_what_was_written_last() {
        let parts = json!([{"functionCall": {"name": "f"}}, {"functionCall": {"name": "g"}}]);
        assert_eq!(cut(json!({"finishReason": "MAX_TOKENS", "content": {"parts": parts}})), [false, true]);
    }

    #[test]
    fn text_after_a_call_is_what_was_cut() {
        let parts = json!([{"functionCall": {"name": "f"}}, {"text": "and then I wou"}]);
        assert_eq!(cut(json!({"finishReason": "MAX_TOKENS", "content": {"parts": parts}})), [false]);
    }

    #[test]
    fn call_that_continues_is_cut() {
        for continues in ["willContinue", "will_continue"] {
            let call = |continued: bool| json!({"parts": [{"functionCall": {"name": "f", continues: continued}}]});
            let cut_by = |continued: bool| cut(json!({"finishReason": "STOP", "content": call(continued)}));
            assert_eq!((cut_by(true), cut_by(false)), (vec![true], vec![false]), "{continues}");
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
        let server =
            json!({"toolUse": {"toolUseId": "s", "name": "nova_grounding", "input": {}, "type": "server_tool_use"}});
        let content = json!([{"text": "hm"}, thought, server, call("b1")]);
        let message = json!({"role": "assistant", "content": content});
        let whole = json!({"output": {"message": message}, "stopReason": "tool_use", "usage": {}, "metrics": {}});
        for body in [call("b1"), json!([call("b1")]), content, message, whole] {
            assert_eq!(found(body.clone()).warnings, [""; 0]);
            assert_eq!(seen(body), (Dialect::Bedrock, one("b1", "f", json!({"a": 1}))));
        }
        assert_eq!(
            cut(
                json!({"output": {"message": {"role": "assistant", "content": [call("b1")]}}, "stopReason": "max_tokens"})
            ),
            [true]
        );
    }

    #[test]
    fn data_that_is_an_object_is_json_and_anything_else_stays_text() {
        let (object, list) = (json!({"a": 1}), json!([1]));
        let content = [text("{\"a\":1}"), image("image/png")];
        let reply = reply_to(call("b1"), ToolReply { structured: Some(&object), ..said(&content) });
        assert_eq!(
            reply,
            json!({"role": "user", "content": [{"toolResult": {"toolUseId": "b1", "status": "success", "content": [
                {"json": {"a": 1}}, {"image": {"format": "png", "source": {"bytes": "aGk="}}}]}}]})
        );
        let content = [text("[1]")];
        let reply = reply_to(call("b1"), ToolReply { structured: Some(&list), is_error: true, ..said(&content) });
        let result = &reply["content"][0]["toolResult"];
        assert_eq!((&result["content"], &result["status"]), (&json!([{"text": "[1]"}]), &json!("error")));
    }

    #[test]
    fn several_items_keep_their_types() {
        let data = json!([{"a": 1}, [2], {"b": 3}]);
        let content = [text("first"), text("{\"a\":1}"), text("[2]"), text("between"), text("{\"b\": 3}")];
        let reply = reply_to(call("b1"), ToolReply { structured: Some(&data), ..said(&content) });
        assert_eq!(
            reply["content"][0]["toolResult"]["content"],
            json!([{"text": "first"}, {"json": {"a": 1}}, {"text": "[2]"}, {"text": "between"}, {"json": {"b": 3}}])
        );
        let last = [text("words"), text("{\"a\":1}")];
        let reply = reply_to(call("b1"), ToolReply { structured: Some(&data[0]), ..said(&last) });
        assert_eq!(reply["content"][0]["toolResult"]["content"], json!([{"text": "words"}, {"json": {"a": 1}}]));
    }

    #[test]
    fn documents_have_the_formats_that_the_api_takes() {
        let office = "application/vnd.openxmlformats-officedocument";
        let (word, sheet) = (format!("{office}.wordprocessingml.document"), format!("{office}.spreadsheetml.sheet"));
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
            let reply = reply_to(call("b1"), said(&content));
            let content = &reply["content"][0]["toolResult"]["content"];
            let document = json!({"format": format, "name": "a (b1)", "source": {"bytes": "aGk="}});
            assert_eq!(content, &json!([{"text": "a.b is the document \"a (b1)\"."}, {"document": document}]));
        }
        let content = [file("f:///a.b", "application/zip")];
        let reply = reply_to(call("b1"), said(&content));
        assert!(reply["content"][0]["toolResult"]["content"][0]["text"].as_str().unwrap().contains("left out"));
    }

    #[test]
    fn data_without_words_is_said_once() {
        let data = json!({"a": 1});
        let reply = reply_to(call("b1"), ToolReply { structured: Some(&data), ..said(&[]) });
        assert_eq!(reply["content"][0]["toolResult"]["content"], json!([{"json": {"a": 1}}]));
        for (words, heard) in [
            ("{\"a\": 1.0}", json!([{"text": "{\"a\": 1.0}"}])),
            (" {\"a\": 1 }", json!([{"json": {"a": 1}}])),
            ("one", json!([{"text": "one"}])),
        ] {
            let content = [text(words)];
            let reply = reply_to(call("b1"), ToolReply { structured: Some(&data), ..said(&content) });
            assert_eq!(reply["content"][0]["toolResult"]["content"], heard, "{words}");
        }
    }

    #[test]
    fn other_messages_are_none_of_its() {
        for body in
            [json!({"role": "user", "content": [call("b1")]}), json!([{"type": "text", "text": "hm", "toolUse": {}}])]
        {
            refused(body, Some(Dialect::Bedrock));
        }
        assert_eq!(found(json!([{"surprise": 1}, call("b1")])).warnings.len(), 1);
    }

    #[test]
    fn documents_of_one_name_are_numbered() {
        let content: Vec<Content> = (0..4).map(|_| file("f:///a.csv", "text/csv")).collect();
        let reply = reply_to(call("b1"), said(&content));
        let blocks = reply["content"][0]["toolResult"]["content"].as_array().unwrap();
        let names: Vec<&str> = blocks.iter().filter_map(|block| block["document"]["name"].as_str()).collect();
        assert_eq!(names, ["a (b1)", "a (b1) 2", "a (b1) 3", "a (b1) 4"]);
    }

    #[test]
    fn names_of_documents_are_such_as_the_api_takes_and_never_the_same_twice() {
        let message = found(json!([call("tooluse_AbCd1234xY"), call("b:2")]));
        let content =
            [file("f:///a/Q3__report%20(v1).final.pdf", "application/pdf"), file("", "text/csv"), file("", "text/csv")];
        let reply = reply(&message, &[said(&content), said(&content[1..2])]);
        let documents = |result: usize| -> Vec<(Value, Value)> {
            let blocks = reply[0]["content"][result]["toolResult"]["content"].as_array().unwrap();
            let documents = blocks.iter().filter_map(|block| block.get("document"));
            documents.map(|document| (document["name"].clone(), document["format"].clone())).collect()
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
    fn requests_are_calls_one_or_many() {
        let loose = json!({"method": "tools/call", "id": 7, "params": {"name": "f", "arguments": {"a": 1}}});
        for body in [call(json!(7)), json!([call(json!(7))]), loose] {
            assert_eq!(seen(body), (Dialect::Mcp, vec![(json!(7), "f".to_owned(), json!({"a": 1}))]));
        }
        let without = json!({"method": "tools/call", "params": {"name": "f"}});
        let reply = reply_to(without, said(&[]));
        assert_eq!(reply, json!({"jsonrpc": "2.0", "id": null, "result": {"content": [], "isError": false}}));
    }

    #[test]
    fn results_are_blocks_and_data() {
        let (object, list) = (json!({"a": 1}), json!([1]));
        let content = [text("x"), image("image/tiff")];
        let reply =
            reply_to(call(json!("q")), ToolReply { structured: Some(&object), is_error: true, ..said(&content) });
        assert_eq!(
            reply,
            json!({"jsonrpc": "2.0", "id": "q", "result": {"isError": true, "structuredContent": {"a": 1}, "content": [
                {"type": "text", "text": "x"}, {"type": "image", "data": "aGk=", "mimeType": "image/tiff"}]}})
        );
        let reply = reply_to(call(json!("q")), ToolReply { structured: Some(&list), ..said(&content) });
        assert_eq!(reply["result"].get("structuredContent"), None);
    }

    #[test]
    fn final_answers_say_so() {
        let reply = reply_to(call(json!("q")), ToolReply { is_answer: true, ..said(&[]) });
        assert_eq!(reply["result"]["_meta"], json!({"toolcrib/resultAsAnswer": true}));
    }

    #[test]
    fn what_is_no_call_is_a_protocol_error() {
        let content = [text("no such tool")];
        let no_call = ToolReply { is_error: true, is_no_call: true, ..said(&content) };
        let reply = reply_to(call(json!(1)), no_call);
        assert_eq!(reply, json!({"jsonrpc": "2.0", "id": 1, "error": {"code": -32602, "message": "no such tool"}}));
        let other = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list"});
        assert_eq!(reply_to(other, no_call)["error"]["code"], -32601);
        let notification = found(json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        assert_eq!(notification.asks, []);
        assert!(notification.warnings[0].contains("the notification `notifications/initialized` is left alone"));
    }
}

mod native {
    use super::*;

    #[test]
    fn calls_come_under_several_names() {
        let arguments = json!({"a": 1});
        for body in [
            json!({"tool_name": "f", "arguments": arguments, "tool_use_id": "n1"}),
            json!({"name": "f", "arguments": arguments, "id": "n1"}),
            json!({"name": "f", "args": arguments, "id": "n1", "type": "tool_call"}),
            json!({"name": "f", "parameters": arguments, "id": "n1"}),
            json!({"tool": "f", "input": arguments, "call_id": "n1"}),
        ] {
            assert_eq!(seen(body.clone()), (Dialect::Native, one("n1", "f", json!({"a": 1}))));
            assert_eq!(seen(json!([body])), (Dialect::Native, one("n1", "f", json!({"a": 1}))));
        }
        assert!(refused(json!({"name": "f", "description": "d", "parameters": {}}), None).contains("no dialect"));
        let message = found(json!({"tool_name": "f", "arguments": {}, "run_id": "r"}));
        assert_eq!(message.warnings, ["of a call `run_id` is not looked at"]);
    }

    #[test]
    fn final_answers_say_so() {
        let body = json!({"tool_name": "f", "arguments": {}});
        assert_eq!(reply_to(body.clone(), ToolReply { is_answer: true, ..said(&[]) })["result_as_answer"], json!(true));
        assert_eq!(reply_to(body, said(&[])).get("result_as_answer"), None);
    }

    #[test]
    fn results_are_our_own() {
        let data = json!({"a": 1});
        let content = [text("x")];
        let body = json!({"tool_name": "f", "arguments": {}, "tool_use_id": "n1"});
        assert_eq!(
            reply_to(body, ToolReply { structured: Some(&data), ..said(&content) }),
            json!({"tool_name": "f", "tool_use_id": "n1", "is_error": false, "content": [{"type": "text", "text": "x"}],
                "structured_content": {"a": 1}})
        );
    }
}

#[test]
fn one_bad_call_spoils_no_other_and_keeps_its_id() {
    for (dialect, bad) in [
        (Dialect::Openai, json!({"id": "x", "type": "function", "function": {"name": 7, "arguments": "{}"}})),
        (Dialect::Anthropic, json!({"type": "tool_use", "id": "x", "input": {}})),
        (Dialect::Bedrock, json!({"toolUse": {"toolUseId": "x", "name": "", "input": {}}})),
        (Dialect::Native, json!({"tool_name": ["f"], "tool_use_id": "x", "arguments": {}})),
    ] {
        let good = write(dialect, &[("y".into(), "f".into(), Map::new())], Wrap::Bare);
        let message = found(json!([bad, good[0]]));
        let misread = message.asks[0].as_ref().unwrap_err();
        assert!(misread.what.contains("name") && misread.correction.contains("exact name"), "{misread:?}");
        assert_eq!(misread.id, Some(json!("x")));
        assert_eq!(message.asks[1].as_ref().unwrap().name, "f");
        let again = [text("again")];
        let reply = reply(&message, &[said(&again), said(&again)]);
        assert!(Value::from(reply).to_string().contains("\"x\""));
    }
}

#[test]
fn a_message_without_calls_says_so() {
    let said = |text: &str| {
        [
            (Dialect::Openai, json!({"role": "assistant", "content": text, "tool_calls": null})),
            (Dialect::Openai, json!({"choices": [{"message": {"role": "assistant", "content": text}}]})),
            (
                Dialect::OpenaiResponses,
                json!({"output": [{"type": "message", "role": "assistant",
                "content": [{"type": "output_text", "text": text}]}]}),
            ),
            (Dialect::Anthropic, json!({"role": "assistant", "content": [{"type": "text", "text": text}]})),
            (Dialect::Gemini, json!({"candidates": [{"content": {"role": "model", "parts": [{"text": text}]}}]})),
            (Dialect::Bedrock, json!({"output": {"message": {"role": "assistant", "content": [{"text": text}]}}})),
        ]
    };
    for (dialect, body) in said("Hello.") {
        let message = found(body);
        assert_eq!((message.dialect, message.asks.len()), (dialect, 0));
        assert_eq!(message.warnings, ["the message has no tool calls"]);
        assert_eq!(reply(&message, &[]), [] as [Value; 0]);
    }
    for text in ["[TOOL_CALL]{}[/TOOL_CALL]", "Thought: hm\n Action: f\nAction Input: {}"] {
        for (_, body) in said(text) {
            assert!(found(body).warnings[0].contains("`dialect=text` reads"));
        }
    }
}

#[test]
fn what_is_no_message_is_told_what_would_be() {
    for (body, expected) in [
        (json!({"object": "chat.completion.chunk", "choices": [{"delta": {}}]}), "put the stream together first"),
        (json!({"type": "content_block_delta", "index": 0, "delta": {}}), "put the stream together first"),
        (json!({"type": "response.output_item.done", "item": {}}), "put the stream together first"),
        (json!({"contentBlockDelta": {}}), "put the stream together first"),
        (json!([{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]), "only the last"),
        (json!({"role": "user", "content": "x"}), "what was said to the model"),
        (json!({"model": "m", "messages": []}), "a request to a model"),
        (json!({"error": {"message": "overloaded"}}), "a provider's error"),
        (json!(7), "neither an object, an array nor a text"),
        (json!({"weather": "fine"}), "openai, openai-responses, anthropic"),
        // This is not an envelope, because its option is misspelled, and not a choice. If it were read as a choice,
        // its calls would be overlooked.
        (json!({"message": {"role": "assistant", "content": [{"type": "tool_use"}]}, "runid": "r"}), "no dialect"),
    ] {
        let what = refused(body, None);
        assert!(what.contains(expected), "{what}");
    }
}

#[test]
fn a_named_dialect_is_held_to() {
    let body = json!({"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {}}]});
    let what = refused(body, Some(Dialect::Openai));
    assert!(what.contains("no message of the dialect openai") && what.contains("looks like anthropic"), "{what}");
    let plain = json!({"role": "assistant", "content": "Hello."});
    assert_eq!(read(plain, Some(Dialect::Anthropic)).unwrap().dialect, Dialect::Anthropic);
}

#[test]
fn text_is_read_as_text_also_out_of_a_providers_message() {
    assert_eq!(found(json!("hm")).dialect, Dialect::Text);
    assert_eq!(found(json!({"text": "hm"})).dialect, Dialect::Text);
    let body =
        json!({"role": "assistant", "content": [{"type": "thinking", "text": "no"}, {"type": "text", "text": "hm"}]});
    assert_eq!(read(body.clone(), Some(Dialect::Text)).unwrap().dialect, Dialect::Text);
    assert_eq!(
        words::said_in(&json!({"choices": [{"message": {"content": "a"}}, {"message": {"content": "b"}}]})),
        "a"
    );
}

/// How much of the provider's message surrounds the calls.
#[derive(Debug, Clone, Copy)]
enum Wrap {
    Bare,
    Message,
    Whole,
}

/// The id, name and arguments.
type Call = (String, String, Map<String, Value>);

fn each(calls: &[Call], one: impl Fn(&Call) -> Value) -> Value {
    calls.iter().map(one).collect()
}

/// Writes calls in the provider's format.
fn write(dialect: Dialect, calls: &[Call], wrap: Wrap) -> Value {
    match dialect {
        Dialect::Openai => {
            let calls = each(calls, |(id, name, arguments)| {
                let arguments = Value::from(arguments.clone()).to_string();
                json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}})
            });
            let message = json!({"role": "assistant", "content": "hm", "tool_calls": calls});
            match wrap {
                Wrap::Bare => calls,
                Wrap::Message => message,
                Wrap::Whole => json!({"object": "chat.completion", "choices": [{"index": 0, "message": message}]}),
            }
        }
        Dialect::OpenaiResponses => {
            let items = each(calls, |(id, name, arguments)| {
                let arguments = Value::from(arguments.clone()).to_string();
                json!({"type": "function_call", "call_id": id, "name": name, "arguments": arguments})
            });
            match wrap {
                Wrap::Bare | Wrap::Message => items,
                Wrap::Whole => json!({"object": "response", "status": "completed", "output": items}),
            }
        }
        Dialect::Anthropic => {
            let blocks =
                each(calls, |(id, name, input)| json!({"type": "tool_use", "id": id, "name": name, "input": input}));
            match wrap {
                Wrap::Bare => blocks,
                Wrap::Message => json!({"role": "assistant", "content": blocks}),
                Wrap::Whole => {
                    json!({"type": "message", "role": "assistant", "content": blocks, "stop_reason": "tool_use"})
                }
            }
        }
        Dialect::Gemini => {
            let parts = each(calls, |(id, name, args)| json!({"functionCall": {"id": id, "name": name, "args": args}}));
            let content = json!({"role": "model", "parts": parts});
            match wrap {
                Wrap::Bare => parts,
                Wrap::Message => content,
                Wrap::Whole => json!({"candidates": [{"content": content, "finishReason": "STOP"}]}),
            }
        }
        Dialect::Bedrock => {
            let blocks =
                each(calls, |(id, name, input)| json!({"toolUse": {"toolUseId": id, "name": name, "input": input}}));
            let message = json!({"role": "assistant", "content": blocks});
            match wrap {
                Wrap::Bare => blocks,
                Wrap::Message => message,
                Wrap::Whole => json!({"output": {"message": message}, "stopReason": "tool_use"}),
            }
        }
        Dialect::Mcp => each(
            calls,
            |(id, name, arguments)| json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": name, "arguments": arguments}}),
        ),
        Dialect::Native | Dialect::Text => {
            each(calls, |(id, name, arguments)| json!({"tool_name": name, "tool_use_id": id, "arguments": arguments}))
        }
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
            prop::collection::btree_map("\\PC{0,5}", inner, 0..4).prop_map(|fields| fields.into_iter().collect()),
        ]
    });
    prop::collection::btree_map("\\PC{1,6}", value, 0..4).prop_map(|fields| fields.into_iter().collect())
}

fn calls() -> impl Strategy<Value = Vec<Call>> {
    prop::collection::vec(("[a-zA-Z0-9_.:-]{1,16}", "[\\PC&&\\S]\\PC{0,12}", arguments()), 1..5)
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
            prop::collection::btree_map(field, inner, 0..6).prop_map(|fields| fields.into_iter().collect()),
        ]
    })
}

fn content() -> impl Strategy<Value = Vec<Content>> {
    let kind =
        prop::sample::select(vec!["image/png", "image/tiff", "application/pdf", "text/markdown", "audio/wav", "x"]);
    let data = "([A-Za-z0-9+/]{4}){0,3}";
    let block = (0..5u8, "\\PC{0,6}", kind, data).prop_map(|(which, text, kind, data)| match which {
        0 => Content::Text { text },
        1 => Content::Image { data, mime_type: kind.into() },
        2 => Content::Audio { data, mime_type: kind.into() },
        3 => Content::Resource {
            resource: Resource { uri: text, mime_type: Some(kind.into()), blob: Some(data), text: None },
        },
        _ => Content::Resource {
            resource: Resource { uri: text.clone(), mime_type: None, text: Some(text), blob: None },
        },
    });
    prop::collection::vec(block, 0..4)
}

/// Every string value of a key, at any depth.
fn under<'a>(value: &'a Value, name: &str, into: &mut Vec<&'a str>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| under(item, name, into)),
        Value::Object(fields) => {
            into.extend(fields.get(name).and_then(Value::as_str));
            fields.values().for_each(|inner| under(inner, name, into));
        }
        _ => {}
    }
}

proptest! {
    #[test]
    fn what_a_provider_writes_is_read_back(calls in calls()) {
        for dialect in JSON {
            for wrap in [Wrap::Bare, Wrap::Message, Wrap::Whole] {
                let body = write(dialect, &calls, wrap);
                let guessed = read(body.clone(), None).unwrap();
                prop_assert_eq!(&guessed, &read(body, Some(dialect)).unwrap());
                prop_assert_eq!(guessed.dialect, dialect);
                prop_assert_eq!(guessed.asks.len(), calls.len());
                for (ask, (id, name, arguments)) in guessed.asks.iter().zip(&calls) {
                    let ask = ask.as_ref().unwrap();
                    prop_assert_eq!(ask.id.as_ref().unwrap(), id);
                    prop_assert_eq!(&ask.name, name);
                    let read = match &ask.arguments {
                        RawArguments::Text(text) => serde_json::from_str(text).unwrap(),
                        other => written(other),
                    };
                    prop_assert_eq!(read, Value::from(arguments.clone()));
                }
            }
        }
    }

    #[test]
    fn every_call_is_answered_under_its_id(calls in calls(), content in content(), is_error in any::<bool>()) {
        for dialect in JSON {
            let message = read(write(dialect, &calls, Wrap::Bare), None).unwrap();
            let said = vec![ToolReply { is_error, ..said(&content) }; calls.len()];
            let replied = Value::from(reply(&message, &said));
            let name = match dialect {
                Dialect::Openai => "tool_call_id",
                Dialect::OpenaiResponses => "call_id",
                Dialect::Anthropic | Dialect::Native | Dialect::Text => "tool_use_id",
                Dialect::Bedrock => "toolUseId",
                Dialect::Gemini | Dialect::Mcp => "id",
            };
            let mut ids = Vec::new();
            under(&replied, name, &mut ids);
            let asked: Vec<&str> = calls.iter().map(|(id, ..)| id.as_str()).collect();
            prop_assert_eq!(ids, asked);
        }
    }

    #[test]
    fn nothing_blank_goes_where_it_is_refused(calls in calls(), content in content()) {
        for dialect in [Dialect::Anthropic, Dialect::Bedrock] {
            let message = read(write(dialect, &calls, Wrap::Bare), None).unwrap();
            let replied = Value::from(reply(&message, &vec![said(&content); calls.len()]));
            let mut texts = Vec::new();
            under(&replied, "text", &mut texts);
            prop_assert!(texts.iter().all(|text| !text.trim().is_empty()), "{}", replied);
            prop_assert!(!replied.to_string().contains("\"content\":[]"), "{}", replied);
        }
    }

    #[test]
    fn any_json_is_read_or_refused_and_what_is_read_is_answered(body in garbage()) {
        for named in JSON.into_iter().map(Some).chain([None, Some(Dialect::Text)]) {
            match read(body.clone(), named) {
                Ok(message) => {
                    let content = [text("x")];
                    let said = vec![ToolReply { is_error: true, is_no_call: true, ..said(&content) }; message.asks.len()];
                    prop_assert_eq!(reply(&message, &said).is_empty(), message.asks.is_empty());
                    prop_assert!(!message.asks.is_empty() || !message.warnings.is_empty() || message.dialect == Dialect::Text);
                }
                Err(unread) => prop_assert!(unread.what.starts_with("the body is ")),
            }
        }
    }
}

#[test]
fn every_dialect_has_its_word() {
    for dialect in Dialect::ALL {
        assert_eq!(Dialect::from_word(dialect.as_str()), Some(dialect));
        assert_eq!(json!(dialect), dialect.as_str());
        assert_eq!(serde_json::from_value::<Dialect>(json!(dialect)).unwrap(), dialect);
    }
}
