//! Answers a further page from a stored result. A further page never runs the tool.
//!
//! This layer is directly below the cache, and so below `replay`. A call arrives here only if no
//! stored result has answered it. A model with paging arguments has no other way to further pages.
//! So long results of such a tool are stored here, whatever the tool's `cache` policy is.

use std::sync::Arc;

use super::PageCache;
use crate::call::{CacheReport, CallError, Invocation, Page, Paging};
use crate::stack::Outcome;
use crate::stack::interceptor::{Inner, Interceptor, InterceptorLayer};

/// The layer that refuses or answers further pages.
pub struct PageGuard(Option<PageCache>);

impl PageGuard {
    /// Makes the layer. It is `None` for a tool that reads stored data itself
    /// (`Paging::PagedReader`). `page_cache` makes the store of long results for a tool whose model
    /// requests pages.
    pub fn layer(
        paging: Paging,
        page_cache: impl FnOnce() -> PageCache,
    ) -> Option<InterceptorLayer<Self>> {
        match paging {
            Paging::Caller => Some(InterceptorLayer::new(Self(None))),
            Paging::Model => Some(InterceptorLayer::new(Self(Some(page_cache())))),
            Paging::PagedReader => None,
        }
    }
}

impl Interceptor for PageGuard {
    async fn call<S: Inner>(self: Arc<Self>, mut inner: S, invocation: Box<Invocation>) -> Outcome {
        let further = invocation.paging.page.filter(Page::is_further);
        match (&self.0, further) {
            (None, None) => inner.call(invocation).await,
            (None, Some(page)) => Err(CallError::NoStoredResult {
                offset: page.offset,
            }),
            (Some(page_cache), Some(page)) => match page_cache.find_result(&invocation).await {
                Some((result, origin)) => {
                    *invocation.report.cache.lock() = CacheReport::hit(origin);
                    Ok(result)
                }
                None => Err(CallError::NoStoredResult {
                    offset: page.offset,
                }),
            },
            (Some(page_cache), None) => {
                let snapshot = page_cache.snapshot(&invocation);
                let outcome = inner.call(invocation).await;
                if let Ok(result) = &outcome {
                    page_cache.store_result(snapshot, result).await;
                }
                outcome
            }
        }
    }
}
