//! Keeps long results of tools with `paging: model`, so that a model can read further pages, even
//! if the tool's policy stores no results.

use std::sync::Arc;
use std::time::Duration;

use super::store::{PurgeMark, ResultCache};
use super::tool_cache::add_agent_to_key;
use crate::call::canonical::canonical_json;
use crate::call::json::hash_parts;
use crate::call::{Caller, Invocation, InvocationId, JsonObject, ToolName, ToolResult, may_be_cut};

/// How long a long result is kept. A model reads the next page soon or never.
const RETENTION: Duration = Duration::from_secs(3600);

/// Stores one tool's long results for their further pages only. It answers no other call.
pub struct PageCache {
    cache: ResultCache,
    tool: ToolName,
    generation: [u8; 32],
    /// Maximum length of a text that is shown whole, in characters.
    max_chars: usize,
    /// Whether the tool learns the name of the calling agent.
    sees_agent: bool,
}

/// The data of a call that [`PageCache::store_result`] needs after the call has ended.
pub struct CallSnapshot {
    id: InvocationId,
    caller: Arc<Caller>,
    agent: Option<ToolName>,
    run_id: Option<Arc<str>>,
    arguments: Arc<JsonObject>,
    context: Arc<JsonObject>,
    limit: Option<usize>,
    purges: PurgeMark,
}

impl PageCache {
    /// Makes the store of one tool. `max_chars` is the maximum length of a text that is shown
    /// whole, in characters. With `sees_agent`, the tool learns the name of the calling agent.
    pub fn new(
        cache: &ResultCache,
        tool: &ToolName,
        generation: [u8; 32],
        max_chars: usize,
        sees_agent: bool,
    ) -> Self {
        Self {
            cache: cache.clone(),
            tool: tool.clone(),
            generation,
            max_chars,
            sees_agent,
        }
    }

    /// Copies the data that [`Self::store_result`] needs, before the layers below consume the
    /// invocation.
    pub fn snapshot(&self, invocation: &Invocation) -> CallSnapshot {
        CallSnapshot {
            id: invocation.id,
            caller: invocation.caller.clone(),
            agent: invocation.call_chain.agent.clone(),
            run_id: invocation.run.id.clone(),
            arguments: invocation.input.arguments.clone(),
            context: invocation.input.context.clone(),
            limit: invocation.paging.page.and_then(|page| page.limit),
            purges: self.cache.mark_own_purges(),
        }
    }

    /// Stores a result if it may have further pages. It replaces the result of an earlier equal
    /// call.
    pub async fn store_result(&self, call: CallSnapshot, result: &Arc<ToolResult>) {
        if may_be_cut(result, call.limit, self.max_chars) {
            let agent = call.agent.as_ref();
            let key = self.cache_key(
                (&call.caller, agent),
                call.run_id.as_deref(),
                &call.arguments,
                &call.context,
            );
            self.cache
                .store(
                    key,
                    self.tool.as_str(),
                    call.id,
                    result,
                    RETENTION,
                    call.purges,
                )
                .await;
        }
    }

    /// The stored result of an equal call by the same caller in the same run, and the id of the
    /// call that produced it.
    pub async fn find_result(
        &self,
        invocation: &Invocation,
    ) -> Option<(Arc<ToolResult>, InvocationId)> {
        let key = self.cache_key(
            (&invocation.caller, invocation.call_chain.agent.as_ref()),
            invocation.run.id.as_deref(),
            &invocation.input.arguments,
            &invocation.input.context,
        );
        let hit = match self.cache.get(&key) {
            Some(hit) => Some(hit),
            None => self.cache.read_ledger(&key).await,
        };
        hit.map(|hit| (hit.result, hit.origin))
    }

    fn cache_key(
        &self,
        (caller, agent): (&Caller, Option<&ToolName>),
        run: Option<&str>,
        arguments: &JsonObject,
        context: &JsonObject,
    ) -> [u8; 32] {
        let key = hash_parts([
            b"pages".as_slice(),
            self.tool.as_str().as_bytes(),
            &self.generation,
            caller.name.as_bytes(),
            run.unwrap_or_default().as_bytes(),
            &canonical_json(arguments),
            &canonical_json(context),
        ]);
        add_agent_to_key(
            caller.credentials.extend_cache_key(key),
            agent.filter(|_| self.sees_agent),
        )
    }
}
