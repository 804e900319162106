//! The handler of `GET /events`.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, HeaderName};
use axum::response::sse::Sse;
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;

use super::resume::Resumed;
use super::stream::EventStream;
use crate::http::api::usage::route::NoParameters;
use crate::http::edge::auth::Principal;
use crate::http::events::NO_BUFFERING;
use crate::http::mcp::streams::stream_end;
use crate::http::openapi::responses::{
    AuthResponses, CommonResponses, LedgerResponses, QueryResponses,
};
use crate::http::problem::ApiError;
use crate::http::query::QueryParams;
use crate::http::state::AppState;
use crate::tracking::events::Cursor;

/// The header with the id of the last event that a client has.
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// Watch what happens.
///
/// A stream of server-sent events without end: `invocation.started`, `invocation.progress`,
/// `invocation.ended`, `approval.waiting`, `approval.decided`, `source.changed`, `tools.changed`, and
/// `missed`. A caller sees its own calls, the approvals that it may decide, and changes of its
/// tools. An admin sees all. The data of a call is an element of `GET /invocations`, with arguments
/// up to 2 KiB. With `Last-Event-ID`, the stream begins with the calls that have ended since that
/// event, at most 1000. Such a call may come twice, but is not left out.
#[utoipa::path(get, operation_id = "watch_events", path = "/events", tag = "operator",
    params(("last-event-id" = Option<String>, Header, description = "The `id` of the last event that the client has.")),
    responses((status = 200, description = "The events", body = String, content_type = "text/event-stream"),
    CommonResponses, AuthResponses, QueryResponses, LedgerResponses))]
pub(in crate::http) async fn get_events(
    State(state): State<AppState>,
    Principal(caller): Principal,
    QueryParams(NoParameters {}): QueryParams<NoParameters>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let cursor = headers.get(LAST_EVENT_ID).map(|id| {
        let id = id.to_str().ok().and_then(|id| id.parse::<Cursor>().ok());
        id.ok_or_else(|| {
            ApiError::Malformed(
                "Last-Event-ID is the id of an event of GET /events, unchanged; leave it out to begin now".into(),
            )
        })
    });
    let cursor = cursor.transpose()?;
    let slot = state.event_slots.reserve_slot(&caller)?;
    let shared = state.registry.shared();
    // One subscriber for each slot, so there is room.
    let subscription = shared.in_flight_calls.events().subscribe();
    let subscription = subscription.ok_or(ApiError::Internal)?;
    let begin = subscription.cursor();
    // The ledger is read after the subscription began. So a call that ends now is found there, or
    // gives an event.
    let resumed = match cursor {
        Some(cursor) => Some((cursor, Resumed::read(shared, &caller, cursor).await?)),
        None => None,
    };
    let polls = state.event_polls.begin(shared);
    let end = stream_end(
        state.shutdown.clone(),
        state.registry.clone(),
        &headers,
        caller.clone(),
    );
    let (registry, live) = (state.registry.clone(), state.live.clone());
    let mut events = EventStream::new(caller, subscription, begin, &registry, live);
    if let Some((cursor, resumed)) = resumed {
        events.resend(cursor, resumed);
    }
    let kept = Arc::new((slot, polls));
    let events = futures_util::stream::unfold((events, kept), |(mut events, kept)| async move {
        let event = events.next().await;
        Some((Ok::<_, std::convert::Infallible>(event), (events, kept)))
    });
    let events = events.take_until(Box::pin(end));
    Ok(([NO_BUFFERING], Sse::new(events)).into_response())
}
