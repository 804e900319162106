//! Calls that a tool makes of other tools: each goes through its own tool's stack, for the same caller.

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

/// Levels of calls below the one that somebody asked for, unless its tool says otherwise.
pub const LEVELS: u32 = 3;

/// Where a call stands among those that tools make of each other. The default: nobody's tool made it.
#[derive(Debug, Clone, Default)]
pub struct Lineage {
    /// The call whose tool made this one.
    pub parent: Option<InvocationId>,
    /// Which try of that call it was.
    pub parent_attempt: u32,
    /// The tools whose calls led here, the outermost first.
    pub tools: Arc<[ToolName]>,
    /// The nearest agent among them.
    pub agent: Option<ToolName>,
    /// Levels of calls that may still be below this one; nobody has said while nobody's tool made it.
    pub levels: Option<u32>,
    /// Names of tools that the request denies, as they were written; all calls below keep to them.
    pub deny: Arc<[String]>,
}

impl Lineage {
    /// Whether it was made by a call of this tool, or by one that such a call led to.
    pub fn is_below(&self, tool: &ToolName) -> bool {
        self.tools.contains(tool)
    }
}

/// One call that a tool wants to make.
#[derive(Debug, Clone)]
pub struct SubCall {
    /// The tool, as whoever asks for it wrote the name.
    pub name: String,
    /// An object, or the text of one as models write it.
    pub arguments: Value,
    /// The model was cut off while it wrote them.
    pub cut_off: bool,
    /// The model's id for the call.
    pub tool_use_id: Option<Arc<str>>,
    /// When it must be over; never later than the asking call.
    pub deadline: Instant,
    /// Levels of calls that the asking tool allows below itself. Of those above it the least holds.
    pub levels: Option<u32>,
}

/// A tool as it can be offered to a model.
#[derive(Debug, Clone)]
pub struct Offered {
    /// What it says of itself.
    pub definition: Definition,
    /// How it runs.
    pub kind: Kind,
    /// As OpenAI Chat Completions takes it in `tools`, under a name that leads back to it.
    pub openai: Value,
}

/// What came of a call that was made.
#[derive(Debug, Clone)]
pub struct SubAnswer {
    /// What the tool said.
    pub result: Arc<ToolResult>,
    /// What a model is shown, when it is told of more than the tool said.
    pub shown: Option<Vec<Content>>,
    /// The result is the final answer of whoever asked.
    pub result_as_answer: bool,
    /// Tokens that models used for it.
    pub tokens: u64,
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq)]
pub enum NoAnswer {
    /// No tool of that name among those that are meant; names that were probably meant.
    Unknown(Vec<String>),
    /// Calls are nested as deep as they may be: this many levels.
    TooDeep(u32),
    /// Refused or failed.
    Failed(Box<Failure>),
}

/// Which tools are meant.
pub type Wanted<'a> = dyn Fn(&Definition) -> bool + Send + Sync + 'a;

/// The other tools of the service. A tool finds them as `context.service::<Arc<dyn SubCalls>>()`.
///
/// A call made here has its own row, limits and policies. It is charged to whoever called the asking tool, who must be
/// allowed to use the other one too; it has that call's run and context, ends when that call is cancelled or over, and takes
/// no place beside it among the calls in flight.
#[async_trait]
pub trait SubCalls: Send + Sync {
    /// The tools that the asking call may use now and that `wanted` holds of, by name.
    fn offers(&self, asking: &ToolContext, wanted: &Wanted<'_>) -> Vec<Offered>;

    /// How many calls of one message of a model run side by side.
    fn parallel(&self) -> usize;

    /// The tool that `name` means, of those that `wanted` holds of: as in any call, other spellings too.
    ///
    /// # Errors
    /// Names that were probably meant.
    fn resolve(&self, asking: &ToolContext, wanted: &Wanted<'_>, name: &str) -> Result<ToolName, Vec<String>>;

    /// Makes a call, of a tool that `wanted` holds of.
    ///
    /// # Errors
    /// Why there is no answer. A tool that says no is an answer.
    async fn call(&self, asking: &ToolContext, wanted: &Wanted<'_>, call: SubCall) -> Result<SubAnswer, NoAnswer>;
}

impl ToolContext {
    /// How many calls of tools led to this one.
    pub fn depth(&self) -> u32 {
        u32::try_from(self.lineage.tools.len()).unwrap_or(u32::MAX)
    }

    /// Levels of calls that this call's tool may have below itself, if it allows so many (by default [`LEVELS`]).
    pub fn levels(&self, own: Option<u32>) -> u32 {
        match self.lineage.levels {
            None => own.unwrap_or(LEVELS),
            Some(left) => own.map_or(left, |own| own.min(left)),
        }
    }

    /// The call, as it begins; `None` when it would be too deep.
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
        invocation.lineage = Lineage {
            parent: Some(self.invocation_id),
            parent_attempt: self.attempt,
            tools: self.lineage.tools.iter().chain([&self.tool]).cloned().collect(),
            agent: self.lineage.agent.clone(),
            levels: Some(levels),
            deny: self.lineage.deny.clone(),
        };
        Some(invocation)
    }

    /// The agent that made this call, or the nearest one above it.
    pub fn agent(&self) -> Option<&ToolName> {
        self.lineage.agent.as_ref()
    }

    /// The same for an agent: the calls below are its own.
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
