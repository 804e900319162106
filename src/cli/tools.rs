//! `toolcrib tools`: the tools that a manifest declares, or those of a running server, for people and
//! in the formats of APIs.

use clap::ValueEnum;
use clap::builder::PossibleValue;
use serde_json::{Value, json};

use super::Failure;
use super::client::{Client, ServerArgs, print_answer};
use super::findings::print_findings;
use super::manifest_file::{ManifestArg, log_demo};
use super::output::{is_terminal, print_json, print_note, print_table};
use super::table::{Content, Table};
use super::tool_tokens::Costs;
use crate::app::{self, DeclaredTools};
use crate::environment::Environment;
use crate::formats::{self, Format, ListedTool, NameRules};
use crate::http;
use crate::kinds::{OwnPorts, Tool, builtin};

const COLUMNS: [(&str, Content); 5] = [
    ("TOOL", Content::Name),
    ("KIND", Content::Word),
    ("EFFECT", Content::Word),
    ("STATE", Content::Word),
    ("DESCRIPTION", Content::Prose),
];

/// Arguments of `tools`.
#[derive(clap::Args)]
pub(super) struct ToolsArgs {
    #[command(flatten)]
    manifest: ManifestArg,
    #[command(flatten)]
    server: ServerArgs,
    /// A table, JSON, or the API whose shape to print. By default, a table on a terminal and JSON
    /// elsewhere.
    #[arg(long, value_enum)]
    format: Option<ToolsFormat>,
    /// What each tool costs in tokens, in each format, the biggest first, with advice. The format is
    /// a table or JSON.
    #[arg(long, conflicts_with = "server")]
    tokens: bool,
}

/// How tools are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ToolsFormat {
    /// For people.
    Table,
    /// Another word for `native`, as in other commands.
    Json,
    /// In the shape of an API.
    Api(Format),
}

impl ValueEnum for ToolsFormat {
    fn value_variants<'a>() -> &'a [Self] {
        &[
            Self::Table,
            Self::Json,
            Self::Api(Format::Native),
            Self::Api(Format::Openai),
            Self::Api(Format::OpenaiResponses),
            Self::Api(Format::Anthropic),
            Self::Api(Format::Gemini),
            Self::Api(Format::Bedrock),
            Self::Api(Format::Mcp),
        ]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        match self {
            Self::Table => Some(PossibleValue::new("table").help("For people")),
            Self::Json => Some(PossibleValue::new("json").help("The same as `native`")),
            Self::Api(format) => format.to_possible_value(),
        }
    }
}

pub(super) async fn run(args: ToolsArgs, environment: &Environment) -> Result<(), Failure> {
    let format = args.format.unwrap_or(match is_terminal() {
        true => ToolsFormat::Table,
        false => ToolsFormat::Json,
    });
    if let Some(client) = args.server.client()? {
        return print_tools_of_server(&client, format, environment).await;
    }
    let mut declared = load_tools(&args.manifest, environment).await?;
    let tools = &mut declared.tools;
    tools.sort_by(|a, b| a.name().cmp(b.name()));
    match format {
        ToolsFormat::Table if args.tokens => {
            let costs = Costs::of(tools);
            print_table(&costs.table(), "no tools", environment);
            costs.notes().iter().for_each(|note| print_note(note));
        }
        _ if args.tokens => print_json(&Costs::of(tools).to_json()),
        ToolsFormat::Table => print_table(&build_table(tools), "no tools", environment),
        ToolsFormat::Json | ToolsFormat::Api(Format::Native) => print_json(&native_list(tools)),
        ToolsFormat::Api(format) => {
            let named = tools
                .iter()
                .map(|tool| (&tool.definition.name, tool.definition.aliases.as_slice()));
            let spellings = named.collect();
            let names = NameRules {
                spellings: &spellings,
                matching: declared.calls.name_matching,
            };
            print_json(&formats::render(
                format,
                tools.iter().map(ListedTool::from),
                names,
            ));
        }
    }
    declared
        .warnings
        .iter()
        .for_each(|warning| print_note(warning));
    print_findings(&declared.findings);
    fail_on_faults(declared.faults)
}

/// The tools that a manifest declares, or those of the demo.
pub(super) async fn load_tools(
    manifest: &ManifestArg,
    environment: &Environment,
) -> Result<DeclaredTools, Failure> {
    if let Some(path) = manifest.path()? {
        return Ok(app::load_declared(&path, environment, log_progress).await?);
    }
    log_demo();
    Ok(DeclaredTools {
        tools: builtin::demo_tools(&OwnPorts::default()),
        ..DeclaredTools::default()
    })
}

async fn print_tools_of_server(
    client: &Client,
    format: ToolsFormat,
    environment: &Environment,
) -> Result<(), Failure> {
    let path = match format {
        ToolsFormat::Table | ToolsFormat::Json => "/tools?discovery=off".to_owned(),
        ToolsFormat::Api(format) => format!("/tools?format={}", format.as_str()),
    };
    let answer = client.get(&path).await?;
    print_answer(answer, format == ToolsFormat::Table, |answer| {
        print_table(&build_table_of_answer(answer), "no tools", environment);
    })
}

fn build_table_of_answer(answer: &Value) -> Table {
    let mut table = Table::new(&COLUMNS);
    for tool in answer["tools"].as_array().into_iter().flatten() {
        let text = |key: &str| tool[key].as_str().unwrap_or_default().to_owned();
        let state = match tool["available"] == json!(false) {
            true => "not available",
            false => "",
        };
        table.add_row([
            text("name"),
            text("kind"),
            text("effect"),
            state.to_owned(),
            text("description"),
        ]);
    }
    table
}

pub(super) fn native_list(tools: &[Tool]) -> Value {
    let tools: Vec<http::DeclaredTool<'_>> = tools.iter().map(http::DeclaredTool::from).collect();
    json!({"tools": tools, "next_cursor": null})
}

fn build_table(tools: &[Tool]) -> Table {
    let mut table = Table::new(&COLUMNS);
    for tool in tools {
        let state = match tool {
            _ if tool.quarantined => "quarantined",
            _ if !tool.policy.enabled => "disabled",
            _ => "",
        };
        table.add_row([
            tool.name().to_owned(),
            tool.kind.as_str().to_owned(),
            tool.policy.effect.as_str().to_owned(),
            state.to_owned(),
            tool.definition.description.to_string(),
        ]);
    }
    table
}

/// Logs what a source is doing, because the user has to wait for it.
pub(super) fn log_progress(source: &str, what: &str) {
    tracing::info!(source, doing = what, "a source is loading");
}

/// Fails if sources failed, because the printed list lacks their tools.
pub(super) fn fail_on_faults(faults: Vec<String>) -> Result<(), Failure> {
    if faults.is_empty() {
        Ok(())
    } else {
        Err(Failure::Failed(faults.join("\n")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_format_has_a_word() {
        let words: Vec<String> = ToolsFormat::value_variants()
            .iter()
            .filter_map(|format| Some(format.to_possible_value()?.get_name().to_owned()))
            .collect();
        let formats = Format::ALL.map(|(name, _)| name.to_owned());
        assert_eq!(
            words,
            [&["table".to_owned(), "json".to_owned()][..], &formats].concat()
        );
    }
}
