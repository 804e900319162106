//! The tools that a request denies for its own duration. Each name also matches other spellings, as
//! in a call.

use std::sync::Arc;

use crate::access::tool_pattern::{ToolPattern, any_denies};
use crate::call::{ToolContext, ToolName};

/// The denied tools of a request.
#[derive(Debug, Default)]
pub(crate) struct DenyList(Vec<ToolPattern>);

impl<'a> Extend<&'a str> for DenyList {
    fn extend<I: IntoIterator<Item = &'a str>>(&mut self, names: I) {
        self.0.extend(names.into_iter().map(ToolPattern::new));
    }
}

impl<'a> FromIterator<&'a str> for DenyList {
    fn from_iter<I: IntoIterator<Item = &'a str>>(names: I) -> Self {
        Self(names.into_iter().map(ToolPattern::new).collect())
    }
}

impl DenyList {
    /// Whether nothing is denied.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The deny list of the request to which this call belongs.
    pub(crate) fn from_context(call: &ToolContext) -> Self {
        call.denied_patterns().iter().map(String::as_str).collect()
    }

    /// Whether a tool with these names is denied.
    pub(crate) fn denies<'a>(&self, names: impl IntoIterator<Item = &'a ToolName>) -> bool {
        !self.0.is_empty()
            && any_denies(&self.0, names.into_iter().map(ToolName::as_str), |_| false)
    }

    /// The names as written, for the calls that tools make.
    pub(crate) fn to_texts(&self) -> Arc<[String]> {
        self.0.iter().map(|deny| deny.text().to_owned()).collect()
    }

    /// The entries that match none of these names, as written.
    pub(crate) fn unmatched_entries<'a>(&'a self, names: &[&str]) -> Vec<&'a str> {
        let is_unmatched = |deny: &&ToolPattern| {
            !any_denies(std::slice::from_ref(*deny), names.iter().copied(), |_| {
                false
            })
        };
        self.0
            .iter()
            .filter(is_unmatched)
            .map(ToolPattern::text)
            .collect()
    }
}
