//! Makes the calls that tools make of other tools. The rules of any call apply: the current
//! catalog, the caller's grants, the tool's own stack.

use std::sync::{Arc, Weak};

use arc_swap::ArcSwap;
use async_trait::async_trait;
use serde_json::Value;
use tokio::sync::watch;
use toolcrib_dialect::{RawArguments, Repaired};
use tower::ServiceExt;

use crate::access::deny_list::DenyList;
use crate::call::{
    AvailableTool, CallSettings, Clock, Effect, Failure, Idempotency, IdempotencyKey, NestedAnswer,
    NestedCall, NestedCallError, Page, ToolContext, ToolFilter, ToolInvoker, ToolName,
};
use crate::catalog::{Catalog, Entry, NameMatch, NewCall, ResolveError};
use crate::formats::Format;
use crate::tracking::runs::Runs;

/// Calls tools of the current catalog. The reference is weak, because tools hold this value and the
/// catalog holds tools.
pub(crate) struct CatalogInvoker {
    pub(crate) catalog: Weak<ArcSwap<Catalog>>,
    pub(crate) clock: Clock,
    /// The tools that searches have found.
    pub(crate) runs: Runs,
    /// Notified when a search has found another tool.
    pub(crate) changes: watch::Sender<()>,
}

#[async_trait]
impl ToolInvoker for CatalogInvoker {
    fn available_tools(&self, parent: &ToolContext, filter: &ToolFilter<'_>) -> Vec<AvailableTool> {
        let Some(catalog) = self.catalog() else {
            return Vec::new();
        };
        let deny_list = DenyList::from_context(parent);
        let usable =
            |entry: &Arc<Entry>| filter(&entry.definition) && !deny_list.denies(entry.names());
        let entries = catalog.tools_for(&parent.caller).into_iter().filter(usable);
        // Rendered one by one: a tool that cannot be called is left out, and its name must not
        // influence the name of the next tool.
        let offer = |entry: Arc<Entry>| {
            let Value::Array(mut shown) =
                catalog.render(Format::Openai, std::slice::from_ref(&entry))
            else {
                return None;
            };
            Some(AvailableTool {
                definition: entry.definition.clone(),
                kind: entry.kind,
                openai: shown.pop()?,
            })
        };
        entries.filter_map(offer).collect()
    }

    fn max_parallel_calls(&self) -> usize {
        self.catalog()
            .map_or(CallSettings::default().parallel, |catalog| {
                catalog.call_settings().parallel
            })
            .max(1)
    }

    fn resolve(
        &self,
        parent: &ToolContext,
        filter: &ToolFilter<'_>,
        name: &str,
    ) -> Result<ToolName, Vec<String>> {
        self.resolve_tool(parent, filter, name)
            .map(|(entry, _)| entry.definition.name.clone())
    }

    fn find_tools(&self, parent: &ToolContext, query: &str, limit: usize) -> Value {
        let Some(catalog) = self.catalog() else {
            return Value::Array(Vec::new());
        };
        let deny_list = DenyList::from_context(parent);
        let admits = |entry: &Entry| {
            entry.is_available()
                && entry.allows(&parent.caller)
                && entry.is_in(parent.selection())
                && !entry.finds_tools()
                && !deny_list.denies(entry.names())
        };
        let found = catalog.find_tools(query, admits, limit);
        let names = found.iter().map(|entry| &entry.definition.name);
        let (caller, run) = (&parent.caller.name, parent.run_id.as_deref());
        if catalog.call_settings().discovery.is_some()
            && self.runs.add_found_tools(caller, run, names)
        {
            self.changes.send_replace(());
        }
        catalog.render(Format::Native, &found)
    }

    async fn call(
        &self,
        parent: &ToolContext,
        filter: &ToolFilter<'_>,
        call: NestedCall,
    ) -> Result<NestedAnswer, NestedCallError> {
        let found = self.resolve_tool(parent, filter, &call.name);
        let (entry, name_match) = found.map_err(NestedCallError::UnknownTool)?;
        let raw = RawArguments::from(call.arguments.clone());
        let may_close = entry.policy.effect != Effect::Write;
        let (arguments, repairs) =
            match toolcrib_dialect::read_arguments(&raw, call.cut_off, may_close) {
                Ok(Repaired { arguments, repairs }) => (Ok(arguments), repairs),
                Err(unreadable) => (Err(unreadable), Vec::new()),
            };
        let (found, caller) = ((call.name.as_str(), name_match), parent.caller.clone());
        let invocation = entry.new_invocation(NewCall {
            repairs,
            ..NewCall::new(found, caller, arguments, self.clock.now())
        });
        let mut invocation = parent
            .adopt_call(invocation, &call)
            .ok_or_else(|| NestedCallError::TooDeep(parent.depth()))?;
        invocation.call_chain.denied = DenyList::from_context(parent).denies(entry.names());
        if call.script_position.is_some() {
            invocation.paging.page = Some(Page::WHOLE);
        }
        let idempotency = entry.policy.idempotency;
        let has_key = entry.policy.effect != Effect::Read && idempotency != Idempotency::Off;
        let key = match call.script_position {
            Some(position) if has_key => Some(format!("{}/{position}", parent.invocation_id)),
            // Any other nested call is made once. So its own id serves as the key that the tool requires.
            _ if idempotency == Idempotency::Required => Some(invocation.id.to_string()),
            _ => None,
        };
        invocation.idempotency_key = key.and_then(|key| IdempotencyKey::parse(key.as_bytes()).ok());
        let report = invocation.report.clone();
        let outcome = entry.service.clone().oneshot(invocation).await;
        if report.uses_caller_credentials() {
            parent.note_caller_credentials();
        }
        match outcome {
            Ok(answer) => Ok(NestedAnswer {
                shown: answer.model_content(|| self.result_reader(parent, filter)),
                result_as_answer: answer.result.is_answer(entry.definition.result_as_answer),
                waiting: answer.waiting,
                result: answer.result,
                tokens: answer.meta.model.map_or(0, |model| model.total_tokens),
            }),
            Err(error) => Err(NestedCallError::Failed(Box::new(Failure::from_error(
                &error,
                entry.policy.effect,
            )))),
        }
    }
}

impl CatalogInvoker {
    /// The tool by which the calling tool may read the rest of a cut result.
    fn result_reader(&self, parent: &ToolContext, filter: &ToolFilter<'_>) -> Option<ToolName> {
        let deny_list = DenyList::from_context(parent);
        let may = |entry: &Entry| filter(&entry.definition) && !deny_list.denies(entry.names());
        self.catalog()?.find_result_reader(&parent.caller, may)
    }

    /// The tool that the name means. Tools outside `filter` and outside the selection are unknown. So are those
    /// by which a script would start another script.
    fn resolve_tool(
        &self,
        parent: &ToolContext,
        filter: &ToolFilter<'_>,
        name: &str,
    ) -> Result<(Arc<Entry>, NameMatch), Vec<String>> {
        let catalog = self.catalog().ok_or_else(Vec::new)?;
        let is_script = catalog
            .get(parent.tool.as_str())
            .is_some_and(|entry| entry.runs_scripts());
        let is_wanted = |entry: &Entry| {
            filter(&entry.definition)
                && entry.is_in(parent.selection())
                && !(is_script && (entry.finds_tools() || entry.runs_scripts()))
        };
        let deny_list = DenyList::from_context(parent);
        let is_meant = |name: &String| {
            let entry = catalog.get(name);
            entry.is_some_and(|entry| is_wanted(entry) && !deny_list.denies(entry.names()))
        };
        match catalog.resolve(name, &parent.caller) {
            Ok((entry, name_match)) if is_wanted(entry) => Ok((entry.clone(), name_match)),
            Ok(_) => Err(Vec::new()),
            Err(ResolveError::Unknown { did_you_mean }) => {
                Err(did_you_mean.into_iter().filter(is_meant).collect())
            }
            Err(ResolveError::Unlisted { .. }) => Err(Vec::new()),
        }
    }

    fn catalog(&self) -> Option<Arc<Catalog>> {
        self.catalog.upgrade().map(|current| current.load_full())
    }
}
