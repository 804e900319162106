//! Makes the calls that tools make of other tools. The rules of any call apply: the current catalog, the caller's
//! grants, the tool's own stack.

use std::sync::{Arc, Weak};

use arc_swap::ArcSwap;
use async_trait::async_trait;
use serde_json::Value;
use tower::ServiceExt;

use crate::call::{
    AvailableTool, CallSettings, Clock, Effect, Failure, Idempotency, IdempotencyKey, JsonObject, NoAnswer, SubAnswer,
    SubCall, ToolContext, ToolFilter, ToolInvoker, ToolName,
};
use crate::catalog::{Catalog, Entry, How, NotFound};
use crate::deny_list::Denials;
use crate::dialect::{self, RawArguments, Repaired};
use crate::formats::Format;

/// Calls tools of the current catalog. The reference is weak, because tools hold this value and the catalog holds
/// tools.
pub(crate) struct Others {
    pub(crate) catalog: Weak<ArcSwap<Catalog>>,
    pub(crate) clock: Clock,
}

#[async_trait]
impl ToolInvoker for Others {
    fn offers(&self, asking: &ToolContext, wanted: &ToolFilter<'_>) -> Vec<AvailableTool> {
        let Some(catalog) = self.catalog() else { return Vec::new() };
        let denials = Denials::of(asking);
        let usable = |entry: &Arc<Entry>| wanted(&entry.definition) && !denials.denies(entry.names());
        let entries = catalog.list(&asking.caller).into_iter().filter(usable);
        // Rendered one by one: a tool that cannot be called is left out, and its name must not influence the name of
        // the next tool.
        let offer = |entry: Arc<Entry>| {
            let Value::Array(mut shown) = catalog.render(Format::Openai, std::slice::from_ref(&entry)) else {
                return None;
            };
            Some(AvailableTool { definition: entry.definition.clone(), kind: entry.kind, openai: shown.pop()? })
        };
        entries.filter_map(offer).collect()
    }

    fn parallel(&self) -> usize {
        self.catalog().map_or(CallSettings::default().parallel, |catalog| catalog.calls().parallel).max(1)
    }

    fn resolve(&self, asking: &ToolContext, wanted: &ToolFilter<'_>, name: &str) -> Result<ToolName, Vec<String>> {
        self.find(asking, wanted, name).map(|(entry, _)| entry.definition.name.clone())
    }

    async fn call(&self, asking: &ToolContext, wanted: &ToolFilter<'_>, call: SubCall) -> Result<SubAnswer, NoAnswer> {
        let found = self.find(asking, wanted, &call.name);
        let (entry, how) = found.map_err(NoAnswer::Unknown)?;
        let written = RawArguments::from(call.arguments.clone());
        let may_close = entry.policy.effect != Effect::Write;
        let (mended, unreadable) = match dialect::arguments(&written, call.cut_off, may_close) {
            Ok(mended) => (mended, None),
            Err(unreadable) => {
                (Repaired { arguments: JsonObject::new(), repairs: Vec::new() }, Some(Arc::new(unreadable)))
            }
        };
        let name = entry.name_for(&asking.caller, &call.name);
        let invocation = asking.below(name, mended.arguments, &call, self.clock.now());
        let mut invocation = invocation.ok_or_else(|| NoAnswer::TooDeep(asking.depth()))?;
        invocation.unreadable = unreadable;
        invocation.denied = Denials::of(asking).denies(entry.names());
        // Each nested call is made once. So its own id serves as the idempotency key that the tool requires.
        if entry.policy.idempotency == Idempotency::Required {
            invocation.key = IdempotencyKey::parse(invocation.id.to_string().as_bytes()).ok();
        }
        invocation.notes.lock().meta.warnings.extend(how.warning(&call.name, &entry).into_iter().chain(mended.repairs));
        match entry.service.clone().oneshot(invocation).await {
            Ok(answer) => Ok(SubAnswer {
                shown: answer.with_overflow(|| self.reader(asking, wanted)),
                result_as_answer: answer.result.is_answer(entry.definition.result_as_answer),
                result: answer.result,
                tokens: answer.meta.model.map_or(0, |model| model.total_tokens),
            }),
            Err(error) => Err(NoAnswer::Failed(Box::new(Failure::of(&error, entry.policy.effect)))),
        }
    }
}

impl Others {
    /// The tool by which the calling tool may read the rest of a cut result.
    fn reader(&self, asking: &ToolContext, wanted: &ToolFilter<'_>) -> Option<ToolName> {
        let denials = Denials::of(asking);
        let may = |entry: &Entry| wanted(&entry.definition) && !denials.denies(entry.names());
        self.catalog()?.reader(&asking.caller, may)
    }

    /// The tool that the name means. Tools outside `wanted` are unknown.
    fn find(
        &self,
        asking: &ToolContext,
        wanted: &ToolFilter<'_>,
        name: &str,
    ) -> Result<(Arc<Entry>, How), Vec<String>> {
        let catalog = self.catalog().ok_or_else(Vec::new)?;
        let is_wanted = |name: &String| catalog.get(name).is_some_and(|entry| wanted(&entry.definition));
        match catalog.resolve(name, &asking.caller) {
            Ok((entry, how)) if wanted(&entry.definition) => Ok((entry.clone(), how)),
            Ok(_) => Err(Vec::new()),
            Err(NotFound::Unknown { did_you_mean }) => Err(did_you_mean.into_iter().filter(is_wanted).collect()),
            Err(NotFound::Unlisted { .. }) => Err(Vec::new()),
        }
    }

    fn catalog(&self) -> Option<Arc<Catalog>> {
        self.catalog.upgrade().map(|current| current.load_full())
    }
}
