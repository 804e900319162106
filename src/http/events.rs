//! Answers as server-sent events: the progress of calls while they run, then one `result` event.
//!
//! The work runs in a task of its own, so a client that reads slowly does not slow it down.
//! Dropping the answer's body drops the work. So a client that disconnects has the same effect as
//! with any other answer.

use std::convert::Infallible;
use std::future::Future;
use std::time::Duration;

use axum::http::header::ACCEPT;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::response::sse::{KeepAlive, Sse};
use axum::response::{IntoResponse, Response, sse};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use futures_util::stream::{Stream, unfold};
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use tokio_util::task::AbortOnDropHandle;

use super::problem::{ApiError, Problem};
use crate::call::{Event, Listener};

/// A comment is sent after this much silence, so that no proxy on the way treats the connection as
/// dead.
pub(super) const HEARTBEAT: Duration = Duration::from_secs(15);

/// With this header, nginx forwards each event at once, instead of when a buffer is full.
pub(super) const NO_BUFFERING: (HeaderName, HeaderValue) = (
    HeaderName::from_static("x-accel-buffering"),
    HeaderValue::from_static("no"),
);

/// Streams the events of `listener`, and then the output of `work` as the `result` event. Dropping
/// the answer drops `work`.
pub(super) fn stream_events<T: Serialize>(
    listener: Listener,
    work: impl Future<Output = T> + Send + 'static,
) -> Response {
    let work = AbortOnDropHandle::new(tokio::spawn(async move { to_json_text(&work.await) }));
    let result = work.map(|joined| {
        joined.unwrap_or_else(|error| {
            tracing::error!(%error, "the task behind a stream of events ended unexpectedly");
            to_json_text(&Problem::from(ApiError::Internal))
        })
    });
    let keep_alive = KeepAlive::new().interval(HEARTBEAT).text("heartbeat");
    (
        [NO_BUFFERING],
        Sse::new(event_sequence(listener, result.boxed())).keep_alive(keep_alive),
    )
        .into_response()
}

/// The JSON text of a value, for an event.
pub(super) fn to_json_text(value: &impl Serialize) -> Box<RawValue> {
    // Serialization cannot fail: all answers have string keys.
    to_raw_value(value).unwrap_or_default()
}

struct StreamState {
    listener: Listener,
    /// `None` once the work has ended.
    work: Option<BoxFuture<'static, Box<RawValue>>>,
    /// The output of the work, until it is sent.
    result: Option<Box<RawValue>>,
}

fn event_sequence(
    listener: Listener,
    work: BoxFuture<'static, Box<RawValue>>,
) -> impl Stream<Item = Result<sse::Event, Infallible>> {
    unfold(
        StreamState {
            listener,
            work: Some(work),
            result: None,
        },
        |mut state| async move {
            if let Some(work) = &mut state.work {
                tokio::select! {
                    // Poll the work first. Otherwise endless progress events would delay its result
                    // for ever.
                    biased;
                    result = work => (state.work, state.result) = (None, Some(result)),
                    Some(event) = state.listener.next() => return Some((Ok(to_sse_event(event)), state)),
                }
            }
            state.result.as_ref()?;
            // Events that were sent before the end are delivered before the result.
            if let Some(event) = state.listener.try_next() {
                return Some((Ok(to_sse_event(event)), state));
            }
            let result = state.result.take()?;
            Some((
                Ok(sse::Event::default().event("result").data(result.get())),
                state,
            ))
        },
    )
}

fn to_sse_event(event: Event) -> sse::Event {
    match event {
        Event::Progress(progress) => sse::Event::default()
            .event("progress")
            .data(to_json_text(&progress).get()),
        Event::Named(name, data) => sse::Event::default().event(name).data(data.get()),
    }
}

/// Whether a request prefers events: it lists `text/event-stream` by name, and does not prefer
/// JSON.
///
/// The higher weight wins. At equal weights, a JSON type listed by name wins if it comes first; a
/// range with a star does not win. Clients that list all types of an OpenAPI document list JSON
/// first.
pub(super) fn are_preferred(headers: &HeaderMap) -> bool {
    let values = headers
        .get_all(ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok());
    let (mut events, mut json) = (None::<(f32, usize)>, None::<(usize, f32, usize)>);
    for (position, range) in values.flat_map(|value| value.split(',')).enumerate() {
        let mut parts = range.split(';').map(str::trim);
        let media = parts.next().unwrap_or_default().to_ascii_lowercase();
        let weight =
            parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
        let Ok(weight) = weight.map_or(Ok(1.0), str::parse::<f32>) else {
            continue;
        };
        match media.as_str() {
            "text/event-stream" if weight > 0.0 => events = events.or(Some((weight, position))),
            "application/json" | "application/*" | "*/*" => {
                // The most specific range for JSON decides, as RFC 9110 requires.
                let specificity =
                    usize::from(media == "application/json") + usize::from(media != "*/*");
                if json.is_none_or(|(before, ..)| before < specificity) {
                    json = Some((specificity, weight, position));
                }
            }
            _ => {}
        }
    }
    match (events, json) {
        (None, _) => false,
        (Some(_), None) => true,
        (Some((weight, position)), Some((specificity, other, json_position))) => {
            weight > other || (weight >= other && (specificity < 2 || position < json_position))
        }
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;
    use serde_json::json;

    use super::*;
    use crate::call::ProgressSink;

    async fn body_text(response: Response) -> String {
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        String::from_utf8(bytes.to_vec()).unwrap()
    }

    #[tokio::test]
    async fn result_event_follows_the_named_events() {
        let (sink, listener) = ProgressSink::channel();
        let work = async move {
            for n in 0..2 {
                sink.send_event("call_result", &json!({"n": n, "text": "a\nb"}));
                tokio::task::yield_now().await;
            }
            json!({"results": [0, 1]})
        };
        let text = body_text(stream_events(listener, work)).await;
        let event =
            |n: u8| format!("event: call_result\ndata: {{\"n\":{n},\"text\":\"a\\nb\"}}\n\n");
        assert_eq!(
            text,
            event(0) + &event(1) + "event: result\ndata: {\"results\":[0,1]}\n\n"
        );
    }

    #[tokio::test]
    async fn panicked_work_ends_with_a_problem() {
        let (_sink, listener) = ProgressSink::channel();
        let text = body_text(stream_events(listener, async {
            if true {
                panic!("ours")
            }
        }))
        .await;
        let problem = text.strip_prefix("event: result\ndata: ").unwrap();
        let problem: serde_json::Value = serde_json::from_str(problem).unwrap();
        assert_eq!(
            (&problem["kind"], &problem["status"]),
            (&json!("internal"), &json!(500))
        );
    }

    #[test]
    fn events_need_a_higher_preference_than_json() {
        let prefers_events = |values: &[&'static str]| {
            are_preferred(
                &values
                    .iter()
                    .map(|value| (ACCEPT, HeaderValue::from_static(value)))
                    .collect(),
            )
        };
        for values in [
            &["text/event-stream"][..],
            &["Text/Event-Stream; q=0.5"],
            &["text/event-stream, */*"],
            &["*/*, text/event-stream"],
            &["text/event-stream, application/json"],
            &["application/json;q=0.9, text/event-stream"],
            &["application/json;q=0.9", "text/event-stream;q=0.95"],
            &["application/json;q=0, text/event-stream;q=0.1"],
            &["application/json;q=0.1, text/event-stream;q=0.5, */*;q=0.9"],
            &["application/json;q=0.1, text/event-stream;q=0.5, application/json;q=0.9"],
        ] {
            assert!(prefers_events(values), "{values:?}");
        }
        for values in [
            &[][..],
            &["*/*"],
            &["text/*"],
            &["application/json"],
            &["application/json, text/event-stream"],
            &["text/event-stream;q=0"],
            &["text/event-stream;q=0.5, */*"],
            &["text/event-stream;q=0.5, application/json"],
            &["text/event-stream;q=none"],
            &["text/event-streams"],
        ] {
            assert!(!prefers_events(values), "{values:?}");
        }
    }
}
