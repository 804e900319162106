//! A further page is one of a result that is there already: it never runs the tool.
//!
//! Right below the cache (and so below replay), where a call arrives only if nothing stored has answered it.

use std::sync::Arc;

use super::Outcome;
use super::around::{Around, AroundLayer, Inner};
use crate::call::{CallError, Invocation, Page};

/// See the module.
pub struct FurtherPage;

impl FurtherPage {
    /// Lets through calls that want a result from its beginning.
    pub fn layer() -> AroundLayer<Self> {
        AroundLayer::new(Self)
    }
}

impl Around for FurtherPage {
    async fn call<S: Inner>(self: Arc<Self>, mut inner: S, invocation: Invocation) -> Outcome {
        match invocation.page.filter(Page::is_further) {
            Some(page) => Err(CallError::NoStoredResult { offset: page.offset }),
            None => inner.call(invocation).await,
        }
    }
}
