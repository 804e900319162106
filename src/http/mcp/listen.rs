//! Answers `subscriptions/listen` of 2026-07-28 without rmcp, if the client subscribes to changes of
//! its list of tools and to nothing else.
//!
//! rmcp starts a service with channels for each such stream, which takes twice as much memory as
//! the connection. Clients keep thousands of these streams open. All other subscriptions go to
//! rmcp.

use std::convert::Infallible;
use std::future::{Future, ready};

use axum::http::HeaderMap;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{StreamExt, once, unfold};
use serde_json::{Value, json};

use super::LISTEN_METHOD;
use super::message::Message;
use super::valid_request::{ValidRequest, has_only};
use crate::http::events::{HEARTBEAT, NO_BUFFERING};
use crate::mcp::ListSnapshot;

/// The key of `_meta` with the id of the request that opened the stream.
const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

/// A valid request to be notified when the list of tools changes.
pub(super) struct ToolListSubscription {
    id: Value,
}

impl ToolListSubscription {
    /// `None`, if the message is anything else.
    pub(super) fn read(headers: &HeaderMap, message: &Message) -> Option<Self> {
        let request = ValidRequest::read(headers, message, LISTEN_METHOD)?;
        let wanted = request.params.get("notifications")?.as_object()?;
        let is_plain = has_only(request.params, &["notifications", "_meta"])
            && has_only(wanted, &["toolsListChanged"])
            && wanted.get("toolsListChanged") == Some(&Value::Bool(true));
        let id = message.id.clone()?;
        is_plain.then_some(Self { id })
    }

    /// Streams the notifications until `end` returns. `kept_alive` is dropped with the stream.
    pub(super) fn stream(
        self,
        snapshot: ListSnapshot,
        end: impl Future<Output = ()> + Send + 'static,
        kept_alive: impl Send + 'static,
    ) -> Response {
        let meta = json!({SUBSCRIPTION: self.id});
        let acknowledged = notification(
            "notifications/subscriptions/acknowledged",
            json!({"_meta": meta, "notifications": {"toolsListChanged": true}}),
        );
        let changed = notification("notifications/tools/list_changed", json!({"_meta": meta}));
        let changes = unfold((snapshot, changed, kept_alive), |mut state| async move {
            state.0.wait_for_change().await;
            Some((state.1.clone(), state))
        });
        let events = once(ready(acknowledged)).chain(changes);
        let events = events.map(Ok::<_, Infallible>).take_until(Box::pin(end));
        let keep_alive = KeepAlive::new().interval(HEARTBEAT);
        ([NO_BUFFERING], Sse::new(events).keep_alive(keep_alive)).into_response()
    }
}

fn notification(method: &str, params: Value) -> Event {
    let message = json!({"jsonrpc": "2.0", "method": method, "params": params});
    Event::default().data(message.to_string())
}
