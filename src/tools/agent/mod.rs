//! The `agent` kind: a model with a prompt and tools of its own, as a tool.
//!
//! - `config`, `builder`: what the manifest or the embedding program declares
//! - `run`, `turn`, `coworkers`: the loop of one call, the calls of one answer, work for other agents
//! - `endpoint`, `completion`, `stream`, `prompt`: requests to the model, and its answers

pub(crate) mod builder;
mod completion;
mod config;
pub(crate) mod coworkers;
mod endpoint;
mod prompt;
mod run;
mod stream;
mod turn;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

pub use config::{Budget, Config, ModelConfig};

use self::endpoint::Endpoint;
use self::prompt::Prompt;
use self::run::Run;
use super::kinds::Built;
use super::{BuildContext, Runner, Tool};
use crate::call::{JsonObject, ToolContext, ToolError, ToolInvoker, ToolResult};
use crate::tool_pattern::ToolPattern;

/// Default for `max_turns`.
const MAX_TURNS: u32 = 8;
/// Replaces a key in texts of the model's server.
const HIDDEN: &str = "[redacted]";
/// Added to `budget.time` for the tool's timeout, so that the budget ends the call before the timeout does.
const MARGIN: Duration = Duration::from_secs(5);

struct Agent {
    endpoint: Endpoint,
    prompt: Prompt,
    tools: Vec<ToolPattern>,
    coworkers: Vec<ToolPattern>,
    max_turns: u32,
    depth: Option<u32>,
    budget: Budget,
}

/// The parameters of an agent that declares no parameters.
pub(super) fn parameters(tool: Tool<()>) -> Tool<()> {
    tool.param("task", "string", "What to do, in full: the agent knows nothing else of the conversation.").param_opt(
        "context",
        "string",
        "What the agent has to know for it",
    )
}

/// Builds the runner.
///
/// # Errors
/// Faults of the configuration.
pub fn build(config: Config, context: &BuildContext<'_>) -> Built {
    let mut faults = config.faults();
    let Config { model, system, prompt, tools, coworkers, max_turns, depth, budget, output_schema } = config;
    let prompt = Prompt::build(system, prompt, output_schema, context, &mut faults);
    let endpoint = Endpoint::build(model, context, &mut faults);
    match (endpoint, prompt) {
        (Some(endpoint), Some(prompt)) if faults.iter().all(|fault| fault.warning) => {
            let agent = Agent {
                endpoint,
                prompt,
                tools: ToolPattern::list(&tools),
                coworkers: ToolPattern::list(&coworkers),
                max_turns: max_turns.unwrap_or(MAX_TURNS),
                depth,
                budget,
            };
            Ok((Arc::new(agent), faults))
        }
        _ => Err(faults),
    }
}

impl Agent {
    /// Whether it calls anything beside its model. Only then it gets the caller's context.
    fn calls_others(&self) -> bool {
        !self.tools.is_empty() || !self.coworkers.is_empty()
    }
}

#[async_trait]
impl Runner for Agent {
    async fn call(&self, arguments: Arc<JsonObject>, context: ToolContext) -> Result<ToolResult, ToolError> {
        let others = context.service::<Arc<dyn ToolInvoker>>().cloned().filter(|_| self.calls_others());
        if self.calls_others() && others.is_none() {
            return Err(ToolError::unavailable_before("this agent has no access to other tools here", None));
        }
        // Refuse at once: without the tools that it depends on, the model would invent an answer.
        if others.is_some() && context.levels(self.depth) == 0 {
            return Err(ToolError::Said(turn::too_deep(context.depth())));
        }
        Run::new(self, &context.of_agent(), others.as_deref()).go(&arguments).await
    }

    fn takes_context(&self) -> bool {
        self.calls_others()
    }

    fn takes_fields(&self) -> bool {
        true
    }

    fn calls_tools(&self) -> bool {
        self.calls_others()
    }

    fn own_timeout(&self) -> Option<Duration> {
        self.budget.time.map(|time| time.0.saturating_add(MARGIN))
    }
}
