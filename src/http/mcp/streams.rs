//! Bounds streams that stay open without a call: a session's listening stream (GET), and `subscriptions/listen`.
//!
//! Nothing else bounds them. They run no tool, and a connection with a request under way is never closed for another
//! one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::http::HeaderMap;

use crate::call::{CallError, Caller, Failure};
use crate::http::auth::authenticate;
use crate::http::problem::ApiError;
use crate::http::settings::connections;
use crate::registry::Registry;

/// One in `SHARE` connections may be such a stream, and one in `SHARE` of these streams may belong to one caller.
const SHARE: usize = 4;
/// A refused client may ask again after this time.
const AGAIN: Duration = Duration::from_secs(5);

/// The open streams without a call. Clones share them.
#[derive(Clone)]
pub(super) struct Streams(Arc<Inner>);

struct Inner {
    /// Number of open streams of each caller.
    open: Mutex<HashMap<Arc<str>, usize>>,
    most: usize,
    each: usize,
}

/// The slot of a stream. Dropping it frees the slot.
pub(super) struct StreamSlot {
    streams: Streams,
    caller: Arc<str>,
}

impl Streams {
    pub(super) fn new() -> Self {
        Self::with_most((connections() / SHARE).max(1))
    }

    fn with_most(most: usize) -> Self {
        Self(Arc::new(Inner { open: Mutex::default(), most, each: (most / SHARE).max(1) }))
    }

    /// Takes a slot for one more stream of this caller.
    ///
    /// # Errors
    /// 503, if there are too many streams in all, or too many of this caller.
    pub(super) fn place(&self, caller: &Caller) -> Result<StreamSlot, ApiError> {
        let mut open = self.open();
        let (all, own) = (open.values().sum(), open.get(&caller.name).copied().unwrap_or_default());
        full("streams without a call", (all, self.0.most), (own, self.0.each), caller)?;
        *open.entry(caller.name.clone()).or_default() += 1;
        Ok(StreamSlot { streams: self.clone(), caller: caller.name.clone() })
    }

    fn open(&self) -> MutexGuard<'_, HashMap<Arc<str>, usize>> {
        self.0.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for StreamSlot {
    fn drop(&mut self) {
        let mut open = self.streams.open();
        if let Some(own) = open.get_mut(&self.caller) {
            *own -= 1;
            if *own == 0 {
                open.remove(&self.caller);
            }
        }
    }
}

/// Returns when the key in `headers` is no longer valid, or identifies another caller.
///
/// Changed grants do not end a stream: its client is notified that its list of tools has changed. The loop holds no
/// catalog while it waits, so old tools can end.
pub(super) async fn turned_away(registry: Arc<Registry>, headers: HeaderMap, caller: Arc<Caller>) {
    let mut changes = registry.changes();
    while authenticate(registry.catalog().callers(), &headers).is_ok_and(|known| known == caller) {
        if changes.changed().await.is_err() {
            return std::future::pending().await;
        }
    }
}

/// Refuses one more of `what` if a bound is reached. The pairs are `(open, bound)`: of all callers, and of this caller.
/// Without keys there is one caller, which may have all.
///
/// # Errors
/// 503, if a bound is reached.
pub(super) fn full(
    what: &str,
    (all, most): (usize, usize),
    (own, each): (usize, usize),
    caller: &Caller,
) -> Result<(), ApiError> {
    let detail = match &*caller.name {
        _ if all >= most => format!("{most} {what} are open over MCP, which is the most there may be"),
        Caller::ANONYMOUS => return Ok(()),
        name if own >= each => {
            format!("{each} {what} of `{name}` are open over MCP, which is the most one caller may have")
        }
        _ => return Ok(()),
    };
    let overloaded = CallError::Overloaded { retry_after: AGAIN, per_caller: None };
    Err(ApiError::Call { failure: Failure { detail, ..Failure::from(&overloaded) }, invocation: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(name: &str) -> Caller {
        Caller { name: name.into(), admin: false }
    }

    #[test]
    fn one_caller_has_a_share_and_leaves_the_others_theirs() {
        let streams = Streams::with_most(8);
        let (ann, bob) = (caller("ann"), caller("bob"));
        let mut held: Vec<_> = (0..2).map(|_| streams.place(&ann).unwrap()).collect();
        let refused = streams.place(&ann).err().unwrap();
        assert!(matches!(refused, ApiError::Call { failure, .. } if failure.retry_after_ms == Some(5000)));
        held.extend((0..2).map(|_| streams.place(&bob).unwrap()));
        held.truncate(1);
        assert!(streams.place(&ann).is_ok(), "a place that was given up is free");
    }

    #[test]
    fn without_keys_there_is_one_caller_who_may_have_all() {
        let streams = Streams::with_most(8);
        let held: Vec<_> = (0..8).map(|_| streams.place(&Caller::anonymous()).unwrap()).collect();
        assert!(streams.place(&Caller::anonymous()).is_err() && streams.place(&caller("ann")).is_err());
        drop(held);
        assert!(streams.open().is_empty());
    }
}
