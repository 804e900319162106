//! `search_tools` and `call_tool`: with these two, a model uses tools that its list does not have.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};

use super::arguments::text_argument;
use crate::call::{
    Capture, Definition, Effect, JsonObject, NestedCall, NestedCallError, ToolContext, ToolError,
    ToolInvoker, ToolResult,
};
use crate::kinds::agent::coworkers::too_deep_message;
use crate::kinds::{Runner, RunnerTraits, Tool, ToolOutcome};

const SEARCH_DESCRIPTION: &str = "Finds tools by words, such as \"create issue\". Most tools are not in your list: search before you say that \
     something cannot be done. Answers names, descriptions and parameters, the best match first.";
const CALL_DESCRIPTION: &str = "Calls a tool that search_tools has found, and answers its result. `arguments` must match the parameters that \
     the search shows.";
/// The number of tools that a search answers, and the most.
const LIMIT: u64 = 5;
const MAX_LIMIT: u64 = 50;
/// The called tool has a timeout of its own, and some tools take long.
const TIMEOUT: Duration = Duration::from_secs(600);

/// `search_tools`, registered as `name`.
pub(super) fn search_tool(name: &str) -> Tool {
    let schema = json!({
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "What the tool does, in a few words"},
            "limit": {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": LIMIT, "description": "Most tools to answer"},
        },
        "required": ["query"],
        "additionalProperties": false,
    });
    Tool::new(name, SEARCH_DESCRIPTION)
        .input_schema(schema)
        .effect(Effect::Read)
        .repeatable()
        .with_runner(Arc::new(SearchTools))
}

/// `call_tool`, registered as `name`.
pub(super) fn call_tool(name: &str) -> Tool {
    let arguments = json!({"type": "object", "description": "The tool's arguments", "default": {}});
    let schema = json!({
        "type": "object",
        "properties": {
            "name": {"type": "string", "description": "The tool's name"},
            "arguments": arguments,
        },
        "required": ["name"],
        "additionalProperties": false,
    });
    Tool::new(name, CALL_DESCRIPTION)
        .input_schema(schema)
        .timeout(TIMEOUT)
        // Arguments and result are in the row of the called tool, as its policy permits.
        .capture(Capture::Digest)
        .with_runner(Arc::new(CallTool))
}

/// The way to the other tools.
pub(super) fn tool_invoker(context: &ToolContext) -> Result<Arc<dyn ToolInvoker>, ToolError> {
    let invoker = context.service::<Arc<dyn ToolInvoker>>().cloned();
    invoker
        .ok_or_else(|| ToolError::unavailable_before_start("there are no other tools here", None))
}

struct SearchTools;

#[async_trait]
impl Runner for SearchTools {
    async fn call(&self, arguments: Arc<JsonObject>, context: ToolContext) -> ToolOutcome {
        let query = text_argument(&arguments, "query");
        let limit = arguments.get("limit").and_then(Value::as_u64);
        let limit = usize::try_from(limit.unwrap_or(LIMIT)).unwrap_or(usize::MAX);
        let found = tool_invoker(&context)?.find_tools(&context, query, limit);
        let mut answer = json!({"tools": found});
        if answer["tools"] == json!([]) {
            answer["hint"] =
                "No tool matches. Try other words: what the tool acts on, or another verb.".into();
        }
        Ok(ToolResult::json(answer))
    }

    fn traits(&self) -> RunnerTraits {
        RunnerTraits {
            finds_tools: true,
            is_cacheable: false,
            ..RunnerTraits::default()
        }
    }
}

struct CallTool;

#[async_trait]
impl Runner for CallTool {
    async fn call(&self, arguments: Arc<JsonObject>, context: ToolContext) -> ToolOutcome {
        let name = text_argument(&arguments, "name");
        let call = NestedCall {
            name: name.to_owned(),
            arguments: arguments.get("arguments").cloned().unwrap_or_default(),
            cut_off: false,
            tool_use_id: None,
            deadline: context.deadline,
            max_depth: None,
            script_position: None,
        };
        // A call of itself would only be a longer way.
        let own = context.tool.clone();
        let filter = |tool: &Definition| tool.name != own;
        let answer = tool_invoker(&context)?.call(&context, &filter, call).await;
        let answer = answer.map_err(|error| ToolError::ErrorResult(explain(name, error)))?;
        let result = Arc::unwrap_or_clone(answer.result);
        // A part of a long result says how to read the rest of the called tool's result.
        Ok(match answer.shown {
            Some(content) => ToolResult {
                content,
                structured_content: None,
                ..result
            },
            None => result,
        })
    }

    fn traits(&self) -> RunnerTraits {
        RunnerTraits {
            has_one_target: false,
            calls_tools: true,
            may_ask: true,
            finds_tools: true,
            is_cacheable: false,
            ..RunnerTraits::with_context(true)
        }
    }
}

/// Why a call of the tool has no answer: the text for the model.
pub(super) fn explain(name: &str, error: NestedCallError) -> String {
    let name: String = name.chars().take(200).collect();
    match error {
        NestedCallError::UnknownTool(suggestions) if suggestions.is_empty() => {
            format!("There is no tool `{name}`. Search for it.")
        }
        NestedCallError::UnknownTool(suggestions) => format!(
            "There is no tool `{name}`. Did you mean {}?",
            suggestions.join(", ")
        ),
        NestedCallError::TooDeep(levels) => too_deep_message(levels),
        NestedCallError::Failed(failure) => failure.for_model,
    }
}
