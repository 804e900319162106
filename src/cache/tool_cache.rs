//! Stores and finds the results of one tool.

use std::sync::Arc;
use std::time::Duration;

use super::store::{Hit, ResultCache};
use crate::call::canonical::canonical_json;
use crate::call::{
    CachePolicy, CacheScope, Caller, Effect, InvocationId, JsonObject, Policy, ToolName,
    ToolResult, json,
};
use crate::kinds::Runner;

/// The stored results of one tool, and the keys under which they are stored.
pub struct ToolCache {
    pub(super) cache: ResultCache,
    policy: CachePolicy,
    pub(super) tool: ToolName,
    generation: [u8; 32],
    calls_tools: bool,
    sees_agent: bool,
}

impl ToolCache {
    /// Makes the cache of one tool. It is `None` if the tool has no cache policy, is not `read`, or
    /// has a runner that forbids storing. It is also `None` if results may depend on the context,
    /// but `cache.context` does not name its fields.
    pub fn for_tool(
        cache: &ResultCache,
        policy: &Policy,
        runner: &dyn Runner,
        tool: &ToolName,
        generation: [u8; 32],
    ) -> Option<Arc<Self>> {
        let cache_policy = policy
            .cache
            .clone()
            .filter(|_| policy.effect == Effect::Read && runner.traits().is_cacheable)?;
        let complete = cache_policy.context.is_some() || !runner.traits().takes_context;
        // Results that another predicate admitted get another key. So do results that must stay in
        // memory, so that they never mix with results in the ledger.
        let generation = match &policy.cache_when {
            None if !cache.is_memory_only() => generation,
            when => {
                let text = when
                    .as_ref()
                    .map_or("", |when| when.text().unwrap_or("a function"));
                json::hash_parts([
                    &generation,
                    text.as_bytes(),
                    &[cache.is_memory_only().into()],
                ])
            }
        };
        let (cache, tool) = (cache.clone(), tool.clone());
        let (calls_tools, sees_agent) = (runner.traits().calls_tools, runner.traits().sees_agent);
        complete.then(|| {
            Arc::new(Self {
                cache,
                policy: cache_policy,
                tool,
                generation,
                calls_tools,
                sees_agent,
            })
        })
    }

    /// The key of a call. Two calls are equal if these parts are equal:
    /// - tool and generation,
    /// - canonical arguments, as the tool gets them, with defaults filled in,
    /// - the caller with its credentials, unless the scope is `shared`,
    /// - the fields of the context that `cache.context` names,
    /// - the calling agent, if the tool learns its name.
    pub(super) fn cache_key(
        &self,
        caller: &Caller,
        agent: Option<&ToolName>,
        arguments: &JsonObject,
        context: &JsonObject,
    ) -> [u8; 32] {
        let scope_key = match self.policy.scope {
            CacheScope::Caller => caller.name.as_bytes(),
            CacheScope::Shared => b"",
        };
        let fields = self.policy.context.iter().flatten();
        let context: JsonObject = fields
            .filter_map(|field| {
                context
                    .get(field)
                    .map(|value| (field.clone(), value.clone()))
            })
            .collect();
        let key = json::hash_parts([
            self.tool.as_str().as_bytes(),
            &self.generation,
            &canonical_json(arguments),
            &[self.policy.scope as u8],
            scope_key,
            &canonical_json(&context),
        ]);
        let key = match self.policy.scope {
            CacheScope::Caller => caller.credentials.extend_cache_key(key),
            CacheScope::Shared => key,
        };
        add_agent_to_key(key, agent.filter(|_| self.sees_agent))
    }

    /// The stored result for these arguments, without a call.
    pub async fn find_result(
        &self,
        caller: &Caller,
        agent: Option<&ToolName>,
        arguments: &JsonObject,
        context: &JsonObject,
    ) -> Option<Arc<ToolResult>> {
        self.look_up(&self.cache_key(caller, agent, arguments, context), None)
            .await
            .map(|hit| hit.result)
    }

    /// Looks in memory, then in Redis, which has results of other services, then in the ledger, which
    /// may hold results from before a restart. `reader` is the call that looks.
    pub(super) async fn look_up(
        &self,
        key: &[u8; 32],
        reader: Option<InvocationId>,
    ) -> Option<Hit> {
        match self.cache.get(key) {
            Some(hit) => Some(hit),
            None => {
                let tool = self.tool.as_str();
                self.cache.read_through(key, tool, reader).await
            }
        }
    }

    /// Whether results stay in memory only, because they must not be recorded.
    pub fn is_memory_only(&self) -> bool {
        self.cache.is_memory_only()
    }

    /// Whether the tool calls other tools. Then its result depends on the tools that the call may
    /// use.
    pub(super) fn calls_tools(&self) -> bool {
        self.calls_tools
    }

    /// Whether all callers share the results.
    pub(super) fn is_shared(&self) -> bool {
        self.policy.scope == CacheScope::Shared
    }

    /// How long a result is stored.
    pub(super) fn ttl(&self) -> Duration {
        self.policy.ttl
    }
}

/// Adds the calling agent to a key. Without an agent the key stays the same, so that older
/// versions' stored results are still found.
pub(super) fn add_agent_to_key(key: [u8; 32], agent: Option<&ToolName>) -> [u8; 32] {
    agent.map_or(key, |agent| {
        json::hash_parts([key.as_slice(), b"agent", agent.as_str().as_bytes()])
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use async_trait::async_trait;
    use jiff::Timestamp;

    use super::*;
    use crate::call::{CachePolicy, CacheWhen, Clock, ToolContext, ToolError};
    use crate::ledger::memory::MemoryLedger;

    struct Idle;

    #[async_trait]
    impl Runner for Idle {
        async fn call(&self, _: Arc<JsonObject>, _: ToolContext) -> Result<ToolResult, ToolError> {
            Ok(ToolResult::text("yes"))
        }
    }

    #[test]
    fn generation_separates_private_and_conditional_results() {
        let clock = Clock::manual(Timestamp::UNIX_EPOCH).0;
        let cache = ResultCache::new(1 << 20, Arc::new(MemoryLedger::default()), None, clock);
        let cache_policy = CachePolicy {
            ttl: Duration::from_secs(1),
            scope: CacheScope::Caller,
            context: None,
        };
        let plain = Policy {
            effect: Effect::Read,
            cache: Some(cache_policy),
            ..Policy::default()
        };
        let when = Policy {
            cache_when: Some(CacheWhen::from_expression("x", |_, _| Ok(true))),
            ..plain.clone()
        };
        let tool = ToolName::parse("t").unwrap();
        let generation = |cache: &ResultCache, policy: &Policy| {
            ToolCache::for_tool(cache, policy, &Idle, &tool, [7; 32])
                .map(|tool_cache| (tool_cache.generation, tool_cache.calls_tools()))
        };
        let (stored, private) = (
            generation(&cache, &plain).unwrap(),
            generation(&cache.memory_only(), &plain).unwrap(),
        );
        assert_eq!(
            stored,
            ([7; 32], false),
            "results in the ledger are found again"
        );
        let (when, private_when) = (
            generation(&cache, &when).unwrap(),
            generation(&cache.memory_only(), &when).unwrap(),
        );
        let all = [stored.0, private.0, when.0, private_when.0];
        assert_eq!(
            all.iter().collect::<std::collections::HashSet<_>>().len(),
            4
        );
        assert!(
            generation(
                &cache,
                &Policy {
                    effect: Effect::Write,
                    ..plain
                }
            )
            .is_none()
        );
    }
}
