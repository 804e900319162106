//! Bounds streams that stay open without a call: a session's listening stream (GET),
//! `subscriptions/listen`, and `GET /events`.
//!
//! Nothing else bounds them. They run no tool, and a connection with a request in flight is never
//! closed for another one.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderMap;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::call::{CallError, Caller, Failure};
use crate::catalog::registry::Registry;
use crate::http::edge::auth::{authenticate_key, key_from_headers};
use crate::http::edge::limits::possible_connections;
use crate::http::problem::ApiError;

/// One in `SHARE_DIVISOR` connections may be such a stream, and one in `SHARE_DIVISOR` of these
/// streams may belong to one caller.
const SHARE_DIVISOR: usize = 4;
/// A refused client may ask again after this time.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// The open streams without a call. Clones share them.
#[derive(Clone)]
pub(in crate::http) struct Streams(Arc<Inner>);

struct Inner {
    /// Number of open streams of each caller.
    open: Mutex<HashMap<Arc<str>, usize>>,
    what: &'static str,
    max_total: usize,
    max_per_caller: usize,
}

/// The slot of a stream. Dropping it frees the slot.
pub(in crate::http) struct StreamSlot {
    streams: Streams,
    caller: Arc<str>,
}

impl Streams {
    /// Bounds the streams of one kind in a service with this many connections, and to `at_most`.
    pub(in crate::http) fn bounded(
        what: &'static str,
        max_connections: usize,
        at_most: usize,
    ) -> Self {
        let share = possible_connections(max_connections) / SHARE_DIVISOR;
        Self::with_limit(what, share.min(at_most).max(1))
    }

    fn with_limit(what: &'static str, max_total: usize) -> Self {
        Self(Arc::new(Inner {
            open: Mutex::default(),
            what,
            max_total,
            max_per_caller: (max_total / SHARE_DIVISOR).max(1),
        }))
    }

    /// Takes a slot for one more stream of this caller.
    ///
    /// # Errors
    /// 503, if there are too many streams in all, or too many of this caller.
    pub(in crate::http) fn reserve_slot(&self, caller: &Caller) -> Result<StreamSlot, ApiError> {
        let mut open = self.0.open.lock();
        let (all, own) = (
            open.values().sum(),
            open.get(&caller.name).copied().unwrap_or_default(),
        );
        check_room(
            self.0.what,
            (all, self.0.max_total),
            (own, self.0.max_per_caller),
            caller,
        )?;
        *open.entry(caller.name.clone()).or_default() += 1;
        Ok(StreamSlot {
            streams: self.clone(),
            caller: caller.name.clone(),
        })
    }
}

impl Drop for StreamSlot {
    fn drop(&mut self) {
        let mut open = self.streams.0.open.lock();
        if let Some(own) = open.get_mut(&self.caller) {
            *own -= 1;
            if *own == 0 {
                open.remove(&self.caller);
            }
        }
    }
}

/// Returns when a stream without a call must end: at shutdown, or when the key in `headers` is no longer
/// valid or identifies another caller.
///
/// Changed grants do not end a stream: its client is notified that its list of tools has changed.
/// The loop holds no catalog while it waits, so old tools can end.
pub(in crate::http) fn stream_end(
    shutdown: CancellationToken,
    registry: Arc<Registry>,
    headers: &HeaderMap,
    caller: Arc<Caller>,
) -> impl Future<Output = ()> + Send + use<> {
    let key = key_from_headers(headers).map(str::to_owned);
    let revoked = async move {
        let mut changes = registry.watch_changes();
        while authenticate_key(&registry, registry.catalog().callers(), key.as_deref())
            .is_ok_and(|known| known == caller)
        {
            if changes.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    };
    async move { _ = shutdown.run_until_cancelled_owned(revoked).await }
}

/// Refuses one more of `what` if a bound is reached. The pairs are `(open, bound)`: of all callers,
/// and of this caller. Without keys there is one caller, which may have all.
///
/// # Errors
/// 503, if a bound is reached.
pub(in crate::http) fn check_room(
    what: &str,
    (all, max_total): (usize, usize),
    (own, max_own): (usize, usize),
    caller: &Caller,
) -> Result<(), ApiError> {
    let detail = match &*caller.name {
        _ if all >= max_total => {
            format!("{max_total} {what} are open, which is the maximum")
        }
        Caller::ANONYMOUS => return Ok(()),
        name if own >= max_own => {
            format!("{max_own} {what} of `{name}` are open, which is the maximum for one caller")
        }
        _ => return Ok(()),
    };
    let overloaded = CallError::Overloaded {
        retry_after: RETRY_AFTER,
        per_caller: None,
    };
    Err(ApiError::Call {
        failure: Failure {
            detail,
            ..Failure::from(&overloaded)
        },
        invocation: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(name: &str) -> Caller {
        Caller::new(name, false)
    }

    #[test]
    fn stream_share_is_per_caller() {
        let streams = Streams::with_limit("streams", 8);
        let (ann, bob) = (caller("ann"), caller("bob"));
        let mut held: Vec<_> = (0..2)
            .map(|_| streams.reserve_slot(&ann).unwrap())
            .collect();
        let refused = streams.reserve_slot(&ann).err().unwrap();
        assert!(
            matches!(refused, ApiError::Call { failure, .. } if failure.retry_after_ms == Some(5000))
        );
        held.extend((0..2).map(|_| streams.reserve_slot(&bob).unwrap()));
        held.truncate(1);
        assert!(streams.reserve_slot(&ann).is_ok(), "a dropped slot is free");
    }

    #[test]
    fn anonymous_caller_may_open_all_streams() {
        let streams = Streams::with_limit("streams", 8);
        let held: Vec<_> = (0..8)
            .map(|_| streams.reserve_slot(&Caller::anonymous()).unwrap())
            .collect();
        assert!(
            streams.reserve_slot(&Caller::anonymous()).is_err()
                && streams.reserve_slot(&caller("ann")).is_err()
        );
        drop(held);
        assert!(streams.0.open.lock().is_empty());
    }
}
