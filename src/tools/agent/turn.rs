//! One turn of an agent: the tools that the model may call, and the calls of its answer. They run side by side, through
//! the tools' own stacks.

use std::sync::Arc;

use futures_util::{StreamExt, stream};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::Agent;
use super::completion::Completion;
use super::coworkers::{Coworkers, Terms, Way, listed};
use crate::call::{
    AvailableTool, Content, Definition, InvalidArguments, JsonObject, NoAnswer, SubAnswer, SubCall, ToolContext,
    ToolInvoker, ToolName, ToolResult,
};
use crate::dialect::{self, Dialect, MalformedCall, Message, RawArguments, ToolCall, ToolReply};
use crate::tool_pattern::any_grants;

/// More calls than any model makes in one message.
const MOST_CALLS: usize = 256;

/// The tools of one run.
pub(super) struct Toolset<'a> {
    agent: &'a Agent,
    context: &'a ToolContext,
    others: &'a dyn ToolInvoker,
    end: Instant,
    /// The tools in OpenAI's format, for the model.
    pub(super) shown: Vec<Value>,
    /// Names of tools whose result ends the run as its answer.
    last_words: Vec<ToolName>,
    /// Whether there are agents to delegate work to.
    has_coworkers: bool,
}

/// The outcome of the calls of one message.
#[derive(Debug)]
pub(super) struct Turn {
    /// Messages to append to the conversation.
    pub(super) messages: Vec<Value>,
    /// A result that ends the run as its answer.
    pub(super) answer: Option<ToolResult>,
    /// Tokens that these calls used.
    pub(super) tokens: u64,
}

/// The outcome of one call.
enum Outcome {
    Answer(SubAnswer),
    /// Why there is no answer, as a text for the model. `is_no_call`: the tool is unknown, or the call is malformed.
    None {
        words: Vec<Content>,
        is_no_call: bool,
    },
}

impl<'a> Toolset<'a> {
    /// The tools that the agent may use now.
    pub(super) fn new(agent: &'a Agent, context: &'a ToolContext, others: &'a dyn ToolInvoker, end: Instant) -> Self {
        let mut toolset =
            Self { agent, context, others, end, shown: Vec::new(), last_words: Vec::new(), has_coworkers: false };
        let coworkers = toolset.coworkers().here(context);
        toolset.has_coworkers = !coworkers.is_empty();
        let offers = others.offers(context, &|tool| toolset.wants(tool));
        let is_last_word = |offer: &&AvailableTool| offer.definition.result_as_answer;
        toolset.last_words = offers.iter().filter(is_last_word).map(|offer| offer.definition.name.clone()).collect();
        toolset.shown = offers.into_iter().map(|offer| offer.openai).collect();
        if toolset.has_coworkers {
            toolset.shown.extend(Way::ALL.map(|way| shown(way, &coworkers)));
        }
        toolset
    }

    fn coworkers(&self) -> Coworkers<'a> {
        Coworkers::new(self.others, Some(&self.agent.coworkers))
    }

    /// Whether this tool is offered. The tools for coworkers take precedence over a tool of the same name.
    fn wants(&self, tool: &Definition) -> bool {
        any_grants(&self.agent.tools, tool.names(), |_| false) && self.way(tool.name.as_str()).is_none()
    }

    fn way(&self, name: &str) -> Option<Way> {
        Way::ALL.into_iter().find(|way| self.has_coworkers && way.name() == name.trim())
    }

    /// Whether the result of one of these calls can end the run.
    pub(super) fn may_end(&self, message: &Message) -> bool {
        message.asks.iter().flatten().any(|ask| {
            let name = self.others.resolve(self.context, &|tool| self.wants(tool), &ask.name);
            name.is_ok_and(|name| self.last_words.contains(&name))
        })
    }

    /// Runs the calls of a message.
    pub(super) async fn take(&self, message: &Message) -> Turn {
        let calls = message.asks.iter().enumerate().map(|(at, ask)| async move { (at, self.outcome(ask).await) });
        let calls: Vec<_> = calls.collect();
        // Dropping this future also drops the calls that have not started.
        let mut done: Vec<(usize, Outcome)> =
            stream::iter(calls).buffer_unordered(self.others.parallel()).collect().await;
        done.sort_unstable_by_key(|(at, _)| *at);
        let outcomes: Vec<Outcome> = done.into_iter().map(|(_, outcome)| outcome).collect();
        let said: Vec<ToolReply<'_>> = outcomes.iter().map(Outcome::said).collect();
        let messages = dialect::reply(message, &said);
        let answers = || {
            outcomes.iter().filter_map(|outcome| match outcome {
                Outcome::Answer(answer) => Some(answer),
                Outcome::None { .. } => None,
            })
        };
        let last_word = answers().find(|answer| answer.result_as_answer);
        Turn {
            messages,
            answer: last_word.map(|answer| ToolResult::clone(&answer.result)),
            tokens: answers().map(|answer| answer.tokens).sum(),
        }
    }

    async fn outcome(&self, ask: &Result<ToolCall, MalformedCall>) -> Outcome {
        let ask = match ask {
            Ok(ask) => ask,
            Err(misread) => return Outcome::none(misread.correction.clone(), true),
        };
        let id: Option<Arc<str>> = ask.id.as_ref().map(|id| match id {
            Value::String(text) => text.as_str().into(),
            other => other.to_string().into(),
        });
        match self.way(&ask.name) {
            Some(way) => self.hand(way, ask, id).await,
            None => self.call(ask, id).await,
        }
    }

    async fn call(&self, ask: &ToolCall, id: Option<Arc<str>>) -> Outcome {
        let call = SubCall {
            name: ask.name.clone(),
            arguments: as_value(&ask.arguments),
            cut_off: ask.cut_off,
            tool_use_id: id,
            deadline: self.end,
            levels: self.agent.depth,
        };
        match self.others.call(self.context, &|tool| self.wants(tool), call).await {
            Ok(answer) => Outcome::Answer(answer),
            Err(NoAnswer::Unknown(meant)) => Outcome::none(unknown(&ask.name, &meant), true),
            Err(NoAnswer::TooDeep(levels)) => Outcome::none(too_deep(levels), false),
            Err(NoAnswer::Failed(failure)) => Outcome::none(failure.for_model, false),
        }
    }

    async fn hand(&self, way: Way, ask: &ToolCall, tool_use_id: Option<Arc<str>>) -> Outcome {
        // Do not repair arguments that were cut off: the other agent may have effects, so its task must not be guessed.
        let arguments = match dialect::arguments(&ask.arguments, ask.cut_off, false) {
            Ok(mended) => mended.arguments,
            Err(InvalidArguments { correction, .. }) => return Outcome::none(correction, true),
        };
        let work = match way.read(arguments) {
            Ok(work) => work,
            Err(words) => return Outcome::none(words, false),
        };
        let terms = Terms { tool_use_id, deadline: self.end, levels: self.agent.depth };
        match self.coworkers().hand(work, self.context, terms).await {
            // A coworker's answer is a result for this agent. It must not end this agent's run.
            Ok(answer) => Outcome::Answer(SubAnswer { result_as_answer: false, ..answer }),
            Err(words) => Outcome::none(words, false),
        }
    }
}

impl Outcome {
    fn none(words: String, is_no_call: bool) -> Self {
        Self::None { words: vec![Content::text(words)], is_no_call }
    }

    fn said(&self) -> ToolReply<'_> {
        match self {
            Self::Answer(SubAnswer { result, shown, result_as_answer, .. }) => ToolReply {
                content: shown.as_deref().unwrap_or(&result.content),
                structured: result.structured_content.as_ref(),
                is_error: result.is_error,
                is_answer: *result_as_answer,
                is_no_call: false,
            },
            Self::None { words, is_no_call } => ToolReply {
                content: words,
                structured: None,
                is_error: true,
                is_answer: false,
                is_no_call: *is_no_call,
            },
        }
    }
}

/// Reads the calls of an answer. The error is the end of a sentence.
pub(super) fn calls(completion: &Completion) -> Result<Message, String> {
    let message = dialect::read(completion.as_body(), Some(Dialect::Openai)).map_err(|_| "is no message")?;
    match message.asks.len() {
        0..=MOST_CALLS => Ok(message),
        count => Err(format!("has {count} tool calls; {MOST_CALLS} are the most")),
    }
}

/// The model's message as it is sent back. It stays as it came, because servers hide data in it that they need again.
/// But each call gets the id under which it is answered, and arguments that are valid JSON. Some servers parse them.
pub(super) fn echo(mut message: JsonObject, calls: &Message) -> Value {
    message.retain(|_, value| !value.is_null());
    message.insert("role".into(), "assistant".into());
    let written = dialect_calls(&mut message);
    for (call, ask) in written.into_iter().flatten().filter_map(Value::as_object_mut).zip(&calls.asks) {
        if let Some(id) = dialect::id_of(ask) {
            call.insert("id".into(), id.clone());
        }
        call.entry("type").or_insert_with(|| "function".into());
        let function = call.get_mut("function").and_then(Value::as_object_mut);
        if let (Some(function), Ok(ask)) = (function, ask) {
            let text = match &ask.arguments {
                RawArguments::Text(text) if serde_json::from_str::<JsonObject>(text).is_ok() => continue,
                RawArguments::Object(object) => json!(object).to_string(),
                other => dialect::arguments(other, false, true)
                    .map_or_else(|_| "{}".to_owned(), |mended| Value::Object(mended.arguments).to_string()),
            };
            function.insert("arguments".into(), text.into());
        }
    }
    if !message.contains_key("tool_calls") && !message.contains_key("content") {
        message.insert("content".into(), "".into());
    }
    Value::Object(message)
}

fn dialect_calls(message: &mut JsonObject) -> Option<&mut Vec<Value>> {
    message.get_mut("tool_calls").and_then(Value::as_array_mut)
}

/// A tool for coworkers in OpenAI's format, with their names and descriptions.
fn shown(way: Way, coworkers: &[AvailableTool]) -> Value {
    let names: Vec<&str> = coworkers.iter().map(|offer| offer.definition.name.as_str()).collect();
    let description = format!("{}{}", way.description(), listed(coworkers.iter().map(|offer| &offer.definition)));
    json!({"type": "function", "function": {
        "name": way.name(), "description": description, "parameters": way.input_schema(&names),
    }})
}

fn as_value(written: &RawArguments) -> Value {
    match written {
        RawArguments::Object(object) => Value::Object(object.clone()),
        RawArguments::Text(text) => Value::String(text.clone()),
        RawArguments::Nothing => Value::Null,
        RawArguments::Other(other) => other.clone(),
    }
}

fn unknown(asked: &str, meant: &[String]) -> String {
    let asked: String = asked.chars().take(200).collect();
    match meant {
        [] => format!("You have no tool `{asked}`: use one of those that you were given."),
        meant => format!("You have no tool `{asked}`; did you mean {}?", meant.join(", ")),
    }
}

/// The text for the model when calls are nested as deep as they may be.
pub(super) fn too_deep(levels: u32) -> String {
    format!(
        "This is {levels} calls of tools deep, and no call may be made below it. Do without: answer with what is known."
    )
}
