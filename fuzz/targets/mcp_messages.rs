#![no_main]

#[path = "../checks/mcp_messages.rs"]
mod mcp_messages;

libfuzzer_sys::fuzz_target!(|data: &[u8]| mcp_messages::check(data));
