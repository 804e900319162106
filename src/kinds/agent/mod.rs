//! The `agent` kind: a model with a prompt and tools of its own, as a tool.
//!
//! - `config`, `builder`: what the manifest or the embedding program declares
//! - `run`, `turn`, `coworkers`: the loop of one call, the calls of one answer, the prompt, work
//!   for other agents
//! - `endpoint`, `completion`, `stream`: requests to the model, and its answers

pub(crate) mod builder;
mod completion;
mod config;
pub(crate) mod coworkers;
mod endpoint;
mod run;
mod stream;
mod turn;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

pub use config::{Budget, Config, ModelConfig};

use self::coworkers::{Prompt, too_deep_message};
use self::endpoint::Endpoint;
use self::run::{AgentRun, AgentRunner};
use self::turn::CallableTools;
use super::{BuildContext, BuildResult, HttpClients, Runner, RunnerTraits, Tool, ToolOutcome};
use crate::access::tool_pattern::ToolPattern;
use crate::call::{JsonObject, ToolContext, ToolError, ToolInvoker};

/// Default for `max_turns`.
const MAX_TURNS: u32 = 8;
/// Added to `budget.time` for the tool's timeout, so that the budget ends the call before the
/// timeout does.
const TIMEOUT_MARGIN: Duration = Duration::from_secs(5);

/// The parameters of an agent that declares no parameters.
pub(super) fn add_default_parameters(tool: Tool<()>) -> Tool<()> {
    tool.param(
        "task",
        "string",
        "What to do, in full: the agent knows nothing else of the conversation.",
    )
    .param_opt("context", "string", "What the agent must know for the task")
}

/// Builds the runner.
///
/// # Errors
/// Faults of the configuration.
pub fn build(config: Config, context: &BuildContext<'_>, clients: &HttpClients) -> BuildResult {
    let mut faults = config.config_faults();
    let prompt = Prompt::build(
        config.system,
        config.prompt,
        config.output_schema,
        context,
        &mut faults,
    );
    let endpoint = Endpoint::build(config.model, clients, &mut faults);
    match (endpoint, prompt) {
        (Some(endpoint), Some(prompt)) if faults.iter().all(|fault| fault.warning) => {
            let agent = AgentRunner {
                endpoint,
                prompt,
                callable: CallableTools {
                    tools: ToolPattern::parse_list(&config.tools),
                    coworkers: ToolPattern::parse_list(&config.coworkers),
                    depth: config.depth,
                },
                max_turns: config.max_turns.unwrap_or(MAX_TURNS),
                budget: config.budget,
            };
            Ok((Arc::new(agent), faults))
        }
        _ => Err(faults),
    }
}

#[async_trait]
impl Runner for AgentRunner {
    async fn call(&self, arguments: Arc<JsonObject>, context: ToolContext) -> ToolOutcome {
        let invoker = context
            .service::<Arc<dyn ToolInvoker>>()
            .cloned()
            .filter(|_| !self.callable.is_empty());
        if !self.callable.is_empty() && invoker.is_none() {
            return Err(ToolError::unavailable_before_start(
                "this agent has no access to other tools here",
                None,
            ));
        }
        // Refuse at once: without the tools that it depends on, the model would invent an answer.
        if invoker.is_some() && context.allowed_depth(self.callable.depth) == 0 {
            return Err(ToolError::ErrorResult(too_deep_message(context.depth())));
        }
        AgentRun::new(self, &context.for_agent(), invoker.as_deref())
            .run(&arguments)
            .await
    }

    fn traits(&self) -> RunnerTraits {
        let calls_tools = !self.callable.is_empty();
        RunnerTraits {
            takes_context_fields: true,
            calls_tools,
            may_ask: calls_tools,
            ..RunnerTraits::with_context(calls_tools)
        }
    }

    fn default_timeout(&self) -> Option<Duration> {
        self.budget
            .time
            .map(|time| time.0.saturating_add(TIMEOUT_MARGIN))
    }
}
