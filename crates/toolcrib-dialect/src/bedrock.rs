//! The `bedrock` dialect: Bedrock Converse in the form of its HTTP API, where bytes are base64.
//! SDKs that take raw bytes (boto3) need them decoded first.

use serde_json::{Value, json};

use super::blocks::{self, IMAGE_TYPES};
use super::found_calls::{FoundCalls, take_field, text_field};
use super::message::AnsweredCall;
use crate::content::{Content, Resource};
use crate::strict_json::JsonObject;
use crate::words::words;

/// Stop reasons after which the model's output is incomplete.
const CUT_OFF_REASONS: [&str; 6] = words(
    "max_tokens model_context_window_exceeded guardrail_intervened content_filtered
     malformed_tool_use malformed_model_output",
);

/// Names of block contents that need no result.
const NON_CALL_KEYS: [&str; 10] = words(
    "text reasoningContent toolResult citationsContent image document video audio
     searchResult guardContent",
);

/// Finds the calls. Returns false if the body is not a Bedrock message.
pub(super) fn find_calls(body: &mut Value, found: &mut FoundCalls) -> bool {
    found.visit_body(body, parts, is_block, read_block)
}

fn parts(fields: &mut JsonObject) -> Option<(&mut Vec<Value>, bool)> {
    let is_cut =
        text_field(fields, "stopReason").is_some_and(|reason| CUT_OFF_REASONS.contains(&reason));
    let is_whole = fields
        .get("output")
        .is_some_and(|output| output.get("message").is_some_and(Value::is_object));
    let message = match is_whole {
        true => fields
            .get_mut("output")?
            .get_mut("message")?
            .as_object_mut()?,
        false => fields,
    };
    let is_assistant = text_field(message, "role") == Some("assistant");
    let content = message.get_mut("content").filter(|_| is_assistant)?;
    Some((content.as_array_mut()?, is_cut))
}

/// Whether the value is a Bedrock block. Its only key names its content; unlike an Anthropic block
/// it has no `type`.
fn is_block(value: &Value) -> bool {
    value.get("type").is_none()
        && (value.get("toolUse").is_some()
            || NON_CALL_KEYS
                .into_iter()
                .any(|name| value.get(name).is_some()))
}

/// Adds the block to `found` if it is a call. Returns whether it is a call.
fn read_block(fields: &mut JsonObject, found: &mut FoundCalls) -> bool {
    match take_field(fields, &["toolUse"]) {
        // The provider has run this tool itself.
        Some(Value::Object(call)) if text_field(&call, "type") == Some("server_tool_use") => {
            return false;
        }
        Some(Value::Object(mut call)) => {
            found.take_call_with_id(&mut call, &["toolUseId"], "name", "input");
        }
        Some(_) => found.add_call_with_id(None, None, None),
        None => {
            if let Some(other) = fields
                .keys()
                .find(|key| !NON_CALL_KEYS.contains(&key.as_str()))
            {
                found.warn_ignored(&format!("a block with `{other}`"));
            }
            return false;
        }
    }
    true
}

/// Makes one message with all results.
pub(super) fn write_results<'a>(answered: impl Iterator<Item = AnsweredCall<'a>>) -> Vec<Value> {
    let mut names = DocumentNames::default();
    let results: Vec<Value> = answered
        .map(|call| json!({"toolResult": write_result(call, &mut names)}))
        .collect();
    vec![json!({"role": "user", "content": results})]
}

fn write_result(answered: AnsweredCall<'_>, names: &mut DocumentNames) -> Value {
    let reply = answered.reply;
    let mut content = Vec::with_capacity(reply.content.len() + 1);
    // The API refuses data that is not an object ("Provide a json object for the field").
    let data_texts = blocks::find_data_texts(reply).unwrap_or_default();
    content.extend(blocks::unstated_data(reply).map(|text| {
        match reply.structured.filter(|data| data.is_object()) {
            Some(data) => json!({"json": data}),
            None => json!({"text": text}),
        }
    }));
    for (index, block) in reply.content.iter().enumerate() {
        match data_texts
            .iter()
            .find(|(at, data)| *at == index && data.is_object())
        {
            Some((_, data)) => content.push(json!({"json": data})),
            None => convert_block(block, answered.id, names, &mut content),
        }
    }
    if content.is_empty() {
        content.push(json!({"text": blocks::empty_result_text(reply.is_error)}));
    }
    json!({"toolUseId": answered.id, "content": content, "status": if reply.is_error { "error" } else { "success" }})
}

/// Converts a block for the API. The API refuses blank texts, and documents without a text block
/// beside them.
fn convert_block(
    block: &Content,
    id: Option<&Value>,
    names: &mut DocumentNames,
    content: &mut Vec<Value>,
) {
    if let Some((kind, data)) = blocks::image(block, &IMAGE_TYPES) {
        let format = kind.trim_start_matches("image/");
        content.push(json!({"image": {"format": format, "source": {"bytes": data}}}));
        return;
    }
    if let Content::Resource { resource } = block {
        let bytes = blocks::resource_bytes(resource).filter(|bytes| !bytes.is_empty());
        if let (Some(format), Some(bytes)) = (document_format(resource), bytes) {
            let file = blocks::file_name(resource);
            let name = names.unique_name(&file, id);
            content.push(json!({"text": format!("{file} is the document \"{name}\".")}));
            content.push(
                json!({"document": {"format": format, "name": name, "source": {"bytes": bytes}}}),
            );
            return;
        }
    }
    let text = blocks::block_as_text(block, blocks::UNSUPPORTED);
    if !text.trim().is_empty() {
        content.push(json!({"text": text}));
    }
}

fn document_format(resource: &Resource) -> Option<&'static str> {
    Some(match blocks::media_type(resource.mime_type.as_deref()?) {
        "application/pdf" => "pdf",
        "text/csv" => "csv",
        "application/msword" => "doc",
        "application/vnd.openxmlformats-officedocument.wordprocessingml.document" => "docx",
        "application/vnd.ms-excel" => "xls",
        "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet" => "xlsx",
        "text/html" => "html",
        "text/plain" => "txt",
        "text/markdown" => "md",
        _ => return None,
    })
}

/// The document names of one reply. They must be unique.
#[derive(Default)]
struct DocumentNames(Vec<String>);

impl DocumentNames {
    /// Makes a document name that the API accepts (DocumentBlock): letters, digits, hyphens,
    /// brackets and single spaces, at most 200 characters. It must be unique in the whole
    /// conversation, so it ends with the end of the call's id.
    fn unique_name(&mut self, file: &str, id: Option<&Value>) -> String {
        let stem = file.rsplit_once('.').map_or(file, |(stem, _)| stem);
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-()[]".contains(c);
        let words = stem.split(|c| !is_plain(c));
        let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
        let mut stem = words.join(" ");
        if stem.is_empty() {
            stem.push_str("document");
        }
        let id = id.and_then(Value::as_str).unwrap_or_default();
        let id: String = id.chars().filter(char::is_ascii_alphanumeric).collect();
        let end = &id[id.len().saturating_sub(8)..];
        let first = if end.is_empty() {
            stem
        } else {
            format!("{stem} ({end})")
        };
        let mut name = first.clone();
        for number in 2.. {
            if !self.0.contains(&name) {
                break;
            }
            name = format!("{first} {number}");
        }
        self.0.push(name.clone());
        name
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::tests::*;
    use crate::*;

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
