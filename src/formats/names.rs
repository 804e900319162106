//! Names that providers take.
//!
//! A model calls a tool by the name it was shown, so a name may be changed only into one that leads back to the tool:
//! one with the same normal form, if no other tool has that, or an alias.

use std::borrow::Cow;
use std::collections::HashMap;

use crate::call::ToolName;
use crate::providers::Provider;

/// What two names have in common that a model may take for one another: neither case nor `-` `_` `.` tell them apart.
fn normal(name: &str) -> String {
    name.chars().map(|c| if matches!(c, '-' | '.') { '_' } else { c.to_ascii_lowercase() }).collect()
}

/// Whose names they are, by normal form; `None` where several tools share one.
pub struct Names<'a>(HashMap<String, Option<&'a str>>);

impl<'a> Names<'a> {
    /// Of all tools there are, each with its aliases.
    pub fn new(all: impl IntoIterator<Item = (&'a ToolName, &'a [ToolName])>) -> Self {
        let mut names = HashMap::new();
        for (tool, aliases) in all {
            for name in std::iter::once(tool).chain(aliases) {
                let whose = names.entry(normal(name.as_str())).or_insert(Some(tool.as_str()));
                if *whose != Some(tool.as_str()) {
                    *whose = None;
                }
            }
        }
        Self(names)
    }

    /// What the provider is told that a tool is called: its name; else the name with `_` for what is refused, if that can
    /// mean no other tool; else its first alias that is taken; else its name all the same. A tool that is left out would
    /// be missed in silence; one that is refused is named in the provider's error, and by `toolcrib check` before.
    pub fn shown<'n>(&self, provider: Provider, tool: &'n ToolName, aliases: &'n [ToolName]) -> Cow<'n, str> {
        let (tool, taken) = (tool.as_str(), |name: &str| provider.takes_name(name));
        if taken(tool) {
            return tool.into();
        }
        if self.is_alone(tool)
            && let Some(plain) = [tool.replace('.', "_"), tool.replace(['.', '-'], "_")].into_iter().find(|n| taken(n))
        {
            return plain.into();
        }
        aliases.iter().map(ToolName::as_str).find(|alias| taken(alias)).unwrap_or(tool).into()
    }

    /// Whether no other tool has this tool's normal form.
    pub fn is_alone(&self, tool: &str) -> bool {
        self.0.get(&normal(tool)).is_some_and(|whose| *whose == Some(tool))
    }
}
