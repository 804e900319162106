//! Reads OpenAPI documents: each operation becomes the definition and the request of an `http`
//! tool.
//!
//! - `document`: the document and its references, `yaml`: YAML, also that of manifests;
//! - `select`: which operations are wanted;
//! - `names`: names of tools and arguments;
//! - `parameters`, `body`: what of an argument goes where in the request, `style`: how it becomes
//!   text;
//! - `schema`: schemas of OpenAPI as JSON Schema, `sentences`: their descriptions;
//! - `servers`: the base URL;
//! - `operation`: one operation, `import`: all of them, and the credentials that they need.

mod body;
mod document;
mod import;
mod names;
mod operation;
mod parameters;
mod schema;
mod select;
mod sentences;
mod servers;
mod style;
#[cfg(test)]
mod tests;
pub(crate) mod yaml;

pub(crate) use self::yaml::parse as parse_yaml;

use url::Url;

pub use document::Document;
pub use import::import;
pub use names::{name_pattern, tool_name};
pub use operation::{Operation, shown_operation};
pub use select::Selector;
pub use sentences::append_sentence;
pub use style::Style;

/// The operator's decisions about a document.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The base URL of all operations. Default: the first server of the document.
    pub base_url: Option<String>,
    /// Where the document came from, for servers that are written without a host.
    pub document_url: Option<Url>,
    /// The operations that are wanted. Empty: all.
    pub include: Vec<Selector>,
    /// The operations that are not wanted. They take precedence over `include`.
    pub exclude: Vec<Selector>,
    /// The names of header fields that every request gets.
    pub headers: Vec<String>,
    /// The names of query parameters that every request gets.
    pub query: Vec<String>,
    /// Whether requests are authorized in another way, such as OAuth.
    pub has_auth: bool,
    /// Hosts besides the base URL's that operations may name as their server.
    pub allow_hosts: Vec<String>,
}

/// The result of reading a document.
#[derive(Debug, Default)]
pub struct Import {
    /// How many operations the document has.
    pub found: usize,
    /// The operations that become tools, in the order of the document.
    pub operations: Vec<Operation>,
    /// The wanted operations that cannot become tools.
    pub left_out: Vec<LeftOut>,
    /// Sentences for the operator.
    pub warnings: Vec<String>,
}

/// An operation that cannot be a tool.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, utoipa::ToSchema)]
#[schema(as = LeftOutView)]
pub struct LeftOut {
    /// The tool's name, as it would be.
    #[serde(skip)]
    pub name: String,
    /// Method and path.
    pub operation: String,
    /// Why it cannot be a tool.
    pub reason: String,
}
