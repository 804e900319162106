//! Faults that rustc finds in what the attribute writes. The library is not here, so something
//! stands in for it.

#[path = "../stand_in/call.rs"]
mod call;
#[path = "../stand_in/mod.rs"]
mod stand_in;

use toolcrib_macros::tool;

/// Waits where it cannot.
#[tool(crate = crate::stand_in)]
fn blocking() -> String {
    std::future::ready(String::new()).await
}

/// Has a default of another type.
#[tool(crate = crate::stand_in)]
fn default(#[tool(default = 1.5)] least: u32) -> String {
    least.to_string()
}

fn main() {}
