//! The message that starts a call in a worker.

use std::io::Write as _;
use std::ops::Not;

use serde::Serialize;
use tokio::time::Instant;

use super::protocol::Function;
use crate::call::{InvocationId, JsonObject, ToolContext, ToolName};

/// Bytes that are reserved for the head: its texts, and two numbers of at most 20 digits each.
const HEAD_ROOM: usize = 80;

/// The message, apart from its head: the call's id and the time left. They are known only when the
/// call gets a worker. So a call can have its message ready while it waits.
pub(super) struct CallMessage {
    /// Room for the head, and the rest of the line.
    buffer: Vec<u8>,
    /// Where the line starts in the buffer.
    start: usize,
    deadline: Instant,
}

/// A missing member has the same meaning as null, false or an empty object. To read the message is a
/// large part of the worker's time for a brief call.
#[derive(Serialize)]
struct Rest<'a> {
    tool: &'a str,
    arguments: &'a JsonObject,
    context: Context<'a>,
    #[serde(skip_serializing_if = "Not::not")]
    watched: bool,
    #[serde(skip_serializing_if = "Not::not")]
    asks: bool,
}

#[derive(Serialize)]
struct Context<'a> {
    invocation_id: InvocationId,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_use_id: Option<&'a str>,
    caller: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    agent: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    run_id: Option<&'a str>,
    attempt: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<&'a JsonObject>,
}

impl CallMessage {
    /// The message for a call of this function. The caller's context goes only to functions that
    /// take it.
    pub(super) fn new(function: &Function, arguments: &JsonObject, context: &ToolContext) -> Self {
        let rest = Rest {
            tool: &function.name,
            arguments,
            context: Context {
                invocation_id: context.invocation_id,
                tool_use_id: context.tool_use_id.as_deref(),
                caller: &context.caller.name,
                agent: context.agent().map(ToolName::as_str),
                run_id: context.run_id.as_deref(),
                attempt: context.attempt,
                state: Some(&*context.context)
                    .filter(|state| function.takes_context && !state.is_empty()),
            },
            watched: context.has_listener(),
            asks: function.may_ask() && context.can_ask(),
        };
        let mut buffer = Vec::with_capacity(512);
        buffer.resize(HEAD_ROOM, b' ');
        // Cannot fail: it writes to memory, and all keys are strings.
        let _ = serde_json::to_writer(&mut buffer, &rest);
        // The members of the head are in the same object.
        buffer[HEAD_ROOM] = b',';
        buffer.push(b'\n');
        Self {
            buffer,
            start: HEAD_ROOM,
            deadline: context.deadline,
        }
    }

    /// Completes the line: the id of the call in its worker, and the time left now.
    pub(super) fn set_head(&mut self, id: u64) {
        let time_left = self.deadline.saturating_duration_since(Instant::now());
        let deadline_ms = u64::try_from(time_left.as_millis()).unwrap_or(u64::MAX);
        let mut head = [0; HEAD_ROOM];
        let mut space = &mut head[..];
        // Cannot fail: there is room for the longest numbers.
        let _ = write!(
            space,
            r#"{{"op":"call","id":{id},"deadline_ms":{deadline_ms}"#
        );
        let length = HEAD_ROOM - space.len();
        self.start = HEAD_ROOM - length;
        self.buffer[self.start..HEAD_ROOM].copy_from_slice(&head[..length]);
    }

    /// The line, once it has a head.
    pub(super) fn line(&self) -> &[u8] {
        &self.buffer[self.start..]
    }

    /// The line for a call with this id.
    pub(super) fn into_line(mut self, id: u64) -> Vec<u8> {
        self.set_head(id);
        self.buffer.drain(..self.start);
        self.buffer
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use serde_json::{Value, json};

    use super::*;
    use crate::call::{Caller, Invocation, ToolSettings};

    fn message(takes_context: bool, deadline: Instant) -> CallMessage {
        let (tool, caller) = (ToolName::parse("t").unwrap(), Arc::new(Caller::anonymous()));
        let mut invocation =
            Invocation::new(tool, JsonObject::new(), caller, jiff::Timestamp::now());
        invocation.input.context = Arc::new(JsonObject::from_iter([(
            "tenant".to_owned(),
            json!("acme"),
        )]));
        let context = ToolContext::new(&invocation, deadline, Arc::new(ToolSettings::default()));
        let function = json!({
            "name": "f", "description": "", "input_schema": {}, "mode": "sync", "takes_context": takes_context,
        });
        let function: Function = serde_json::from_value(function).unwrap();
        CallMessage::new(&function, &JsonObject::new(), &context)
    }

    #[tokio::test(start_paused = true)]
    async fn context_reaches_only_functions_that_take_it() {
        for (takes_context, expected) in [(true, json!({"tenant": "acme"})), (false, json!(null))] {
            let line = message(takes_context, Instant::now()).into_line(7);
            let message: Value = serde_json::from_slice(&line).unwrap();
            assert_eq!(message["context"]["state"], expected);
            assert_eq!(
                (&message["op"], &message["id"], &message["tool"]),
                (&json!("call"), &json!(7), &json!("f"))
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn line_has_the_time_left_when_it_is_made() {
        let mut message = message(false, Instant::now() + Duration::from_secs(10));
        for (seconds, id, left) in [(0, u64::MAX, 10_000), (4, 1, 6_000), (7, 23, 0)] {
            tokio::time::advance(Duration::from_secs(seconds)).await;
            message.set_head(id);
            let line = message.line();
            // The worker reads the id of a line that is not JSON from its start.
            assert!(line.starts_with(format!(r#"{{"op":"call","id":{id},"#).as_bytes()));
            assert!(line.ends_with(b"}\n"));
            let read: Value = serde_json::from_slice(line).unwrap();
            assert_eq!(
                (&read["id"], &read["deadline_ms"]),
                (&json!(id), &json!(left))
            );
        }
    }
}
