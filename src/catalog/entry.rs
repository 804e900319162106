//! One tool of a catalog, with its stack.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::access::callers::Grants;
use crate::cache::ToolCache;
use crate::call::Selection;
use crate::call::canonical::canonical_json;
use crate::call::json::hash_parts;
use crate::call::{Caller, Definition, Kind, Origin, Policy, ToolName};
use crate::formats::{Format, ListedTool, tokens};
use crate::kinds::sandbox::{EntrySandbox, SandboxReport};
use crate::kinds::{DeclaredSettings, Runner, Tool};
use crate::schema::SchemaOwner;
use crate::stack::circuit_breaker::{Breaker, BreakerStatus};
use crate::stack::concurrency::ToolPermits;
use crate::stack::order::ToolService;
use crate::stack::usage_limit::ChargeRules;
use crate::stack::validate::ArgumentRules;

/// A tool with its stack.
pub struct Entry {
    /// The part of the tool that callers see.
    pub definition: Definition,
    /// The way in which the tool runs.
    pub kind: Kind,
    /// Where the tool was declared.
    pub origin: Origin,
    /// The operator's decisions about the tool.
    pub policy: Policy,
    /// SHA-256, in hex, of everything that identifies the tool: its definition and the way it runs.
    pub definition_hash: String,
    /// SHA-256 of the definition as callers see it, with the author's order of keys. Another order
    /// gives another hash.
    pub(crate) shown_hash: [u8; 32],
    /// The rules that arguments must match.
    pub rules: Arc<ArgumentRules>,
    pub(crate) charge_rules: Arc<ChargeRules>,
    pub(crate) service: ToolService,
    /// The tool's stored results.
    pub(crate) tool_cache: Option<Arc<ToolCache>>,
    pub(super) settings: DeclaredSettings,
    pub(super) quarantined: bool,
    pub(super) grants: Arc<Grants>,
    pub(super) enabled: Arc<AtomicBool>,
    pub(super) breaker: Option<Arc<Breaker>>,
    pub(super) permits: ToolPermits,
    /// The tool in `GET /tools` while it is available. The first list writes it: nothing in it
    /// changes, and a list of 10,000 tools takes a tenth of the time.
    pub(crate) listed: OnceCell<Box<RawValue>>,
    /// The estimated tokens of the tool in each format, as far as a request needed them.
    pub(super) tokens: [OnceCell<usize>; Format::ALL.len()],
}

impl Entry {
    /// Whether the tool is enabled.
    pub fn is_enabled(&self) -> bool {
        self.enabled.load(Ordering::Relaxed)
    }

    /// Whether a call can run now: the tool is enabled and approved, and its runner is available.
    pub fn is_available(&self) -> bool {
        self.is_enabled() && !self.quarantined && self.rules.runner.is_available()
    }

    /// The sandbox of the programs that its calls start.
    pub(crate) fn sandbox(&self) -> Option<SandboxReport> {
        self.rules.runner.sandbox().map(EntrySandbox::report)
    }

    pub(crate) fn set_enabled(&self, enabled: bool) {
        self.enabled.store(enabled, Ordering::Relaxed);
    }

    /// Whether this caller may use the tool.
    pub fn allows(&self, caller: &Caller) -> bool {
        self.grants.allows(caller)
    }

    /// Whether a selection has the tool.
    pub fn is_in(&self, selection: &Selection) -> bool {
        let tags = &self.definition.tags;
        let has_tag = |tag: &Arc<str>| tags.iter().any(|other| **other == **tag);
        selection.tag.as_ref().is_none_or(has_tag)
            && (selection.toolset.as_deref()).is_none_or(|toolset| self.grants.is_in(toolset))
    }

    /// Whether the tool finds or calls the tools that a list leaves out.
    pub(crate) fn finds_tools(&self) -> bool {
        self.rules.runner.traits().finds_tools
    }

    /// Whether the tool runs scripts, which find and call the tools that a list leaves out.
    pub(crate) fn runs_scripts(&self) -> bool {
        self.rules.runner.traits().runs_scripts
    }

    /// The tool name for a call that a caller made as `requested`. A caller that may not use the
    /// tool gets `requested` back, so it learns no other name of the tool.
    pub(crate) fn name_shown_to(&self, caller: &Caller, requested: &str) -> ToolName {
        let requested = (!self.allows(caller))
            .then(|| ToolName::parse(requested).ok())
            .flatten();
        requested.unwrap_or_else(|| self.definition.name.clone())
    }

    /// The state of the circuit breaker; `None` if the tool has none.
    pub fn breaker_status(&self) -> Option<BreakerStatus> {
        self.breaker.as_ref().map(|breaker| breaker.status())
    }

    /// What formats show of the tool.
    pub(crate) fn to_listed_tool(&self) -> ListedTool<'_> {
        ListedTool {
            definition: &self.definition,
            effect: self.policy.effect,
            available: self.is_available(),
            deferred: false,
        }
    }

    /// The estimated tokens of the tool in the list of this format.
    pub fn tokens(&self, format: Format) -> usize {
        let known = self.tokens.get(format as usize);
        if let Some(tokens) = known.and_then(OnceCell::get) {
            return *tokens;
        }
        let tokens = tokens::of_tool(format, &self.to_listed_tool());
        // Another request may have estimated the same meanwhile.
        let _ = known.map(|known| known.set(tokens));
        tokens
    }

    /// The name of the source that brings the tool; `None` for a tool of its own.
    pub(crate) fn source(&self) -> Option<&str> {
        self.settings.source.as_deref()
    }

    /// The tool's name and its aliases.
    pub(crate) fn names(&self) -> impl Iterator<Item = &ToolName> {
        std::iter::once(&self.definition.name).chain(&self.definition.aliases)
    }

    /// What the entry was built from.
    pub(super) fn parts(&self) -> EntryParts<'_> {
        EntryParts {
            kind: self.kind,
            origin: self.origin,
            schema_owner: self.rules.schema.owner(),
            quarantined: self.quarantined,
            shown_hash: self.shown_hash,
            definition: &self.definition,
            policy: &self.policy,
            settings: &self.settings,
            own_runner: own_runner(&self.settings, &self.rules.runner),
        }
    }
}

/// The parts of an entry. An entry with equal parts is the same tool.
#[derive(PartialEq)]
pub(super) struct EntryParts<'a> {
    pub(super) kind: Kind,
    pub(super) origin: Origin,
    pub(super) schema_owner: SchemaOwner,
    pub(super) quarantined: bool,
    pub(super) shown_hash: [u8; 32],
    pub(super) definition: &'a Definition,
    pub(super) policy: &'a Policy,
    pub(super) settings: &'a DeclaredSettings,
    pub(super) own_runner: Option<*const ()>,
}

/// The address of a runner. `None` if it comes from the manifest: then equal text makes an equal
/// runner.
pub(super) fn own_runner(
    settings: &DeclaredSettings,
    runner: &Arc<dyn Runner>,
) -> Option<*const ()> {
    let is_declared = settings.base_dir.is_some();
    (!is_declared).then(|| Arc::as_ptr(runner).cast())
}

/// SHA-256, in hex, of the tool's definition and the way it runs. If either changes, earlier stored
/// results are not used.
pub fn definition_hash(tool: &Tool) -> String {
    hash_fields(&definition_fields(tool))
}

/// SHA-256, in hex, of the result of [`definition_fields`].
pub(crate) fn hash_fields(fields: &Value) -> String {
    hex::encode(hash_parts([canonical_json(fields).as_slice()]))
}

/// The tool's definition and the way it runs, in the author's order.
pub(crate) fn definition_fields(tool: &Tool) -> Value {
    let Tool {
        definition,
        kind,
        settings,
        ..
    } = tool;
    let mut fields = json!({
        "name": definition.name,
        "description": definition.description,
        "input_schema": definition.input_schema,
        "output_schema": definition.output_schema,
        "annotations": definition.annotations,
        "result_as_answer": definition.result_as_answer,
        "kind": kind,
        "implementation": settings.implementation,
    });
    // A tool without this key keeps the hash that it had before the key existed.
    definition
        .context
        .iter()
        .for_each(|context| fields["context"] = json!(context));
    fields
}
