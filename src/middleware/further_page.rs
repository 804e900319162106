//! A further page is one of a result that is there already: it never runs the tool.
//!
//! Right below the cache (and so below replay), where a call arrives only if nothing stored has answered it. A model that asks for
//! pages itself has no other way to them, so long results of such a tool are kept for it here, whatever `cache` says.

use std::sync::Arc;

use super::Outcome;
use super::around::{Around, AroundLayer, Inner};
use super::cache::PageShelf;
use crate::call::{CacheStatus, CallError, Invocation, Page, Paging};

/// See the module.
pub struct FurtherPage(Option<PageShelf>);

impl FurtherPage {
    /// Lets through calls that want a result from its beginning; `None` for a tool that reads what is there already. `shelf`:
    /// where a tool's results are kept for a model that asks for pages.
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
