//! Names that providers take.
//!
//! A model calls a tool by the name it was shown, so a name may be changed only into one that leads back to the tool: into
//! another spelling of it, as far as no other tool can be meant by that, or into an alias.

use std::borrow::Cow;

use crate::call::{NameMatching, ToolName};
use crate::names::Spellings;
use crate::providers::Provider;

/// The names of all tools there are, also of those that are not shown, and which of their spellings are understood.
#[derive(Clone, Copy)]
pub struct Names<'a> {
    /// Names and aliases.
    pub spellings: &'a Spellings,
    /// `calls.name_matching`.
    pub matching: NameMatching,
}

impl Names<'_> {
    /// What the provider is told that a tool is called: its name; else the name with `_` for what is refused, if that can
    /// mean no other tool; else its first alias that is taken; else its name all the same. A tool that is left out would
    /// be missed in silence; one that is refused is named in the provider's error, and by `toolcrib check` before.
    pub fn shown<'n>(&self, provider: Provider, tool: &'n ToolName, aliases: &'n [ToolName]) -> Cow<'n, str> {
        let taken = |name: &str| provider.takes_name(name);
        let name = tool.as_str();
        if taken(name) {
            return name.into();
        }
        if self.means_one(tool)
            && let Some(plain) = [name.replace('.', "_"), name.replace(['.', '-'], "_")].into_iter().find(|n| taken(n))
        {
            return plain.into();
        }
        aliases.iter().map(ToolName::as_str).find(|alias| taken(alias)).unwrap_or(name).into()
    }

    /// Whether other spellings of a tool's name mean this tool and no other.
    pub fn means_one(&self, tool: &ToolName) -> bool {
        self.matching != NameMatching::Exact && self.spellings.of(tool.as_str(), |_| true) == [tool]
    }
}
