#![no_main]

#[path = "../checks/mcp_server.rs"]
mod mcp_server;

libfuzzer_sys::fuzz_target!(|data: &[u8]| mcp_server::check(data));
