//! Looks up stored results for tools. The rules of a real call apply: the current catalog, the
//! caller's grants, the tool's own schema and cache key.

use std::sync::{Arc, Weak};

use arc_swap::ArcSwap;
use async_trait::async_trait;

use crate::access::deny_list::DenyList;
use crate::call::{
    CallError, Capture, JsonObject, StoredResultError, StoredResults, ToolContext, ToolResult,
};
use crate::catalog::Catalog;

/// Looks where calls through the current catalog look. The reference is weak, because tools hold
/// this value and the catalog holds tools.
pub(crate) struct CachedResults(pub(crate) Weak<ArcSwap<Catalog>>);

#[async_trait]
impl StoredResults for CachedResults {
    async fn find_result(
        &self,
        context: &ToolContext,
        tool: &str,
        arguments: &JsonObject,
    ) -> Result<Arc<ToolResult>, StoredResultError> {
        let catalog = self
            .0
            .upgrade()
            .ok_or(StoredResultError::NotFound)?
            .load_full();
        let caller = &*context.caller;
        // A tool that the caller may not use is unknown, as in the list of tools.
        let found = catalog
            .resolve(tool, caller)
            .ok()
            .map(|(entry, _)| entry)
            .filter(|entry| entry.allows(caller));
        let Some(entry) = found else {
            return Err(StoredResultError::UnknownTool(
                catalog.did_you_mean(tool, caller),
            ));
        };
        if DenyList::from_context(context).denies(entry.names()) {
            return Err(StoredResultError::Denied);
        }
        if !entry.is_enabled() {
            return Err(StoredResultError::ToolDisabled);
        }
        let tool_cache = entry
            .tool_cache
            .as_ref()
            .ok_or(StoredResultError::NotCacheable)?;
        let calling_tool = catalog.get(context.tool.as_str());
        let records_digests = calling_tool
            .is_some_and(|calling_tool| calling_tool.policy.capture == Some(Capture::Digest));
        if !entry.rules.runner.caller_credentials().is_empty() {
            context.note_caller_credentials();
        }
        if tool_cache.is_memory_only() && !records_digests {
            return Err(StoredResultError::NotRecordable);
        }
        let fitting = match entry
            .rules
            .fit_model_arguments(arguments.clone(), &context.context, Some(context.deadline))
            .await
        {
            Ok(fitting) => fitting,
            Err(CallError::InvalidArguments(violations)) => {
                return Err(StoredResultError::InvalidArguments(violations));
            }
            Err(_) => return Err(StoredResultError::NotFound),
        };
        tool_cache
            .find_result(
                caller,
                context.agent(),
                &fitting.arguments,
                &context.context,
            )
            .await
            .ok_or(StoredResultError::NotFound)
    }
}
