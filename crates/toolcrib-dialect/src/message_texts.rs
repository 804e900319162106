//! Extracts the texts that a model wrote from any provider's message.

use crate::words::words;
use serde_json::Value;

/// The keys under which texts are found. Only the first choice or candidate counts.
const TEXT_KEYS: [&str; 8] = words("choices steps candidates output message content parts text");
/// The keys under which the reason is found why the model stopped.
const REASON_KEYS: [&str; 8] = words(
    "finish_reason finishReason done_reason stop_reason stopReason status choices
     candidates",
);
/// The reasons for incomplete output in all dialects, in lower case.
const CUT_OFF_REASONS: [&str; 7] = words(
    "length max_tokens model_context_window_exceeded content_filter content_filtered
     incomplete failed",
);

/// The texts of the message, joined by line ends. Thoughts of the model and output of tools are
/// excluded.
pub(super) fn join_texts(message: &Value) -> String {
    let mut texts = Vec::new();
    collect_texts(message, &mut texts);
    texts.join("\n")
}

/// Whether the provider reports that the model stopped before its output was complete.
pub(super) fn is_cut_off(message: &Value) -> bool {
    let one = |value: &Value| match value {
        Value::String(reason) => CUT_OFF_REASONS
            .into_iter()
            .any(|known| known.eq_ignore_ascii_case(reason)),
        Value::Array(all) => all.first().is_some_and(is_cut_off),
        _ => false,
    };
    REASON_KEYS
        .into_iter()
        .filter_map(|name| message.get(name))
        .any(one)
}

/// Whether the texts look like the calls of a model without tool calls.
pub(super) fn may_contain_calls(message: &Value) -> bool {
    let mut texts = Vec::new();
    collect_texts(message, &mut texts);
    let is_react = |text: &str| {
        text.lines()
            .any(|line| line.trim_start().starts_with("Action:"))
    };
    texts
        .iter()
        .any(|text| crate::text::find_begin_mark(text).is_some() || is_react(text))
}

fn collect_texts<'a>(value: &'a Value, texts: &mut Vec<&'a str>) {
    match value {
        Value::String(text) => texts.push(text),
        Value::Array(items) => items.iter().for_each(|item| collect_texts(item, texts)),
        Value::Object(fields) => {
            let kind = fields
                .get("type")
                .and_then(Value::as_str)
                .unwrap_or_default();
            let is_thought = kind == "reasoning"
                || kind == "thought"
                || fields.get("thought").and_then(Value::as_bool) == Some(true);
            if is_thought || kind.ends_with("_result") || kind.ends_with("_output") {
                return;
            }
            for name in TEXT_KEYS.into_iter() {
                match fields.get(name) {
                    Some(Value::Array(all)) if name == "choices" || name == "candidates" => {
                        all.iter()
                            .take(1)
                            .for_each(|first| collect_texts(first, texts));
                    }
                    Some(inner) => collect_texts(inner, texts),
                    None => {}
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
