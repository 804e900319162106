use toolcrib_macros::tool;

struct ToolContext;

/// Answers.
#[tool]
fn patterns((x, y): (i64, i64), _: String) {}

/// Answers.
#[tool]
fn references(text: &str, parts: &[u8], names: Vec<&'static str>, context: &ToolContext) {}

/// Answers.
#[tool]
fn opaque(text: impl Into<String>) -> impl Into<String> {
    text
}

/// Answers.
#[tool]
fn attributes(#[tool(min = 1)] a: i64, #[clap(short)] b: i64, #[tool(default = 1)] context: ToolContext) {}

/// Answers.
#[tool]
fn contexts(one: ToolContext, other: ToolContext) {}

fn main() {}
