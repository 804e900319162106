//! Finds the tool that a name means.

use std::sync::Arc;
use std::time::Duration;

use super::{Catalog, Entry, UnlistedSource};
use crate::access::callers::GrantedTool;
use crate::call::{Caller, Effect, NameMatching, ToolName};
use crate::text::names::strip_known_prefix;

/// Maximum number of suggested names.
const MAX_SUGGESTIONS: usize = 3;

/// How a name matched its tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameMatch {
    /// It is the tool's name or a declared alias.
    Exact,
    /// It is another spelling of the name or an alias.
    Spelling,
    /// It is similar to the name or an alias.
    Similar,
}

impl NameMatch {
    /// A warning for the answer if the name was not exact.
    pub fn warning(self, requested: &str, entry: &Entry) -> Option<String> {
        let name = &entry.definition.name;
        (self != Self::Exact)
            .then(|| format!("called as `{requested}`; the tool's name is `{name}`"))
    }
}

/// Why a name leads to no tool.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    /// No tool matches, or more than one.
    #[error("there is no tool of this name")]
    Unknown {
        /// Names that were probably meant, the most probable first.
        did_you_mean: Vec<String>,
    },
    /// A source that is not listed yet may have a tool of this name.
    #[error("{reason}")]
    Unlisted {
        /// Why the source is not listed.
        reason: String,
        /// When a further call may succeed, if known.
        retry_after: Option<Duration>,
    },
}

impl Catalog {
    /// The tool that a caller's name means: by name, by alias, and as far as `calls.name_matching`
    /// permits by another spelling or by similarity. A tool that the caller may not use is found
    /// only by its exact names. So it neither hides another tool nor becomes known.
    ///
    /// # Errors
    /// When no tool matches, or more than one. A name that an unavailable source may have never
    /// matches a merely similar tool.
    pub fn resolve(
        &self,
        name: &str,
        caller: &Caller,
    ) -> Result<(&Arc<Entry>, NameMatch), ResolveError> {
        if let Some(entry) = self.get(name) {
            return Ok((entry, NameMatch::Exact));
        }
        let matching = self.call_settings.name_matching;
        if matching != NameMatching::Exact
            && let Some(found) = self.resolve_spelling(name, caller)
        {
            return Ok(found);
        }
        if let Some(source) = self.find_unlisted_source(name, caller) {
            let (reason, retry_after) = (source.reason)();
            return Err(ResolveError::Unlisted {
                reason,
                retry_after,
            });
        }
        let found = (matching == NameMatching::Similar)
            .then(|| self.resolve_similar(name, caller))
            .flatten();
        found.ok_or_else(|| ResolveError::Unknown {
            did_you_mean: self.did_you_mean(name, caller),
        })
    }

    /// The unavailable source that may have a tool of this name, if this caller may use that tool.
    fn find_unlisted_source(&self, name: &str, caller: &Caller) -> Option<&UnlistedSource> {
        let bare = strip_known_prefix(name)
            .filter(|_| self.call_settings.name_matching != NameMatching::Exact);
        let names = || {
            std::iter::once(name)
                .chain(bare)
                .filter(|name| ToolName::parse(name).is_ok())
        };
        self.unlisted.iter().find(|source| {
            let is_its =
                |name: &str| name.len() > source.prefix.len() && name.starts_with(&source.prefix);
            let granted = |name: &str| {
                let names = &[name];
                self.grants_for(GrantedTool {
                    names,
                    ..GrantedTool::default()
                })
                .allows(caller)
            };
            names().any(|name| is_its(name) && granted(name))
        })
    }

    fn resolve_spelling(&self, name: &str, caller: &Caller) -> Option<(&Arc<Entry>, NameMatch)> {
        match self
            .spellings
            .matching_tools(name, |tool| self.is_allowed_tool(tool, caller))[..]
        {
            [only] => self
                .by_name
                .get(only)
                .map(|entry| (entry, NameMatch::Spelling)),
            _ => None,
        }
    }

    /// Never guesses a `write` tool, and never falls back to a weaker match when the best match is
    /// a write.
    fn resolve_similar(&self, name: &str, caller: &Caller) -> Option<(&Arc<Entry>, NameMatch)> {
        let best = match self
            .spellings
            .similar_tools(name, |tool| self.is_allowed_tool(tool, caller))[..]
        {
            [(_, only)] => only,
            [(best, tool), (next, _), ..] if best > next => tool,
            _ => return None,
        };
        let found = self
            .by_name
            .get(best)
            .filter(|entry| entry.policy.effect != Effect::Write);
        found.map(|entry| (entry, NameMatch::Similar))
    }

    fn is_allowed_tool(&self, tool: &ToolName, caller: &Caller) -> bool {
        self.by_name
            .get(tool)
            .is_some_and(|entry| entry.allows(caller))
    }

    /// Names that an unknown name probably means, the most probable first. Only tools that this
    /// caller may use.
    pub fn did_you_mean(&self, name: &str, caller: &Caller) -> Vec<String> {
        let usable = |tool: &ToolName| self.is_allowed_tool(tool, caller);
        let similar = self.spellings.similar_tools(name, usable);
        let mut meant: Vec<&ToolName> = similar.into_iter().map(|(_, tool)| tool).collect();
        if meant.is_empty() {
            meant = self.spellings.tools_beginning_with(name, usable);
        }
        let meant = meant.into_iter().take(MAX_SUGGESTIONS);
        meant.map(ToString::to_string).collect()
    }

    /// A tool other than `own` that has another spelling of this name. With two such tools, a
    /// model's spelling would match neither.
    pub(crate) fn find_spelling_conflict(
        &self,
        name: &ToolName,
        own: &ToolName,
    ) -> Option<&Arc<Entry>> {
        let other = self
            .spellings
            .matching_tools(name.as_str(), |tool| tool != own)
            .first()
            .copied();
        other.and_then(|tool| self.by_name.get(tool))
    }
}
