//! Tells a model of results that come after the reply to their calls.

use serde_json::{Value, json};

use super::blocks::result_as_text;
use super::message::{Dialect, ToolReply};

/// One user message in words, in a dialect. Each result has its introduction before it.
///
/// A provider takes one result for each call, so a later result must be an ordinary message.
pub fn write_late_results<'a>(
    dialect: Dialect,
    results: impl IntoIterator<Item = (&'a str, ToolReply<'a>)>,
) -> Value {
    let texts = results
        .into_iter()
        .map(|(introduction, reply)| format!("{introduction}\n{}", result_as_text(&reply)));
    let text = texts.collect::<Vec<_>>().join("\n\n");
    match dialect {
        Dialect::Openai | Dialect::Native | Dialect::Text => {
            json!({"role": "user", "content": text})
        }
        Dialect::OpenaiResponses => {
            json!({"role": "user", "content": [{"type": "input_text", "text": text}]})
        }
        Dialect::Anthropic => json!({"role": "user", "content": [{"type": "text", "text": text}]}),
        Dialect::Gemini => json!({"role": "user", "parts": [{"text": text}]}),
        Dialect::GeminiInteractions => {
            json!({"type": "user_input", "content": [{"type": "text", "text": text}]})
        }
        Dialect::Bedrock => json!({"role": "user", "content": [{"text": text}]}),
        // The form of a message in a prompt.
        Dialect::Mcp => json!({"role": "user", "content": {"type": "text", "text": text}}),
    }
}

#[cfg(test)]
mod tests {
    use super::super::content::Content;
    use super::*;

    #[test]
    fn message_of_each_dialect_is_of_the_user_and_has_all_results() {
        let content = [Content::text("paid")];
        let reply = ToolReply {
            content: &content,
            structured: None,
            is_error: false,
            is_final_answer: false,
            is_invalid_call: false,
        };
        for dialect in Dialect::ALL {
            let message = write_late_results(*dialect, [("First:", reply), ("Second:", reply)]);
            let (role, kind) = (&message["role"], &message["type"]);
            assert!(role == "user" || kind == "user_input", "{message}");
            let text = r"First:\npaid\n\nSecond:\npaid";
            assert!(message.to_string().contains(text), "{dialect:?}: {message}");
        }
    }
}
