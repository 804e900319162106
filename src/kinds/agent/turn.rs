//! One turn of an agent: the tools that the model may call, and the calls of its answer. They run
//! side by side, through the tools' own stacks.

use std::sync::Arc;

use futures_util::{StreamExt, stream};
use serde_json::{Value, json};
use tokio::time::Instant;
use toolcrib_dialect::{Dialect, MalformedCall, Message, RawArguments, ToolCall, ToolReply};

use super::completion::Completion;
use super::coworkers::{
    ASK_QUESTION, Coworkers, DELEGATE_WORK, DelegationOptions, DelegationTool, format_agent_list,
    too_deep_message,
};
use crate::access::tool_pattern::{ToolPattern, any_grants};
use crate::call::{
    AvailableTool, Content, Definition, JsonObject, NestedAnswer, NestedCall, NestedCallError,
    ToolContext, ToolInvoker, ToolName, ToolResult,
};

/// More calls than any model makes in one message.
const MAX_CALLS: usize = 256;

/// The tools for coworkers.
const DELEGATION_TOOLS: [&DelegationTool; 2] = [&DELEGATE_WORK, &ASK_QUESTION];

/// What an agent may call beside its model.
pub(super) struct CallableTools {
    /// The tools of this service that the model may use.
    pub(super) tools: Vec<ToolPattern>,
    /// The agents to which the model may delegate work.
    pub(super) coworkers: Vec<ToolPattern>,
    /// Levels of calls below a call of the agent; `None`: the default.
    pub(super) depth: Option<u32>,
}

impl CallableTools {
    /// Whether there is nothing to call. Then the agent does not get the caller's context.
    pub(super) fn is_empty(&self) -> bool {
        self.tools.is_empty() && self.coworkers.is_empty()
    }
}

/// The tools of one run.
pub(super) struct Toolset<'a> {
    callable: &'a CallableTools,
    context: &'a ToolContext,
    invoker: &'a dyn ToolInvoker,
    deadline: Instant,
    /// The tools in OpenAI's format, for the model.
    pub(super) definitions: Vec<Value>,
    /// Names of tools whose result ends the run as its answer.
    answer_tools: Vec<ToolName>,
    /// Whether there are agents to delegate work to.
    has_coworkers: bool,
}

/// The outcome of the calls of one message.
#[derive(Debug)]
pub(super) struct TurnOutcome {
    /// Messages to append to the conversation.
    pub(super) messages: Vec<Value>,
    /// A result that ends the run as its answer.
    pub(super) answer: Option<ToolResult>,
    /// Tokens that these calls used.
    pub(super) tokens: u64,
}

/// Why a call has no answer, as a text for the model.
struct FailedCall {
    content: Vec<Content>,
    /// The tool is unknown, or the call is malformed.
    is_no_call: bool,
}

impl FailedCall {
    fn no_call(text: String) -> Self {
        Self {
            is_no_call: true,
            ..text.into()
        }
    }
}

impl From<String> for FailedCall {
    fn from(text: String) -> Self {
        Self {
            content: vec![Content::text(text)],
            is_no_call: false,
        }
    }
}

impl<'a> Toolset<'a> {
    /// The tools that the agent may use now.
    pub(super) fn new(
        callable: &'a CallableTools,
        context: &'a ToolContext,
        invoker: &'a dyn ToolInvoker,
        deadline: Instant,
    ) -> Self {
        let mut toolset = Self {
            callable,
            context,
            invoker,
            deadline,
            definitions: Vec::new(),
            answer_tools: Vec::new(),
            has_coworkers: false,
        };
        let coworkers = toolset.coworkers().available(context);
        toolset.has_coworkers = !coworkers.is_empty();
        let tools = invoker.available_tools(context, &|tool| toolset.is_offered(tool));
        let is_answer_tool = |tool: &&AvailableTool| tool.definition.result_as_answer;
        toolset.answer_tools = tools
            .iter()
            .filter(is_answer_tool)
            .map(|tool| tool.definition.name.clone())
            .collect();
        toolset.definitions = tools.into_iter().map(|tool| tool.openai).collect();
        if toolset.has_coworkers {
            let definition = |tool| delegation_tool_definition(tool, &coworkers);
            let tools = DELEGATION_TOOLS.map(definition);
            toolset.definitions.extend(tools);
        }
        toolset
    }

    fn coworkers(&self) -> Coworkers<'a> {
        Coworkers {
            invoker: self.invoker,
            allowed: Some(&self.callable.coworkers),
        }
    }

    /// Whether this tool is offered. The tools for coworkers take precedence over a tool of the
    /// same name.
    fn is_offered(&self, tool: &Definition) -> bool {
        any_grants(&self.callable.tools, tool.names(), |_| false)
            && self.delegation_tool(tool.name.as_str()).is_none()
    }

    fn delegation_tool(&self, name: &str) -> Option<&'static DelegationTool> {
        let mut tools = DELEGATION_TOOLS.into_iter();
        tools.find(|tool| self.has_coworkers && tool.name == name.trim())
    }

    /// Whether the result of one of these calls can end the run.
    pub(super) fn can_end_run(&self, message: &Message) -> bool {
        message.calls.iter().flatten().any(|call| {
            let name =
                self.invoker
                    .resolve(self.context, &|tool| self.is_offered(tool), &call.name);
            name.is_ok_and(|name| self.answer_tools.contains(&name))
        })
    }

    /// Runs the calls of a message.
    pub(super) async fn run_calls(&self, message: &Message) -> TurnOutcome {
        let calls = message
            .calls
            .iter()
            .enumerate()
            .map(|(index, call)| async move { (index, self.run_call(call).await) });
        let calls: Vec<_> = calls.collect();
        // Dropping this future also drops the calls that have not started.
        let mut done: Vec<(usize, _)> = stream::iter(calls)
            .buffer_unordered(self.invoker.max_parallel_calls())
            .collect()
            .await;
        done.sort_unstable_by_key(|(index, _)| *index);
        let replies: Vec<ToolReply<'_>> =
            done.iter().map(|(_, outcome)| as_reply(outcome)).collect();
        let messages = toolcrib_dialect::write_replies(message, &replies);
        let answers = || done.iter().flat_map(|(_, outcome)| outcome);
        let final_answer = answers().find(|answer| answer.result_as_answer);
        TurnOutcome {
            messages,
            answer: final_answer.map(|answer| ToolResult::clone(&answer.result)),
            tokens: answers().map(|answer| answer.tokens).sum(),
        }
    }

    async fn run_call(
        &self,
        call: &Result<ToolCall, MalformedCall>,
    ) -> Result<NestedAnswer, FailedCall> {
        let call = call
            .as_ref()
            .map_err(|malformed| FailedCall::no_call(malformed.correction.clone()))?;
        let id: Option<Arc<str>> = call.id.as_ref().map(|id| match id {
            Value::String(text) => text.as_str().into(),
            other => other.to_string().into(),
        });
        match self.delegation_tool(&call.name) {
            Some(tool) => self.delegate(tool, call, id).await,
            None => self.call_tool(call, id).await,
        }
    }

    async fn call_tool(
        &self,
        call: &ToolCall,
        id: Option<Arc<str>>,
    ) -> Result<NestedAnswer, FailedCall> {
        let nested_call = NestedCall {
            name: call.name.clone(),
            arguments: arguments_as_value(&call.arguments),
            cut_off: call.cut_off,
            tool_use_id: id,
            deadline: self.deadline,
            max_depth: self.callable.depth,
            script_position: None,
        };
        let answer = self
            .invoker
            .call(self.context, &|tool| self.is_offered(tool), nested_call)
            .await;
        answer.map_err(|error| match error {
            NestedCallError::UnknownTool(suggestions) => {
                FailedCall::no_call(unknown_tool_message(&call.name, &suggestions))
            }
            NestedCallError::TooDeep(levels) => too_deep_message(levels).into(),
            NestedCallError::Failed(failure) => failure.for_model.into(),
        })
    }

    async fn delegate(
        &self,
        tool: &DelegationTool,
        call: &ToolCall,
        tool_use_id: Option<Arc<str>>,
    ) -> Result<NestedAnswer, FailedCall> {
        // Do not repair arguments that were cut off: the other agent may have effects, so its task
        // must not be guessed.
        let arguments = toolcrib_dialect::read_arguments(&call.arguments, call.cut_off, false);
        let arguments = arguments.map_err(|error| FailedCall::no_call(error.correction))?;
        let task = tool.parse_arguments(arguments.arguments)?;
        let options = DelegationOptions {
            tool_use_id,
            deadline: self.deadline,
            max_depth: self.callable.depth,
        };
        let answer = self
            .coworkers()
            .delegate(task, self.context, options)
            .await?;
        // A coworker's answer is a result for this agent. It must not end this agent's run.
        Ok(NestedAnswer {
            result_as_answer: false,
            ..answer
        })
    }
}

fn as_reply(outcome: &Result<NestedAnswer, FailedCall>) -> ToolReply<'_> {
    match outcome {
        Ok(answer) => ToolReply {
            content: answer.shown.as_deref().unwrap_or(&answer.result.content),
            structured: answer.result.structured_content.as_ref(),
            is_error: answer.result.is_error,
            is_final_answer: answer.result_as_answer,
            is_invalid_call: false,
        },
        Err(failed) => ToolReply {
            content: &failed.content,
            structured: None,
            is_error: true,
            is_final_answer: false,
            is_invalid_call: failed.is_no_call,
        },
    }
}

/// Reads the calls of an answer. The error is the end of a sentence.
pub(super) fn parse_calls(completion: &Completion) -> Result<Message, String> {
    let message =
        toolcrib_dialect::read_message(completion.to_response_body(), Some(Dialect::Openai))
            .map_err(|_| "is not a message")?;
    match message.calls.len() {
        0..=MAX_CALLS => Ok(message),
        count => Err(format!("has {count} tool calls; {MAX_CALLS} is the limit")),
    }
}

/// The model's message as it is sent back. It stays unchanged, because servers hide data in it that
/// they need again. But each call gets the id under which it is answered, and arguments that are
/// valid JSON. Some servers parse them.
pub(super) fn assistant_message(mut message: JsonObject, parsed_calls: &Message) -> Value {
    message.retain(|_, value| !value.is_null());
    message.insert("role".into(), "assistant".into());
    let raw_calls = message.get_mut("tool_calls").and_then(Value::as_array_mut);
    for (call, parsed) in raw_calls
        .into_iter()
        .flatten()
        .filter_map(Value::as_object_mut)
        .zip(&parsed_calls.calls)
    {
        if let Some(id) = toolcrib_dialect::call_id(parsed) {
            call.insert("id".into(), id.clone());
        }
        call.entry("type").or_insert_with(|| "function".into());
        let function = call.get_mut("function").and_then(Value::as_object_mut);
        if let (Some(function), Ok(parsed)) = (function, parsed) {
            let text = match &parsed.arguments {
                RawArguments::Text(text) if serde_json::from_str::<JsonObject>(text).is_ok() => {
                    continue;
                }
                RawArguments::Object(object) => json!(object).to_string(),
                other => toolcrib_dialect::read_arguments(other, false, true).map_or_else(
                    |_| "{}".to_owned(),
                    |repaired| Value::Object(repaired.arguments).to_string(),
                ),
            };
            function.insert("arguments".into(), text.into());
        }
    }
    if !message.contains_key("tool_calls") && !message.contains_key("content") {
        message.insert("content".into(), "".into());
    }
    Value::Object(message)
}

/// A tool for coworkers in OpenAI's format, with their names and descriptions.
fn delegation_tool_definition(tool: &DelegationTool, coworkers: &[AvailableTool]) -> Value {
    let names: Vec<&str> = coworkers
        .iter()
        .map(|agent| agent.definition.name.as_str())
        .collect();
    let description = format!(
        "{}{}",
        tool.description,
        format_agent_list(coworkers.iter().map(|agent| &agent.definition))
    );
    json!({"type": "function", "function": {
        "name": tool.name, "description": description, "parameters": tool.input_schema(&names),
    }})
}

fn arguments_as_value(arguments: &RawArguments) -> Value {
    match arguments {
        RawArguments::Object(object) => Value::Object(object.clone()),
        RawArguments::Text(text) | RawArguments::Input(text) => Value::String(text.clone()),
        RawArguments::Missing => Value::Null,
        RawArguments::Other(other) => other.clone(),
    }
}

fn unknown_tool_message(name: &str, suggestions: &[String]) -> String {
    let name: String = name.chars().take(200).collect();
    match suggestions {
        [] => format!("You have no tool `{name}`: use one of those that you were given."),
        suggestions => format!(
            "You have no tool `{name}`; did you mean {}?",
            suggestions.join(", ")
        ),
    }
}
