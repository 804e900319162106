use toolcrib_macros::tool;

/// Answers.
#[tool(
    effect = "reads",
    timeout = "10",
    deadline = 10,
    limits(calls = "100", per = "day"),
    limits(calls = 100),
    limits(per = "week", calls = 1),
    concurrency(max = 0),
    on_disconnect = "stop",
    idempotency = "always",
    capture = "none",
    tags = "search",
    aliases = ["two words"],
    env(description = "A key"),
    annotations(readOnlyHint = "yes"),
    strict = 1,
    name = "a/b",
)]
fn wrong() {}

/// Answers.
#[tool(effect = "read", timeout = "0s", retry(attempts = 0), cache_ttl = "soon")]
fn nothing() {}

fn main() {}
