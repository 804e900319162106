//! Looks up stored results for tools. The rules of a real call apply: the current catalog, the caller's grants, the
//! tool's own schema and cache key.

use std::sync::{Arc, Weak};

use arc_swap::ArcSwap;
use async_trait::async_trait;

use crate::call::{CallError, Capture, JsonObject, NotStored, StoredResults, ToolContext, ToolResult};
use crate::catalog::Catalog;
use crate::deny_list::Denials;

/// Looks where calls through the current catalog look. The reference is weak, because tools hold this value and the
/// catalog holds tools.
pub(crate) struct Shelves(pub(crate) Weak<ArcSwap<Catalog>>);

#[async_trait]
impl StoredResults for Shelves {
    async fn find(
        &self,
        asking: &ToolContext,
        tool: &str,
        arguments: &JsonObject,
    ) -> Result<Arc<ToolResult>, NotStored> {
        let catalog = self.0.upgrade().ok_or(NotStored::Nothing)?.load_full();
        let caller = &*asking.caller;
        // A tool that the caller may not use is unknown, as in the list of tools.
        let found = catalog.resolve(tool, caller).ok().map(|(entry, _)| entry).filter(|entry| entry.allows(caller));
        let Some(entry) = found else { return Err(NotStored::Unknown(catalog.did_you_mean(tool, caller))) };
        if Denials::of(asking).denies(entry.names()) {
            return Err(NotStored::Denied);
        }
        if !entry.is_enabled() {
            return Err(NotStored::Off);
        }
        let shelf = entry.shelf.as_ref().ok_or(NotStored::NoCache)?;
        let asker = catalog.get(asking.tool.as_str());
        let asker_withholds = asker.is_some_and(|asker| asker.policy.capture == Some(Capture::Digest));
        if shelf.is_off_the_record() && !asker_withholds {
            return Err(NotStored::Withheld);
        }
        let fitting = match entry.rules.fit_shown(arguments.clone(), &asking.context, Some(asking.deadline)).await {
            Ok(fitting) => fitting,
            Err(CallError::InvalidArguments(violations)) => return Err(NotStored::Unfit(violations)),
            Err(_) => return Err(NotStored::Nothing),
        };
        shelf.find(caller, asking.agent(), &fitting.arguments, &asking.context).await.ok_or(NotStored::Nothing)
    }
}
