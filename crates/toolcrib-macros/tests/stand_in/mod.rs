//! As much of the library as `#[tool]` names. The part that decides about return types is the
//! library's own file.

#[path = "../../../../src/kinds/attribute.rs"]
pub mod attribute;
pub mod native;

pub use attribute as __private;

pub struct Tool<R = ()>(R);

impl Tool<()> {
    pub fn new(_: &str, _: &str) -> Self {
        Tool(())
    }

    pub fn input_schema(self, _: serde_json::Value) -> Self {
        self
    }

    pub fn output_schema(self, _: serde_json::Value) -> Self {
        self
    }

    fn run_async<F>(self, _: bool, _: F) -> Tool {
        self
    }

    fn run_blocking<F>(self, _: bool, _: F) -> Tool {
        self
    }
}
