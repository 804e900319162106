//! `toolcrib import openapi`: the operations of an OpenAPI document as tools.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde_json::{Map, json};

use super::super::Failure;
use super::super::output::print_line;
use super::{print_yaml, read_input};
use crate::openapi::{Import, Selector};
use crate::tools::openapi::{ApiSettings, DocumentLocation, compilable_schema, read_document};

/// Arguments of `import openapi`.
#[derive(Args)]
pub(in crate::cli) struct OpenapiArgs {
    /// The document, as YAML or JSON; `-` reads standard input.
    file: PathBuf,
    /// The base URL of all operations. By default, the first server of the document.
    #[arg(long)]
    base_url: Option<String>,
    /// Operations to print: method and path, path, operationId or tag; `*` stands for any characters.
    #[arg(long)]
    include: Vec<String>,
    /// Operations to leave out.
    #[arg(long)]
    exclude: Vec<String>,
    /// Text before the name of every tool.
    #[arg(long, default_value = "")]
    prefix: String,
}

pub(super) fn print_openapi_tools(args: OpenapiArgs) -> Result<(), Failure> {
    let text = read_input(&args.file)?;
    let selectors = |option: &str, texts: &[String]| -> Result<Vec<Selector>, Failure> {
        let parsed: Result<_, String> = texts.iter().map(|text| Selector::parse(text)).collect();
        parsed.map_err(|message| Failure::Usage(format!("--{option}: {message}")))
    };
    let settings = ApiSettings {
        name: "import".into(),
        document: DocumentLocation::File(args.file.clone()),
        base_url: args.base_url,
        include: selectors("include", &args.include)?,
        exclude: selectors("exclude", &args.exclude)?,
        headers: Default::default(),
        query: Default::default(),
        auth: None,
        allow_private: false,
        allow_hosts: Vec::new(),
        max_output: None,
        start_timeout: Duration::ZERO,
    };
    let shown = args.file.display();
    let Import { found, operations, left_out, warnings } =
        read_document(&settings, &text).map_err(|message| Failure::Usage(format!("{shown}: {message}")))?;
    print_line(&format!("# {} of {found} operations of {shown}", operations.len()));
    for warning in warnings {
        print_line(&format!("# {warning}"));
    }
    for left_out in left_out {
        print_line(&format!("# left out: {}: {}", left_out.operation, left_out.reason));
    }
    let mut tools = Map::new();
    for operation in operations {
        let input_schema = match compilable_schema(&operation.input_schema) {
            Ok(schema) => schema,
            Err(reason) => {
                print_line(&format!(
                    "# left out: {} {}: {reason}",
                    operation.method.to_ascii_uppercase(),
                    operation.path
                ));
                continue;
            }
        };
        let mut tool = json!({
            "kind": "http",
            "description": operation.description,
            "input_schema": input_schema,
        });
        if let Some(schema) = operation.output_schema {
            tool["output_schema"] = schema;
        }
        tool["request"] = operation.request.into();
        tool["effect"] = operation.effect.as_str().into();
        if !operation.tags.is_empty() {
            tool["tags"] = operation.tags.into();
        }
        tools.insert(format!("{}{}", args.prefix, operation.name), tool);
    }
    print_yaml(&json!({"tools": tools}))
}
