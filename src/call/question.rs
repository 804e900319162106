//! Questions that a running tool asks its caller.
//!
//! The channel of a call leads from its tool, and from the tools of its nested calls, to the part
//! of the service that can reach the caller. Without a channel the question fails at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::definition::ToolName;
use super::json::JsonObject;

/// Longest message of a question, in bytes.
const MAX_QUESTION_BYTES: usize = 4 << 10;
/// Largest schema of an answer, in bytes of JSON.
const MAX_SCHEMA_BYTES: usize = 16 << 10;
/// The name of a question that the tool has not named.
const DEFAULT_NAME: &str = "question";
/// Longest name of a question, in bytes.
const MAX_NAME_BYTES: usize = 64;

/// A question of a running tool.
#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema)]
#[schema(as = QuestionView)]
pub struct Question {
    /// Name of the question, unique within the call.
    #[schema(value_type = String)]
    pub name: Arc<str>,
    /// Name of the tool that asks: the called tool, or one that it calls.
    #[schema(value_type = String)]
    pub tool: ToolName,
    // It holds no secrets of the manifest.
    /// The text for a person.
    pub message: String,
    /// JSON Schema of the answer's `content`: an object with simple properties.
    #[schema(value_type = Object)]
    pub schema: Value,
}

impl Question {
    /// Makes a question of `tool`. Without a schema, the answer has no content.
    ///
    /// # Errors
    /// Why the caller cannot be asked this question.
    pub fn new(
        tool: ToolName,
        message: String,
        schema: Option<Value>,
        name: Option<&str>,
    ) -> Result<Self, AskError> {
        let schema = schema.unwrap_or_else(|| json!({"type": "object", "properties": {}}));
        check_form(&schema).map_err(AskError::Invalid)?;
        if message.trim().is_empty() {
            return Err(AskError::Invalid("the message is empty".into()));
        }
        if message.len() > MAX_QUESTION_BYTES {
            return Err(AskError::Invalid(format!(
                "the message has {} bytes; the limit is {MAX_QUESTION_BYTES}",
                message.len()
            )));
        }
        let name = name.unwrap_or(DEFAULT_NAME);
        if name.is_empty() || name.len() > MAX_NAME_BYTES || name.contains(char::is_control) {
            return Err(AskError::Invalid(format!(
                "the name is a text of 1 to {MAX_NAME_BYTES} bytes"
            )));
        }
        Ok(Self {
            name: name.into(),
            tool,
            message,
            schema,
        })
    }
}

/// Checks that a client can show a form for the schema: an object with simple properties.
fn check_form(schema: &Value) -> Result<(), String> {
    if schema.get("type") != Some(&json!("object")) {
        return Err("the schema of an answer has `type: object`".into());
    }
    if schema.to_string().len() > MAX_SCHEMA_BYTES {
        return Err(format!("the schema has more than {MAX_SCHEMA_BYTES} bytes"));
    }
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else {
        return Err("the schema of an answer has `properties`, an object".into());
    };
    for (name, property) in properties {
        let kind = property.get("type").and_then(Value::as_str);
        let is_choice = property.get("enum").is_some() || property.get("oneOf").is_some();
        let is_simple = matches!(kind, Some("string" | "number" | "integer" | "boolean"));
        let items = property.get("items");
        let is_selection = kind == Some("array")
            && items.is_some_and(|items| {
                ["enum", "anyOf", "oneOf"]
                    .iter()
                    .any(|key| items.get(key).is_some())
            });
        if !(is_simple || is_selection || kind.is_none() && is_choice) {
            return Err(format!(
                "the property `{name}` of an answer is a string, number, integer, boolean, or an array of choices"
            ));
        }
    }
    Ok(())
}

/// The caller's answer to a question.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(tag = "action", rename_all = "lowercase")]
pub enum QuestionAnswer {
    /// The person has filled in the form.
    Accept {
        /// The form's values. They match the schema of the question.
        #[serde(default)]
        #[schema(value_type = Object)]
        content: JsonObject,
    },
    /// The person has refused to answer.
    Decline,
    /// The person has closed the form.
    Cancel,
}

/// Why a question has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AskError {
    /// Nobody can be asked.
    #[error(
        "the caller of this call cannot be asked: its client takes no questions, or the call came in a way that has no answers"
    )]
    NotPossible,
    /// The caller has left.
    #[error("the caller has left without an answer")]
    CallerLeft,
    /// The question has a fault.
    #[error("the question cannot be asked: {0}")]
    Invalid(String),
}

/// A question that waits for its answer.
#[derive(Debug)]
pub struct OpenQuestion {
    /// The question.
    pub question: Question,
    answer: oneshot::Sender<QuestionAnswer>,
    /// Cancelled when the tool does not wait any more: it has its answer, or has ended.
    pub closed: CancellationToken,
}

impl OpenQuestion {
    /// Gives the tool its answer. False: the tool does not wait any more.
    pub fn answer(self, answer: QuestionAnswer) -> bool {
        self.answer.send(answer).is_ok()
    }
}

/// The tools' end of the channel of one call. Clones lead to the same caller.
#[derive(Debug, Clone)]
pub struct QuestionSink(Arc<Sink>);

#[derive(Debug)]
struct Sink {
    questions: mpsc::Sender<OpenQuestion>,
    open: AtomicUsize,
    was_asked: AtomicBool,
}

/// The caller's end of the channel. Only one question is open at a time.
#[derive(Debug)]
pub struct QuestionListener(mpsc::Receiver<OpenQuestion>);

impl QuestionSink {
    /// Makes a channel.
    pub fn channel() -> (Self, QuestionListener) {
        let (questions, receiver) = mpsc::channel(1);
        let sink = Sink {
            questions,
            open: AtomicUsize::new(0),
            was_asked: AtomicBool::new(false),
        };
        (Self(Arc::new(sink)), QuestionListener(receiver))
    }

    /// Asks, and waits for the answer. Dropping the future takes the question back.
    ///
    /// # Errors
    /// [`AskError::CallerLeft`].
    pub async fn ask(&self, question: Question) -> Result<QuestionAnswer, AskError> {
        self.0.was_asked.store(true, Ordering::Relaxed);
        self.0.open.fetch_add(1, Ordering::Relaxed);
        let _count = OpenCount(&self.0);
        let closed = CancellationToken::new();
        let _closes: DropGuard = closed.clone().drop_guard();
        let (answer, answered) = oneshot::channel();
        let open = OpenQuestion {
            question,
            answer,
            closed,
        };
        let sent = self.0.questions.send(open).await;
        sent.map_err(|_| AskError::CallerLeft)?;
        answered.await.map_err(|_| AskError::CallerLeft)
    }

    /// Whether a question waits for its answer.
    pub fn is_open(&self) -> bool {
        self.0.open.load(Ordering::Relaxed) > 0
    }

    /// Whether the call has asked, so that its result may depend on an answer.
    pub fn was_asked(&self) -> bool {
        self.0.was_asked.load(Ordering::Relaxed)
    }
}

struct OpenCount<'a>(&'a Sink);

impl Drop for OpenCount<'_> {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl QuestionListener {
    /// The next question; `None` if the call asks no more.
    pub async fn next(&mut self) -> Option<OpenQuestion> {
        loop {
            let open = self.0.recv().await?;
            if !open.closed.is_cancelled() {
                return Some(open);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(schema: Option<Value>) -> Result<Question, AskError> {
        let tool = ToolName::parse("book").unwrap();
        Question::new(tool, "How many?".into(), schema, None)
    }

    #[test]
    fn schema_must_be_a_simple_form() {
        let form = |property: Value| json!({"type": "object", "properties": {"a": property}});
        for property in [
            json!({"type": "string", "format": "email", "default": "a@b.c"}),
            json!({"type": "integer", "minimum": 1}),
            json!({"type": "string", "oneOf": [{"const": "x", "title": "X"}]}),
            json!({"type": "array", "items": {"type": "string", "enum": ["x", "y"]}}),
        ] {
            assert!(question(Some(form(property.clone()))).is_ok(), "{property}");
        }
        for property in [
            json!({"type": "object", "properties": {}}),
            json!({"type": "array", "items": {"type": "string"}}),
            json!({}),
        ] {
            let Err(AskError::Invalid(reason)) = question(Some(form(property.clone()))) else {
                panic!("{property}");
            };
            assert!(reason.contains("`a`"), "{reason}");
        }
        assert!(question(Some(json!({"type": "string"}))).is_err());
        assert_eq!(question(None).unwrap().schema["type"], "object");
    }

    #[tokio::test]
    async fn answer_reaches_the_tool() {
        let (sink, mut listener) = QuestionSink::channel();
        assert!(!sink.was_asked());
        let asks = sink.ask(question(None).unwrap());
        let answers = async {
            let open = listener.next().await.unwrap();
            assert!(sink.is_open());
            assert!(open.answer(QuestionAnswer::Decline));
        };
        let (answer, ()) = tokio::join!(asks, answers);
        assert_eq!(answer, Ok(QuestionAnswer::Decline));
        assert!(!sink.is_open() && sink.was_asked());
    }

    #[tokio::test]
    async fn tool_that_waits_no_longer_takes_its_question_back() {
        let (sink, mut listener) = QuestionSink::channel();
        let mut asks = Box::pin(sink.ask(question(None).unwrap()));
        assert!(futures_util::poll!(&mut asks).is_pending());
        let open = listener.next().await.unwrap();
        drop(asks);
        assert!(open.closed.is_cancelled() && !open.answer(QuestionAnswer::Decline));
        drop(listener);
        let asked = sink.ask(question(None).unwrap()).await;
        assert_eq!(asked, Err(AskError::CallerLeft));
    }
}
