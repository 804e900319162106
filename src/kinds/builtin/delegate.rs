//! `delegate_work` and `ask_question`: hand work or a question to another agent of the service.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde::Deserialize;

use crate::access::tool_pattern::{ToolPattern, any_grants};
use crate::call::{Definition, JsonObject, ModelUsage, ToolContext, ToolError, ToolInvoker};
use crate::kinds::agent::coworkers::{Coworkers, DelegationOptions, DelegationTool, invalid_names};
use crate::kinds::{ConfigFault, Runner, RunnerTraits, Tool, ToolOutcome};

/// Agents take long, and have bounds of their own.
const TIMEOUT: Duration = Duration::from_secs(600);

/// `with:`.
#[derive(Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Config {
    /// Agents to which work may be delegated, by name. Default: all agents that the caller may use.
    #[schemars(extend("examples" = [["researcher"]]))]
    coworkers: Option<Vec<String>>,
}

pub(super) fn tool(
    delegation: &'static DelegationTool,
    name: &str,
    config: Config,
) -> Result<Tool, ConfigFault> {
    let names = config.coworkers.as_deref();
    if names.is_some_and(<[String]>::is_empty) {
        let message = "the list is empty: name agents, or leave `coworkers` out for all agents";
        return Err(ConfigFault::error(&["with", "coworkers"], message));
    }
    if let Some((at, message)) = invalid_names(names.unwrap_or_default()).next() {
        return Err(ConfigFault::error(&["with", "coworkers", &at], message));
    }
    let names_to_show: Vec<&str> = names
        .into_iter()
        .flatten()
        .map(|name| name.trim())
        .collect();
    // The schema names the coworkers only in a description, without an `enum`: other spellings of a
    // name are understood too.
    let mut schema = delegation.input_schema(&[]);
    if !names_to_show.is_empty() {
        schema["properties"]["coworker"]["description"] =
            format!("The coworker's name: {}", names_to_show.join(", ")).into();
    }
    // The effects of the agents are not known here. So the tool is a `write`, the default of every
    // tool.
    let tool = Tool::new(name, delegation.description)
        .input_schema(schema)
        .timeout(TIMEOUT);
    let coworkers = names.map(ToolPattern::parse_list);
    Ok(tool.with_runner(Arc::new(Delegate {
        delegation,
        coworkers,
    })))
}

struct Delegate {
    delegation: &'static DelegationTool,
    coworkers: Option<Vec<ToolPattern>>,
}

#[async_trait]
impl Runner for Delegate {
    async fn call(&self, arguments: Arc<JsonObject>, context: ToolContext) -> ToolOutcome {
        let Some(invoker) = context.service::<Arc<dyn ToolInvoker>>().cloned() else {
            return Err(ToolError::unavailable_before_start(
                "there are no other agents here",
                None,
            ));
        };
        let task = self
            .delegation
            .parse_arguments(Arc::unwrap_or_clone(arguments))?;
        let options = DelegationOptions {
            tool_use_id: None,
            deadline: context.deadline,
            max_depth: None,
        };
        let coworkers = Coworkers {
            invoker: &*invoker,
            allowed: self.coworkers.as_deref(),
        };
        let answer = coworkers.delegate(task, &context, options).await?;
        if answer.tokens > 0 {
            // If an agent made this call, its bound on tokens counts these too.
            context.set_model_usage(ModelUsage {
                total_tokens: answer.tokens,
                ..ModelUsage::default()
            });
        }
        Ok(Arc::unwrap_or_clone(answer.result))
    }

    fn delegates_to(&self, agent: &Definition) -> bool {
        self.coworkers
            .as_ref()
            .is_none_or(|names| any_grants(names, agent.names(), |_| false))
    }

    fn traits(&self) -> RunnerTraits {
        RunnerTraits {
            has_one_target: false,
            calls_tools: true,
            may_ask: true,
            ..RunnerTraits::with_context(true)
        }
    }
}
