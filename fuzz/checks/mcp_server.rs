//! What a client of MCP may write to standard input. Every line that comes back is a JSON-RPC
//! message, and no request gets two results.

use std::collections::HashMap;
use std::future::pending;
use std::io::Cursor;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use serde_json::Value;
use tokio::io::AsyncReadExt;
use tokio::runtime::{Builder, Runtime};
use toolcrib::mcp::Handler;
use toolcrib::mcp::stdio::{Limits, serve};
use toolcrib::{Effect, Registry, Tool};

const BEGINNING: &str = concat!(
    r#"{"jsonrpc":"2.0","id":"first","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}"#,
    "\n",
    r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
    "\n",
);
const LIMITS: Limits = Limits {
    max_message: 4096,
    drain: Duration::from_millis(50),
};

static RUNTIME: LazyLock<Runtime> =
    LazyLock::new(|| Builder::new_current_thread().enable_all().build().unwrap());
static REGISTRY: LazyLock<Arc<Registry>> = LazyLock::new(|| {
    let echo = Tool::new("echo", "Returns a text.")
        .param("text", "string", "The text")
        .effect(Effect::Read)
        .call(|arguments, _| async move {
            Ok(arguments["text"].as_str().unwrap_or_default().to_owned())
        });
    RUNTIME
        .block_on(Registry::builder().tool(echo).build())
        .unwrap()
});

pub(crate) fn check(data: &[u8]) {
    let Some((first, rest)) = data.split_first() else {
        return;
    };
    let input = match first % 2 {
        0 => [BEGINNING.as_bytes(), rest].concat(),
        _ => rest.to_vec(),
    };
    let output = answer(input.clone());
    let mut asked = HashMap::<String, i32>::new();
    for line in input.split(|byte| *byte == b'\n') {
        if let Ok(Value::Object(message)) = serde_json::from_slice(line)
            && let Some(id) = message.get("id")
        {
            *asked.entry(id.to_string()).or_default() += 1;
        }
    }
    let text = String::from_utf8(output).expect("the output is UTF-8");
    for line in text.lines() {
        let message: Value = serde_json::from_str(line).expect("each line is JSON");
        assert_eq!(message["jsonrpc"], "2.0", "{line}");
        let is_answer = message.get("result").is_some() || message.get("error").is_some();
        assert!(is_answer || message["method"].is_string(), "{line}");
        // A line that is not JSON gets an error under the id that stands in it, so errors are not
        // counted.
        if message.get("result").is_some() {
            let left = asked.entry(message["id"].to_string()).or_default();
            *left -= 1;
            assert!(*left >= 0, "one answer too many: {line}");
        }
    }
}

fn answer(input: Vec<u8>) -> Vec<u8> {
    let registry = REGISTRY.clone();
    RUNTIME.block_on(async {
        let (ours, theirs) = tokio::io::duplex(1 << 20);
        let handler = Handler::for_operator(registry.clone(), None);
        let running = &registry.shared().in_flight_calls;
        let mut output = Vec::new();
        let mut ours = ours;
        let serving = serve(
            handler,
            (Cursor::new(input), theirs),
            running,
            LIMITS,
            pending(),
            pending(),
        );
        let (read, ()) = tokio::join!(ours.read_to_end(&mut output), serving);
        read.unwrap();
        output
    })
}
