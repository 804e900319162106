use toolcrib_macros::tool;

struct ToolContext;

/// Answers.
#[tool(retry(attempts = 3))]
fn retried_write() {}

/// Answers.
#[tool(effect = "idempotent", cache_ttl = "5m")]
fn cached_write() {}

/// Answers.
#[tool(effect = "read", cache_ttl = "5m", cache(ttl = "5m"))]
fn cached_twice() {}

/// Answers.
#[tool(effect = "read", cache(scope = "shared"))]
fn cached_for_how_long() {}

/// Answers.
#[tool(effect = "read", cache_ttl = "5m")]
fn cached_by_what(context: ToolContext) {}

/// Answers.
#[tool(context = ["tenant"])]
fn takes_no_context() {}

/// Answers.
#[tool(context = ["user.id"])]
fn takes_a_path(context: ToolContext) {}

fn main() {}
