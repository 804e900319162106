//! Traces: `context.rs` reads and writes W3C Trace Context, `span.rs` has the spans of a call.

mod context;
mod span;

pub use context::TraceContext;
pub use span::{CallSpan, CallTrace, ChildSpan, ChildWork, McpRequest, TOOL_ERROR_TYPE, derive_id};
