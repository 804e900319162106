//! Messages of MCP servers. What is read can be sent and read again, and the scan for ids agrees.

use std::sync::Arc;

use serde_json::Map;
use tokio::time::Instant;
use toolcrib::call::{Caller, Invocation, ToolContext, ToolName};
use toolcrib::sources::mcp::fuzzing::read_message;

pub(crate) fn check(data: &[u8]) {
    let now = "2026-06-15T12:00:30Z".parse().unwrap();
    let caller = Arc::new(Caller::anonymous());
    let invocation = Invocation::new(ToolName::parse("t").unwrap(), Map::new(), caller, now);
    let context = ToolContext::new(&invocation, Instant::now(), Arc::default());
    let Some((message, result)) = read_message(data, &context) else {
        return;
    };
    let written = message.to_string();
    let (again, same_result) = read_message(written.as_bytes(), &context).expect("it is a message");
    assert_eq!(again, message);
    if let (Some(result), Some(same)) = (&result, &same_result) {
        assert_eq!(result.content, same.content);
        assert_eq!(result.structured_content, same.structured_content);
        assert_eq!(result.is_error, same.is_error);
    }
    assert_eq!(result.is_some(), same_result.is_some());
}
