//! A result without a schema. The library is not here, so something stands in for it.

#[path = "../stand_in/call.rs"]
mod call;
#[path = "../stand_in/mod.rs"]
mod stand_in;

use toolcrib_macros::tool;

/// Returns what has no schema.
#[tool(crate = crate::stand_in)]
fn result() -> Result<std::thread::ThreadId, String> {
    Ok(std::thread::current().id())
}

fn main() {}
