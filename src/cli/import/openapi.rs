//! `toolcrib import openapi`: the operations of an OpenAPI document as tools.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde_json::{Map, json};

use super::super::Failure;
use super::super::output::print_line;
use super::{print_yaml, read_input};
use crate::schema::{SchemaOwner, relax};
use crate::sources::openapi::reader::{Import, Selector};
use crate::sources::openapi::{ApiSettings, DocumentLocation, compilable_schema, read_document};

/// Arguments of `import openapi`.
#[derive(Args)]
pub(in crate::cli) struct OpenapiArgs {
    /// The document, as YAML or JSON; `-` reads standard input.
    file: PathBuf,
    /// The base URL of all operations. By default, the first server of the document.
    #[arg(long)]
    base_url: Option<String>,
    /// A host besides that of the base URL which operations may name as their server.
    #[arg(long = "allow-host", value_name = "HOST")]
    allow_hosts: Vec<String>,
    /// Operations to print: method and path, path, operationId or tag; `*` stands for any
    /// characters.
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
        allow_hosts: args.allow_hosts,
        max_output: None,
        start_timeout: Duration::ZERO,
    };
    let shown = args.file.display();
    let Import {
        found,
        operations,
        left_out,
        warnings,
    } = read_document(&settings, &text)
        .map_err(|message| Failure::Usage(format!("{shown}: {message}")))?;
    let mut left_out: Vec<String> = left_out
        .into_iter()
        .map(|left_out| format!("{}: {}", left_out.operation, name_options(&left_out.reason)))
        .collect();
    let mut tools = Map::new();
    for operation in operations {
        let mut input_schema = match compilable_schema(&operation.input_schema) {
            Ok(schema) => schema,
            Err(reason) => {
                left_out.push(format!(
                    "{} {}: {reason}",
                    operation.method.to_ascii_uppercase(),
                    operation.path
                ));
                continue;
            }
        };
        // In the manifest it is an own schema, and must permit what the API permits.
        relax(&mut input_schema, SchemaOwner::Foreign);
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
    if tools.is_empty() {
        let reason = left_out
            .first()
            .map_or("`--include` selects none of them", String::as_str);
        return Err(Failure::Usage(format!(
            "{shown}: none of its {found} operations becomes a tool: {reason}"
        )));
    }
    print_line(&format!(
        "# {} of {found} operations of {shown}",
        tools.len()
    ));
    for line in warnings {
        print_line(&format!("# {line}"));
    }
    for line in left_out {
        print_line(&format!("# left out: {line}"));
    }
    print_yaml(&json!({"tools": tools}))
}

/// The reason with the options of this command in place of the keys of a manifest.
fn name_options(reason: &str) -> String {
    reason
        .replace("write `base_url`", "give --base-url")
        .replace("write this host in `allow_hosts`", "give --allow-host")
}
