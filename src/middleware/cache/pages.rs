//! Long results of a tool whose pages a model asks for, whether or not its policy caches them.

use std::sync::Arc;
use std::time::Duration;

use super::shelf::apart_by_agent;
use super::store::ResultCache;
use crate::call::canonical::canonical;
use crate::call::json::digest;
use crate::call::{Caller, Invocation, InvocationId, JsonObject, ToolName, ToolResult, may_be_cut};

/// A model reads on soon, or not at all.
const KEPT: Duration = Duration::from_secs(3600);

/// Where one tool's long results are, for their further pages only: no other call is answered from here.
pub struct PageShelf {
    cache: ResultCache,
    tool: ToolName,
    generation: [u8; 32],
    /// Characters of a text that are shown whole.
    longest: usize,
    /// The tool is told which agent calls.
    sees_agent: bool,
}

/// A call whose result may be long.
pub struct Begun {
    id: InvocationId,
    caller: Arc<Caller>,
    agent: Option<ToolName>,
    run_id: Option<Arc<str>>,
    arguments: Arc<JsonObject>,
    context: Arc<JsonObject>,
    limit: Option<usize>,
    purges: u64,
}

impl PageShelf {
    /// The shelf of one tool. `longest`: characters of a text that are shown whole; `sees_agent`: the tool is told which agent calls.
    pub fn new(cache: &ResultCache, tool: &ToolName, generation: [u8; 32], longest: usize, sees_agent: bool) -> Self {
        Self { cache: cache.clone(), tool: tool.clone(), generation, longest, sees_agent }
    }

    /// What is to be known of a call when it has ended.
    pub fn begin(&self, invocation: &Invocation) -> Begun {
        Begun {
            id: invocation.id,
            caller: invocation.caller.clone(),
            agent: invocation.lineage.agent.clone(),
            run_id: invocation.run_id.clone(),
            arguments: invocation.arguments.clone(),
            context: invocation.context.clone(),
            limit: invocation.page.and_then(|page| page.limit),
            purges: self.cache.purges(),
        }
    }

    /// Keeps a result of which there may be further pages. A later one of an equal call takes its place.
    pub async fn keep(&self, call: Begun, result: &Arc<ToolResult>) {
        if may_be_cut(result, call.limit, self.longest) {
            let agent = call.agent.as_ref();
            let key = self.key((&call.caller, agent), call.run_id.as_deref(), &call.arguments, &call.context);
            self.cache.store(key, self.tool.as_str(), call.id, result, KEPT, call.purges).await;
        }
    }

    /// The result of the same call by the same caller in the same run, and that call.
    pub async fn find(&self, invocation: &Invocation) -> Option<(Arc<ToolResult>, InvocationId)> {
        let Invocation { caller, run_id, arguments, context, lineage, .. } = invocation;
        let key = self.key((caller, lineage.agent.as_ref()), run_id.as_deref(), arguments, context);
        let hit = match self.cache.get(&key) {
            Some(hit) => Some(hit),
            None => self.cache.read_through(&key).await,
        };
        hit.map(|hit| (hit.result, hit.origin))
    }

    fn key(
        &self,
        (caller, agent): (&Caller, Option<&ToolName>),
        run: Option<&str>,
        arguments: &JsonObject,
        context: &JsonObject,
    ) -> [u8; 32] {
        let key = digest([
            b"pages".as_slice(),
            self.tool.as_str().as_bytes(),
            &self.generation,
            caller.name.as_bytes(),
            run.unwrap_or_default().as_bytes(),
            &canonical(arguments),
            &canonical(context),
        ]);
        apart_by_agent(key, agent.filter(|_| self.sees_agent))
    }
}
