//! The answer of a model: one message of a chat completion, from a whole response or from a stream.

use serde_json::{Value, json};

use crate::call::JsonObject;

/// An answer of the model.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Completion {
    /// The assistant's message, unchanged.
    pub(super) message: JsonObject,
    /// Why the model stopped (`finish_reason`).
    pub(super) finish_reason: Option<String>,
    /// The tokens of the request; `None` if the server does not count them.
    pub(super) usage: Option<TokenUsage>,
}

/// Tokens of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TokenUsage {
    pub(super) input: u64,
    pub(super) output: u64,
}

impl TokenUsage {
    /// Reads the server's counts; `None` if it sends none. Some servers send nulls or zeros
    /// instead.
    pub(super) fn from_json(usage: &Value) -> Option<Self> {
        let count = |name: &str| usage.get(name).and_then(Value::as_u64);
        let (input, output) = (count("prompt_tokens"), count("completion_tokens"));
        let usage = match (input, output, count("total_tokens")) {
            (Some(input), Some(output), _) => Self { input, output },
            (Some(input), None, total) => Self {
                input,
                output: total.unwrap_or(input).saturating_sub(input),
            },
            (None, output, total) => {
                let output = output.unwrap_or_default();
                Self {
                    input: total?.saturating_sub(output),
                    output,
                }
            }
        };
        (usage.input > 0 || usage.output > 0).then_some(usage)
    }

    /// An estimate by length: four bytes per token, OpenAI's rule of thumb for English text.
    pub(super) fn estimate_by_length(input_bytes: usize, output_bytes: usize) -> Self {
        let tokens = |bytes: usize| bytes.div_ceil(4) as u64;
        Self {
            input: tokens(input_bytes),
            output: tokens(output_bytes),
        }
    }
}

/// The server's error message, if the body has an error instead of an answer.
pub(super) fn error_message(body: &Value) -> Option<String> {
    let error = body.get("error").filter(|error| !error.is_null())?;
    let message = error
        .get("message")
        .or(error.get("detail"))
        .unwrap_or(error);
    Some(
        message
            .as_str()
            .map_or_else(|| message.to_string(), str::to_owned),
    )
}

impl Completion {
    /// Reads the answer of a whole response. The error is the end of a sentence that says what is
    /// wrong.
    pub(super) fn from_response(mut body: Value) -> Result<Self, String> {
        let usage = body.get("usage").and_then(TokenUsage::from_json);
        let choice = body
            .get_mut("choices")
            .and_then(|choices| choices.get_mut(0));
        let Some(choice) = choice else {
            return Err("has no `choices`".into());
        };
        let finish = choice
            .get("finish_reason")
            .and_then(Value::as_str)
            .map(str::to_owned);
        match choice.get_mut("message").map(Value::take) {
            Some(Value::Object(message)) => Ok(Self {
                message,
                finish_reason: finish,
                usage,
            }),
            _ => Err("has no `message` in its first choice".into()),
        }
    }

    /// The text of the answer: a string, or the texts of a list of parts.
    pub(super) fn text(&self) -> String {
        match self.message.get("content") {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Array(parts)) => {
                let texts = parts
                    .iter()
                    .filter_map(|part| part.get("text").and_then(Value::as_str));
                texts.collect::<Vec<_>>().join("\n")
            }
            _ => String::new(),
        }
    }

    /// The text of the model's refusal.
    pub(super) fn refusal(&self) -> Option<&str> {
        self.message
            .get("refusal")
            .and_then(Value::as_str)
            .filter(|text| !text.trim().is_empty())
    }

    /// The answer as a response body, for the dialect.
    pub(super) fn to_response_body(&self) -> Value {
        json!({"choices": [{"index": 0, "message": self.message, "finish_reason": self.finish_reason}]})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_is_read_from_partial_counts() {
        let read =
            |usage: Value| TokenUsage::from_json(&usage).map(|usage| (usage.input, usage.output));
        assert_eq!(
            read(json!({"prompt_tokens": 8, "completion_tokens": 2, "total_tokens": 10})),
            Some((8, 2))
        );
        assert_eq!(
            read(json!({"prompt_tokens": 8, "total_tokens": 10})),
            Some((8, 2))
        );
        assert_eq!(
            read(json!({"completion_tokens": 2, "total_tokens": 10})),
            Some((8, 2))
        );
        assert_eq!(read(json!({"total_tokens": 10})), Some((10, 0)));
        for nothing in [
            json!({}),
            json!(null),
            json!({"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}),
        ] {
            assert_eq!(read(nothing), None);
        }
        assert_eq!(
            TokenUsage::estimate_by_length(9, 1),
            TokenUsage {
                input: 3,
                output: 1
            }
        );
    }

    #[test]
    fn invalid_completion_error_names_missing_member() {
        assert_eq!(
            Completion::from_response(json!({"choices": []})).unwrap_err(),
            "has no `choices`"
        );
        assert_eq!(
            Completion::from_response(json!([])).unwrap_err(),
            "has no `choices`"
        );
        let no_message = Completion::from_response(json!({"choices": [{"text": "old"}]}));
        assert_eq!(
            no_message.unwrap_err(),
            "has no `message` in its first choice"
        );
    }

    #[test]
    fn text_parts_are_joined() {
        let parts = json!([{"type": "text", "text": "a"}, {"type": "refusal"}, {"type": "text", "text": "b"}]);
        let body = json!({"choices": [{"message": {"content": parts, "refusal": " "}, "finish_reason": "stop"}]});
        let read = Completion::from_response(body).unwrap();
        assert_eq!((read.text().as_str(), read.refusal()), ("a\nb", None));
    }
}
