use toolcrib_macros::tool;

#[tool]
fn silent(text: String) -> String {
    text
}

/// # Errors
/// A heading is for people who read the code.
#[tool]
async fn heading_only() {}

#[tool(description = " ")]
fn blank() {}

#[tool]
#[doc = include_str!("description.rs")]
fn from_a_file() {}

fn main() {}
