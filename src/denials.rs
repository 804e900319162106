//! Names of tools that a request denies for its own time: each means what it would as the name in a call, other
//! spellings too.

use std::sync::Arc;

use crate::call::{ToolContext, ToolName};
use crate::callers::Patterns;
use crate::names;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Denials(Vec<Denial>);

#[derive(Debug)]
struct Denial {
    written: String,
    patterns: Patterns,
    normal: Patterns,
}

impl Denial {
    fn new(written: &str) -> Self {
        let bare = names::unprefixed(written).unwrap_or(written);
        let normal = Patterns::new([names::normal(bare).as_str(), names::normal(written).as_str()]);
        Self { written: written.to_owned(), patterns: Patterns::new([written]), normal }
    }

    fn matches(&self, name: &str) -> bool {
        self.patterns.matches(name) || self.normal.matches(&names::normal(name))
    }
}

impl<'a> Extend<&'a str> for Denials {
    fn extend<I: IntoIterator<Item = &'a str>>(&mut self, names: I) {
        self.0.extend(names.into_iter().map(Denial::new));
    }
}

impl<'a> FromIterator<&'a str> for Denials {
    fn from_iter<I: IntoIterator<Item = &'a str>>(names: I) -> Self {
        Self(names.into_iter().map(Denial::new).collect())
    }
}

impl Denials {
    /// Those of the request that this call belongs to.
    pub(crate) fn of(call: &ToolContext) -> Self {
        call.denied().iter().map(String::as_str).collect()
    }

    /// Whether a tool with these names is denied.
    pub(crate) fn denies<'a>(&self, names: impl IntoIterator<Item = &'a ToolName>) -> bool {
        !self.0.is_empty() && names.into_iter().any(|name| self.0.iter().any(|deny| deny.matches(name.as_str())))
    }

    /// The names as they were written, for the calls that tools make.
    pub(crate) fn written(&self) -> Arc<[String]> {
        self.0.iter().map(|deny| deny.written.clone()).collect()
    }

    /// Those that none of all tools' names fits.
    pub(crate) fn idle<'a, N>(&'a self, all: impl Fn() -> N + 'a) -> impl Iterator<Item = &'a str> + 'a
    where
        N: Iterator<Item = &'a ToolName>,
    {
        let is_idle = move |deny: &&Denial| !all().any(|name| deny.matches(name.as_str()));
        self.0.iter().filter(is_idle).map(|deny| deny.written.as_str())
    }
}
