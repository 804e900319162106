//! Answers a further page from a stored result. A further page never runs the tool.
//!
//! This layer is directly below the cache, and so below `replay`. A call arrives here only if no stored result has
//! answered it. A model with paging arguments has no other way to further pages. So long results of such a tool are
//! stored here, whatever the tool's `cache` policy is.

use std::sync::Arc;

use super::Outcome;
use super::around::{Around, AroundLayer, Inner};
use super::cache::PageShelf;
use crate::call::{CacheStatus, CallError, Invocation, Page, Paging};

/// The layer that refuses or answers further pages.
pub struct FurtherPage(Option<PageShelf>);

impl FurtherPage {
    /// Makes the layer. It is `None` for a tool that reads stored data itself (`Paging::Pages`). `shelf` makes the
    /// store of long results for a tool whose model requests pages.
    pub fn layer(paging: Paging, shelf: impl FnOnce() -> PageShelf) -> Option<AroundLayer<Self>> {
        match paging {
            Paging::Caller => Some(AroundLayer::new(Self(None))),
            Paging::Model => Some(AroundLayer::new(Self(Some(shelf())))),
            Paging::Pages => None,
        }
    }
}

impl Around for FurtherPage {
    async fn call<S: Inner>(self: Arc<Self>, mut inner: S, invocation: Invocation) -> Outcome {
        let further = invocation.page.filter(Page::is_further);
        match (&self.0, further) {
            (None, None) => inner.call(invocation).await,
            (None, Some(page)) => Err(CallError::NoStoredResult { offset: page.offset }),
            (Some(shelf), Some(page)) => match shelf.find(&invocation).await {
                Some((result, origin)) => {
                    let mut notes = invocation.notes.lock();
                    (notes.meta.cache, notes.origin) = (CacheStatus::Hit, Some(origin));
                    Ok(result)
                }
                None => Err(CallError::NoStoredResult { offset: page.offset }),
            },
            (Some(shelf), None) => {
                let begun = shelf.begin(&invocation);
                let outcome = inner.call(invocation).await;
                if let Ok(result) = &outcome {
                    shelf.keep(begun, result).await;
                }
                outcome
            }
        }
    }
}
