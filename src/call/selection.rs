//! The part of the tools that a listing or a connection has.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Which of a caller's tools a listing or a connection has. The default is all.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Selection {
    /// Only the tools with this tag.
    pub tag: Option<Arc<str>>,
    /// Only the tools of this toolset.
    pub toolset: Option<Arc<str>>,
}

impl Selection {
    /// The tools with a tag, those of a toolset, or those that are both.
    pub fn new(tag: Option<String>, toolset: Option<String>) -> Self {
        Self {
            tag: tag.map(Into::into),
            toolset: toolset.map(Into::into),
        }
    }
}
