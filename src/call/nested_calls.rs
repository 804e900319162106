//! Nested calls: calls that a tool makes of other tools. Each goes through its own tool's stack,
//! for the same caller.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;
use tokio::time::Instant;
use toolcrib_dialect::Content;

use super::call_chain::CallChain;
use super::context::ToolContext;
use super::definition::{Definition, Kind, ToolName};
use super::error::Failure;
use super::invocation::{CallSignals, Invocation};
use super::result::ToolResult;
use super::selection::Selection;

/// Default for the number of levels of nested calls below a client's call.
pub const DEFAULT_MAX_DEPTH: u32 = 3;

/// A nested call that a tool wants to make.
#[derive(Debug, Clone)]
pub struct NestedCall {
    /// The tool's name, as the calling tool or its model wrote it.
    pub name: String,
    /// The arguments: an object, or its JSON text as models write it.
    pub arguments: Value,
    /// Whether the model's output was cut off within the arguments.
    pub cut_off: bool,
    /// The model's id for the call.
    pub tool_use_id: Option<Arc<str>>,
    /// When the call must have ended. It never ends later than the calling call.
    pub deadline: Instant,
    /// Levels of nested calls that the calling tool permits below itself. The lowest number in the
    /// chain applies.
    pub max_depth: Option<u32>,
    /// The position among the calls of a script. Such a call gets whole results. If it has an effect, it has
    /// a key, so that a repeated script does not repeat it.
    pub script_position: Option<u32>,
}

/// A tool in the form in which it can be offered to a model.
#[derive(Debug, Clone)]
pub struct AvailableTool {
    /// The tool's definition.
    pub definition: Definition,
    /// The way in which the tool runs.
    pub kind: Kind,
    /// The tool as OpenAI Chat Completions takes it in `tools`, under a name that leads back to it.
    pub openai: Value,
}

/// The answer of a nested call.
#[derive(Debug, Clone)]
pub struct NestedAnswer {
    /// The tool's result.
    pub result: Arc<ToolResult>,
    /// What a model is shown, if that differs from the result.
    pub shown: Option<Vec<Content>>,
    /// Whether the result is the final answer of the calling agent.
    pub result_as_answer: bool,
    /// Tokens that models used for the call.
    pub tokens: u64,
    /// Whether the call waits for a person, and the result only says so.
    pub waiting: bool,
}

/// Why a nested call has no answer.
#[derive(Debug, Clone, PartialEq)]
pub enum NestedCallError {
    /// No tool of that name among the wanted ones, with names that were probably meant.
    UnknownTool(Vec<String>),
    /// The calls are nested as deep as permitted: this number of levels.
    TooDeep(u32),
    /// The call was refused or failed.
    Failed(Box<Failure>),
}

/// Selects the tools that a nested call may use.
pub type ToolFilter<'a> = dyn Fn(&Definition) -> bool + Send + Sync + 'a;

/// The other tools of the service. A tool gets them as `context.service::<Arc<dyn ToolInvoker>>()`.
///
/// A nested call has its own row, limits and policies. It is charged to the caller of the calling
/// tool, which must have a grant for the nested tool too. It inherits run and context, and ends
/// when the calling call is cancelled or has ended. It uses no permit of its own among the calls in
/// flight.
#[async_trait]
pub trait ToolInvoker: Send + Sync {
    /// The tools that the calling call may use now and that `filter` selects, by name.
    fn available_tools(&self, parent: &ToolContext, filter: &ToolFilter<'_>) -> Vec<AvailableTool>;

    /// How many tool calls of one model message run at the same time.
    fn max_parallel_calls(&self) -> usize;

    /// The tool that `name` means, among those that `filter` selects. Other spellings match as in
    /// any call.
    ///
    /// # Errors
    /// Names that were probably meant.
    fn resolve(
        &self,
        parent: &ToolContext,
        filter: &ToolFilter<'_>,
        name: &str,
    ) -> Result<ToolName, Vec<String>>;

    /// The tools that match a query, the best first, as a list with names, descriptions and schemas.
    /// It has at most `limit` of the tools that the calling call may use now.
    fn find_tools(&self, parent: &ToolContext, query: &str, limit: usize) -> Value;

    /// Calls a tool that `filter` selects.
    ///
    /// # Errors
    /// Why there is no answer. An error result of the tool (`is_error`) is an `Ok`.
    async fn call(
        &self,
        parent: &ToolContext,
        filter: &ToolFilter<'_>,
        call: NestedCall,
    ) -> Result<NestedAnswer, NestedCallError>;
}

impl ToolContext {
    /// The number of tool calls that led to this one.
    pub fn depth(&self) -> u32 {
        u32::try_from(self.call_chain.tools.len()).unwrap_or(u32::MAX)
    }

    /// The permitted levels of nested calls below this call, if its tool permits `tool_depth`
    /// levels (by default [`DEFAULT_MAX_DEPTH`]).
    pub fn allowed_depth(&self, tool_depth: Option<u32>) -> u32 {
        match self.call_chain.remaining_depth {
            None => tool_depth.unwrap_or(DEFAULT_MAX_DEPTH),
            Some(remaining) => tool_depth.map_or(remaining, |tool_depth| tool_depth.min(remaining)),
        }
    }

    /// Makes a call one that this call's tool makes; `None` if it would be too deep.
    pub(crate) fn adopt_call(
        &self,
        mut invocation: Box<Invocation>,
        call: &NestedCall,
    ) -> Option<Box<Invocation>> {
        let levels = self.allowed_depth(call.max_depth).checked_sub(1)?;
        invocation.run.id = self.run_id.clone();
        invocation.correlation.tool_use_id = call.tool_use_id.clone();
        invocation.correlation.request_id = self.request_id.clone();
        invocation.correlation.trace = self.trace.clone();
        invocation.input.context = self.context.clone();
        invocation.signals = Arc::new(CallSignals::new(self.signals.call_cancelled.child_token()));
        invocation.delivery.progress = self.progress.clone();
        invocation.delivery.questions = self.questions.clone();
        invocation
            .timing
            .shorten_deadline(call.deadline.min(self.deadline));
        invocation.call_chain = CallChain {
            parent: Some(self.invocation_id),
            parent_attempt: self.attempt,
            tools: self
                .call_chain
                .tools
                .iter()
                .chain([&self.tool])
                .cloned()
                .collect(),
            agent: self.call_chain.agent.clone(),
            remaining_depth: Some(levels),
            deny: self.call_chain.deny.clone(),
            // The author of a tool chooses the tools that it calls.
            selection: Selection::default(),
            denied: false,
            from_script: call.script_position.is_some(),
        };
        Some(invocation)
    }

    /// The tools that this call may find, if it searches tools.
    pub(crate) fn selection(&self) -> &Selection {
        &self.call_chain.selection
    }

    /// The agent that made this call, or the nearest one in the chain.
    pub fn agent(&self) -> Option<&ToolName> {
        self.call_chain.agent.as_ref()
    }

    /// The context of an agent. Its nested calls belong to the agent.
    #[must_use]
    pub(crate) fn for_agent(mut self) -> Self {
        self.call_chain.agent = Some(self.tool.clone());
        self
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use jiff::Timestamp;

    use super::super::{Caller, JsonObject};
    use super::*;

    fn context(invocation: &Invocation, time: u64) -> ToolContext {
        ToolContext::new(
            invocation,
            Instant::now() + Duration::from_secs(time),
            Arc::default(),
        )
    }

    fn nested_call(levels: Option<u32>, time: u64) -> NestedCall {
        NestedCall {
            name: "b".into(),
            arguments: Value::Null,
            cut_off: false,
            tool_use_id: None,
            deadline: Instant::now() + Duration::from_secs(time),
            max_depth: levels,
            script_position: None,
        }
    }

    fn outermost_invocation() -> Invocation {
        let caller = Arc::new(Caller::new("ann", false));
        let tool = ToolName::parse("a").unwrap();
        let mut invocation =
            Invocation::new(tool, JsonObject::new(), caller, Timestamp::UNIX_EPOCH);
        invocation.run.id = Some("r".into());
        invocation.call_chain.deny = vec!["x_*".to_owned()].into();
        invocation
    }

    fn child_invocation(
        context: &ToolContext,
        nested_call: &NestedCall,
    ) -> Option<Box<Invocation>> {
        let (tool, caller) = (ToolName::parse("b").unwrap(), context.caller.clone());
        let invocation = Invocation::new(tool, JsonObject::new(), caller, Timestamp::UNIX_EPOCH);
        context.adopt_call(Box::new(invocation), nested_call)
    }

    #[tokio::test(start_paused = true)]
    async fn nested_call_inherits_its_parents_bounds() {
        let outer = outermost_invocation();
        let context = context(&outer, 10);
        let call = child_invocation(&context, &nested_call(None, 60)).unwrap();
        assert_eq!((&call.caller, &call.run.id), (&outer.caller, &outer.run.id));
        assert_eq!(
            call.timing.deadline,
            Some(context.deadline),
            "never later than the parent"
        );
        assert_eq!(
            child_invocation(&context, &nested_call(None, 2))
                .unwrap()
                .timing
                .deadline,
            Some(Instant::now() + Duration::from_secs(2))
        );
        assert_eq!(
            (call.call_chain.parent, &*call.call_chain.deny),
            (Some(outer.id), &["x_*".to_owned()][..])
        );
        assert!(
            call.call_chain.includes_tool(&outer.tool)
                && !call.call_chain.includes_tool(&call.tool)
        );
        outer.signals.call_cancelled.cancel();
        assert!(call.signals.call_cancelled.is_cancelled());
        let other = outermost_invocation();
        child_invocation(&self::context(&other, 10), &nested_call(None, 10))
            .unwrap()
            .signals
            .call_cancelled
            .cancel();
        assert!(
            !other.signals.call_cancelled.is_cancelled(),
            "a nested call does not cancel its parent"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn depth_counts_down_from_the_lowest_bound() {
        let depth = |invocation: Invocation, tool_depth: Option<u32>| {
            let (mut invocation, mut depth) = (Box::new(invocation), 0);
            while let Some(next) =
                child_invocation(&context(&invocation, 10), &nested_call(tool_depth, 10))
            {
                (invocation, depth) = (next, depth + 1);
            }
            depth
        };
        assert_eq!(depth(outermost_invocation(), None), DEFAULT_MAX_DEPTH);
        assert_eq!(depth(outermost_invocation(), Some(5)), 5);
        assert_eq!(depth(outermost_invocation(), Some(1)), 1);
        let mut second = outermost_invocation();
        second.call_chain.remaining_depth = Some(2);
        assert_eq!(
            depth(second.clone(), Some(8)),
            2,
            "a nested tool cannot raise the bound"
        );
        assert_eq!(depth(second, Some(1)), 1);
    }
}
