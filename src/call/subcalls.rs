//! Nested calls: calls that a tool makes of other tools. Each goes through its own tool's stack, for the same caller.

use std::sync::Arc;

use async_trait::async_trait;
use jiff::Timestamp;
use serde_json::Value;
use tokio::time::Instant;

use super::context::ToolContext;
use super::definition::{Definition, Kind, ToolName};
use super::error::Failure;
use super::invocation::{Invocation, InvocationId};
use super::json::JsonObject;
use super::result::{Content, ToolResult};

/// Default for the number of levels of nested calls below a client's call.
pub const LEVELS: u32 = 3;

/// The chain of nested calls that led to a call. The default is the chain of a client's own call.
#[derive(Debug, Clone, Default)]
pub struct CallChain {
    /// The call whose tool made this call.
    pub parent: Option<InvocationId>,
    /// The attempt of that call which made this call.
    pub parent_attempt: u32,
    /// The tools of the calls that led here, the outermost first.
    pub tools: Arc<[ToolName]>,
    /// The nearest agent among these tools.
    pub agent: Option<ToolName>,
    /// Levels of nested calls that are still permitted below this call. `None` for a client's own call, which has no
    /// limit yet.
    pub levels: Option<u32>,
    /// Patterns of tools that the request denies, as the request wrote them. They hold for all nested calls.
    pub deny: Arc<[String]>,
}

impl CallChain {
    /// Whether a call of this tool led to this call, directly or through other calls.
    pub fn is_below(&self, tool: &ToolName) -> bool {
        self.tools.contains(tool)
    }
}

/// A nested call that a tool wants to make.
#[derive(Debug, Clone)]
pub struct SubCall {
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
    /// Levels of nested calls that the calling tool permits below itself. The lowest number in the chain applies.
    pub levels: Option<u32>,
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
pub struct SubAnswer {
    /// The tool's result.
    pub result: Arc<ToolResult>,
    /// What a model is shown, if that differs from the result.
    pub shown: Option<Vec<Content>>,
    /// Whether the result is the final answer of the calling agent.
    pub result_as_answer: bool,
    /// Tokens that models used for the call.
    pub tokens: u64,
}

/// Why a nested call has no answer.
#[derive(Debug, Clone, PartialEq)]
pub enum NoAnswer {
    /// No tool of that name among the wanted ones, with names that were probably meant.
    Unknown(Vec<String>),
    /// The calls are nested as deep as permitted: this number of levels.
    TooDeep(u32),
    /// The call was refused or failed.
    Failed(Box<Failure>),
}

/// Selects the tools that a nested call may use.
pub type ToolFilter<'a> = dyn Fn(&Definition) -> bool + Send + Sync + 'a;

/// The other tools of the service. A tool gets them as `context.service::<Arc<dyn SubCalls>>()`.
///
/// A nested call has its own row, limits and policies. It is charged to the caller of the calling tool, which must have
/// a grant for the nested tool too. It inherits run and context, and ends when the calling call is canceled or has
/// ended. It uses no permit of its own among the calls in flight.
#[async_trait]
pub trait ToolInvoker: Send + Sync {
    /// The tools that the calling call may use now and that `wanted` selects, by name.
    fn offers(&self, asking: &ToolContext, wanted: &ToolFilter<'_>) -> Vec<AvailableTool>;

    /// How many tool calls of one model message run at the same time.
    fn parallel(&self) -> usize;

    /// The tool that `name` means, among those that `wanted` selects. Other spellings match as in any call.
    ///
    /// # Errors
    /// Names that were probably meant.
    fn resolve(&self, asking: &ToolContext, wanted: &ToolFilter<'_>, name: &str) -> Result<ToolName, Vec<String>>;

    /// Calls a tool that `wanted` selects.
    ///
    /// # Errors
    /// Why there is no answer. An error result of the tool (`is_error`) is an `Ok`.
    async fn call(&self, asking: &ToolContext, wanted: &ToolFilter<'_>, call: SubCall) -> Result<SubAnswer, NoAnswer>;
}

impl ToolContext {
    /// The number of tool calls that led to this one.
    pub fn depth(&self) -> u32 {
        u32::try_from(self.lineage.tools.len()).unwrap_or(u32::MAX)
    }

    /// The permitted levels of nested calls below this call, if its tool permits `own` levels (by default [`LEVELS`]).
    pub fn levels(&self, own: Option<u32>) -> u32 {
        match self.lineage.levels {
            None => own.unwrap_or(LEVELS),
            Some(left) => own.map_or(left, |own| own.min(left)),
        }
    }

    /// The invocation of a nested call; `None` if it would be too deep.
    pub(crate) fn below(
        &self,
        tool: ToolName,
        arguments: JsonObject,
        call: &SubCall,
        now: Timestamp,
    ) -> Option<Invocation> {
        let levels = self.levels(call.levels).checked_sub(1)?;
        let mut invocation = Invocation::new(tool, arguments, self.caller.clone(), now);
        invocation.run_id = self.run_id.clone();
        invocation.tool_use_id = call.tool_use_id.clone();
        invocation.request_id = self.request_id.clone();
        invocation.trace = self.trace.clone();
        invocation.context = self.context.clone();
        invocation.cancel = self.cancel.child_token();
        invocation.stop = invocation.cancel.child_token();
        invocation.progress = self.progress.clone();
        invocation.shorten_deadline(call.deadline.min(self.deadline));
        invocation.lineage = CallChain {
            parent: Some(self.invocation_id),
            parent_attempt: self.attempt,
            tools: self.lineage.tools.iter().chain([&self.tool]).cloned().collect(),
            agent: self.lineage.agent.clone(),
            levels: Some(levels),
            deny: self.lineage.deny.clone(),
        };
        Some(invocation)
    }

    /// The agent that made this call, or the nearest one in the chain.
    pub fn agent(&self) -> Option<&ToolName> {
        self.lineage.agent.as_ref()
    }

    /// The context of an agent. Its nested calls belong to the agent.
    #[must_use]
    pub(crate) fn of_agent(mut self) -> Self {
        self.lineage.agent = Some(self.tool.clone());
        self
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::Caller;
    use super::*;

    fn context(invocation: &Invocation, time: u64) -> ToolContext {
        ToolContext::new(invocation, Instant::now() + Duration::from_secs(time), Arc::default())
    }

    fn ask(levels: Option<u32>, time: u64) -> SubCall {
        SubCall {
            name: "b".into(),
            arguments: Value::Null,
            cut_off: false,
            tool_use_id: None,
            deadline: Instant::now() + Duration::from_secs(time),
            levels,
        }
    }

    fn outermost() -> Invocation {
        let caller = Arc::new(Caller { name: "ann".into(), admin: false });
        let tool = ToolName::parse("a").unwrap();
        let mut invocation = Invocation::new(tool, JsonObject::new(), caller, Timestamp::UNIX_EPOCH);
        invocation.run_id = Some("r".into());
        invocation.lineage.deny = vec!["x_*".to_owned()].into();
        invocation
    }

    fn below(context: &ToolContext, ask: &SubCall) -> Option<Invocation> {
        context.below(ToolName::parse("b").unwrap(), JsonObject::new(), ask, Timestamp::UNIX_EPOCH)
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_below_inherits_what_bounds_the_one_above() {
        let above = outermost();
        let context = context(&above, 10);
        let call = below(&context, &ask(None, 60)).unwrap();
        assert_eq!((&call.caller, &call.run_id), (&above.caller, &above.run_id));
        assert_eq!(call.deadline, Some(context.deadline), "never later than the one above");
        assert_eq!(below(&context, &ask(None, 2)).unwrap().deadline, Some(Instant::now() + Duration::from_secs(2)));
        assert_eq!((call.lineage.parent, &*call.lineage.deny), (Some(above.id), &["x_*".to_owned()][..]));
        assert!(call.lineage.is_below(&above.tool) && !call.lineage.is_below(&call.tool));
        above.cancel.cancel();
        assert!(call.cancel.is_cancelled());
        let other = outermost();
        below(&self::context(&other, 10), &ask(None, 10)).unwrap().cancel.cancel();
        assert!(!other.cancel.is_cancelled(), "what ends below leaves the one above alone");
    }

    #[tokio::test(start_paused = true)]
    async fn levels_are_counted_down_and_the_least_bound_holds() {
        let depth = |mut invocation: Invocation, own: Option<u32>| {
            let mut depth = 0;
            while let Some(next) = below(&context(&invocation, 10), &ask(own, 10)) {
                (invocation, depth) = (next, depth + 1);
            }
            depth
        };
        assert_eq!(depth(outermost(), None), LEVELS);
        assert_eq!(depth(outermost(), Some(5)), 5);
        assert_eq!(depth(outermost(), Some(1)), 1);
        let mut second = outermost();
        second.lineage.levels = Some(2);
        assert_eq!(depth(second.clone(), Some(8)), 2, "nobody below allows more than those above");
        assert_eq!(depth(second, Some(1)), 1);
    }
}
