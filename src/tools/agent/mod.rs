//! The `agent` kind: a model with a prompt and tools of its own, as a tool.
//!
//! `config` is what the manifest says, `builder` how an embedding program says it. For each call `run` asks the model, turn by turn, through its `endpoint`, which reads
//! whole answers (`completion`) and streams (`stream`); `turn` runs the calls of an answer through the other tools' own stacks, and `coworkers` hands work on.

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
use crate::call::{JsonObject, SubCalls, ToolContext, ToolError, ToolResult};
use crate::tool_pattern::ToolPattern;

/// Turns of an agent that does not say otherwise.
const MAX_TURNS: u32 = 8;
/// Stands for a key in what a server says.
const HIDDEN: &str = "[redacted]";
/// What a call may take beyond its `budget.time`, so that the budget ends it and not the clock.
const MARGIN: Duration = Duration::from_secs(5);

/// One agent.
struct Agent {
    endpoint: Endpoint,
    prompt: Prompt,
    tools: Vec<ToolPattern>,
    coworkers: Vec<ToolPattern>,
    max_turns: u32,
    depth: Option<u32>,
    budget: Budget,
}

/// The parameters of an agent that declares none.
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
/// What keeps it from being built.
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
    /// Whether it calls anything beside its model, which is handed the caller's context then.
    fn calls_others(&self) -> bool {
        !self.tools.is_empty() || !self.coworkers.is_empty()
    }
}

#[async_trait]
impl Runner for Agent {
    async fn call(&self, arguments: Arc<JsonObject>, context: ToolContext) -> Result<ToolResult, ToolError> {
        let others = context.service::<Arc<dyn SubCalls>>().cloned().filter(|_| self.calls_others());
        if self.calls_others() && others.is_none() {
            return Err(ToolError::unavailable_before("this agent has no access to other tools here", None));
        }
        // Without the tools that it is built on it would only make something up.
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
