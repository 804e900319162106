use toolcrib_macros::tool;

struct Shop;

impl Shop {
    /// Answers.
    #[tool]
    fn method(&self, text: String) {}
}

/// Answers.
#[tool]
fn generic<T>(value: T) {}

/// Answers.
#[tool]
fn lifetime<'a>() {}

/// Answers.
#[tool]
unsafe fn dangerous() {}

/// Answers.
#[tool]
extern "C" fn foreign() {}

/// No function.
#[tool]
struct Search;

fn main() {}
