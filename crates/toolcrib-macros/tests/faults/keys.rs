use toolcrib_macros::tool;

/// Answers.
#[tool(timeuot = "10s", timeout = "10s", timeout = "20s")]
fn unknown_and_twice() {}

/// Answers.
#[tool(retry(attempt = 3))]
fn unknown_below() {}

/// Answers.
#[tool(retry = 3)]
fn not_a_list() {}

/// Answers.
#[tool(effect)]
fn no_value() {}

fn main() {}
