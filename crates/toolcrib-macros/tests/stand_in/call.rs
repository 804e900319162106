pub struct ToolContext;

#[derive(Debug)]
pub struct ToolError;

pub struct ToolResult;

impl From<String> for ToolError {
    fn from(_: String) -> Self {
        Self
    }
}
