//! Assembles an answer from the chunks of a stream.

use serde_json::{Value, json};

use super::completion::{Completion, TokenUsage};
use crate::call::JsonObject;

/// Members of a message that are set once. Texts of other members are appended.
const SET_ONCE_MEMBERS: [&str; 4] = ["role", "id", "type", "name"];

/// The part of the answer that has arrived.
#[derive(Debug, Default)]
pub(super) struct AnswerAssembler {
    message: JsonObject,
    /// Each call with the index that the server gave it, in the order of their first chunks.
    calls: Vec<(Option<u64>, JsonObject)>,
    finish_reason: Option<String>,
    usage: Option<TokenUsage>,
    /// A chunk with the first choice has arrived.
    has_choice: bool,
}

impl AnswerAssembler {
    /// Adds a chunk. Returns the text that the chunk adds.
    pub(super) fn add_chunk(&mut self, mut chunk: Value) -> Option<String> {
        if let Some(usage) = chunk.get("usage").and_then(TokenUsage::from_json) {
            self.usage = Some(usage);
        }
        let choices = chunk.get_mut("choices").and_then(Value::as_array_mut)?;
        let is_first =
            |choice: &&mut Value| choice.get("index").and_then(Value::as_u64).unwrap_or(0) == 0;
        let choice = choices.iter_mut().find(is_first)?;
        self.has_choice = true;
        if let Some(reason) = choice.get("finish_reason").and_then(Value::as_str) {
            self.finish_reason = Some(reason.to_owned());
        }
        // Some servers send the last chunk with a whole message instead of a delta. It adds nothing
        // new.
        let Some(Value::Object(mut delta)) = choice.get_mut("delta").map(Value::take) else {
            return None;
        };
        if let Some(Value::Array(calls)) = delta.remove("tool_calls") {
            calls.into_iter().for_each(|call| self.add_call_delta(call));
        }
        let text = delta
            .get("content")
            .and_then(Value::as_str)
            .filter(|text| !text.is_empty())
            .map(str::to_owned);
        merge(&mut self.message, delta);
        text
    }

    fn add_call_delta(&mut self, call: Value) {
        let Value::Object(mut call) = call else {
            return;
        };
        let index = call.remove("index").and_then(|index| index.as_u64());
        let id = call
            .get("id")
            .and_then(Value::as_str)
            .filter(|id| !id.is_empty());
        // A server that sends no index starts each call with its id.
        let known = match (index, id) {
            (Some(index), _) => self
                .calls
                .iter()
                .rposition(|(known, _)| *known == Some(index)),
            (None, Some(id)) => self
                .calls
                .iter()
                .rposition(|(_, known)| known.get("id").and_then(Value::as_str) == Some(id)),
            (None, None) => self.calls.len().checked_sub(1),
        };
        match known.and_then(|at| self.calls.get_mut(at)) {
            Some((_, known)) => merge(known, call),
            None => self.calls.push((index, call)),
        }
    }

    /// Whether the model has finished its answer.
    pub(super) fn is_finished(&self) -> bool {
        self.finish_reason.is_some()
    }

    /// The complete answer. The error is the end of a sentence that says what is missing.
    pub(super) fn finish(mut self) -> Result<Completion, String> {
        if !self.has_choice {
            return Err("has no `choices`".into());
        }
        if !self.calls.is_empty() {
            self.calls
                .sort_by_key(|(index, _)| index.unwrap_or(u64::MAX));
            let calls = self.calls.into_iter().map(|(_, call)| Value::Object(call));
            self.message.insert("tool_calls".into(), calls.collect());
        }
        self.message
            .entry("role")
            .or_insert_with(|| json!("assistant"));
        self.message.entry("content").or_insert(Value::Null);
        Ok(Completion {
            message: self.message,
            finish_reason: self.finish_reason,
            usage: self.usage,
        })
    }
}

/// Merges a delta into the message: appends texts, merges objects member by member, replaces other
/// values.
fn merge(known: &mut JsonObject, more: JsonObject) {
    for (key, value) in more {
        match (known.get_mut(&key), value) {
            (_, Value::Null) => {}
            (Some(Value::String(known)), Value::String(more)) => {
                // Some servers repeat these members in every chunk.
                if !SET_ONCE_MEMBERS.contains(&key.as_str()) {
                    known.push_str(&more);
                } else if known.is_empty() {
                    *known = more;
                }
            }
            (Some(Value::Object(known)), Value::Object(more)) => merge(known, more),
            (_, value) => {
                known.insert(key, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(delta: Value, finish: Option<&str>) -> Value {
        json!({"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})
    }

    fn assemble(chunks: impl IntoIterator<Item = Value>) -> (Completion, Vec<String>) {
        let mut assembly = AnswerAssembler::default();
        let texts = chunks
            .into_iter()
            .filter_map(|chunk| assembly.add_chunk(chunk))
            .collect();
        assert!(assembly.is_finished());
        (assembly.finish().unwrap(), texts)
    }

    #[test]
    fn text_and_usage_deltas_are_assembled() {
        let last = json!({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}});
        let (read, texts) = assemble([
            chunk(
                json!({"role": "assistant", "content": "", "refusal": null}),
                None,
            ),
            chunk(json!({"content": "4"}), None),
            chunk(json!({"content": "2", "reasoning_content": "mm"}), None),
            chunk(json!({"reasoning_content": "hm"}), None),
            chunk(json!({}), Some("stop")),
            last,
        ]);
        assert_eq!(texts, ["4", "2"]);
        assert_eq!(read.text(), "42");
        assert_eq!(read.message["reasoning_content"], "mmhm");
        assert_eq!(
            read.usage,
            Some(TokenUsage {
                input: 5,
                output: 2
            })
        );
    }

    #[test]
    fn interleaved_call_deltas_merge_by_index() {
        let call = |index: u64, id: Option<&str>, name: Option<&str>, arguments: &str| {
            let mut call = json!({"index": index, "function": {"arguments": arguments}});
            if let (Some(id), Some(name)) = (id, name) {
                (call["id"], call["type"], call["function"]["name"]) =
                    (json!(id), json!("function"), json!(name));
            }
            chunk(json!({"tool_calls": [call]}), None)
        };
        let (read, texts) = assemble([
            call(0, Some("a"), Some("calc"), ""),
            call(1, Some("b"), Some("time"), "{"),
            call(0, None, None, "{\"n\""),
            // Some servers repeat this.
            call(1, Some("b"), Some("time"), "}"),
            call(0, None, None, ": 1}"),
            chunk(json!({}), Some("tool_calls")),
        ]);
        assert_eq!(texts, [""; 0]);
        let function = |name: &str, arguments: &str| json!({"name": name, "arguments": arguments});
        assert_eq!(
            read.message["tool_calls"],
            json!([{"id": "a", "type": "function", "function": function("calc", "{\"n\": 1}")},
                {"id": "b", "type": "function", "function": function("time", "{}")}])
        );
    }

    #[test]
    fn calls_without_index_merge_by_id() {
        let piece = |piece: Value| chunk(json!({"tool_calls": [piece]}), None);
        let (read, _) = assemble([
            piece(
                json!({"id": "a", "function": {"name": "x", "arguments": "{}"}, "extra_content": {"sig": "s"}}),
            ),
            piece(json!({"id": "b", "function": {"name": "y", "arguments": "{\"n\":"}})),
            piece(json!({"function": {"arguments": "2}"}})),
            chunk(json!({}), Some("stop")),
        ]);
        let calls = &read.message["tool_calls"];
        assert_eq!(
            (
                &calls[0]["extra_content"]["sig"],
                &calls[0]["function"]["arguments"]
            ),
            (&json!("s"), &json!("{}"))
        );
        assert_eq!(calls[1]["function"]["arguments"], "{\"n\":2}");
    }

    #[test]
    fn other_choices_are_ignored() {
        let other =
            json!({"choices": [{"index": 1, "delta": {"content": "no"}, "finish_reason": "stop"}]});
        let mut assembly = AnswerAssembler::default();
        assert_eq!(assembly.add_chunk(other), None);
        assert!(!assembly.is_finished());
        assert_eq!(assembly.finish().unwrap_err(), "has no `choices`");
    }
}
