//! OpenAPI documents as sources: `reader/` makes the definition and the request of an `http` tool of
//! each operation, `source.rs` fetches the document and builds the tools.

pub mod reader;
mod source;

pub use source::{
    Api, ApiSettings, DocumentLocation, build_tools, compilable_schema, read_document,
};
