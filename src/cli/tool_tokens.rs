//! `toolcrib tools --tokens`: what each tool costs a model, and how to make it cheaper.

use serde_json::{Value, json};

use super::table::{Content, Table};
use crate::formats::brief::brief_definition;
use crate::formats::{Format, ListedTool, tokens};
use crate::kinds::Tool;

/// The formats that models get.
const COLUMNS: [(&str, Format); 6] = [
    ("ANTHROPIC", Format::Anthropic),
    ("OPENAI", Format::Openai),
    ("RESPONSES", Format::OpenaiResponses),
    ("GEMINI", Format::Gemini),
    ("BEDROCK", Format::Bedrock),
    ("MCP", Format::Mcp),
];
/// A tool that costs less needs no advice.
const MIN_TO_ADVISE: usize = 200;
/// A list that costs more is better shortened.
const LONG_LIST: usize = 10_000;

/// The most tools that the notes give advice about.
const MAX_ADVICE: usize = 10;

/// What one tool costs.
struct Cost<'a> {
    name: &'a str,
    tokens: [usize; COLUMNS.len()],
    advice: String,
}

impl<'a> Cost<'a> {
    fn of(tool: &'a Tool) -> Self {
        let listed = ListedTool::from(tool);
        let tokens = COLUMNS.map(|(_, format)| tokens::of_tool(format, &listed));
        let brief = brief_definition(&tool.definition);
        let brief = ListedTool {
            definition: &brief,
            ..listed
        };
        let [anthropic, .., mcp] = tokens;
        let saved = anthropic.saturating_sub(tokens::of_tool(Format::Anthropic, &brief));
        let mut advice = Vec::new();
        if anthropic > MIN_TO_ADVISE {
            let description = tokens::of_bytes(tool.definition.description.len());
            if description * 2 > anthropic {
                advice.push(format!("its description is {description}: shorten it"));
            } else if saved * 4 > anthropic {
                advice.push(format!("detail=brief saves {saved}"));
            }
        }
        if mcp > MIN_TO_ADVISE && mcp > anthropic * 2 {
            let output = mcp - anthropic;
            advice.push(format!("its output schema is {output} of MCP's list"));
        }
        Self {
            name: tool.name(),
            tokens,
            advice: advice.join("; "),
        }
    }
}

/// The costs of all tools, the biggest first.
pub(super) struct Costs<'a>(Vec<Cost<'a>>);

impl<'a> Costs<'a> {
    pub(super) fn of(tools: &'a [Tool]) -> Self {
        let available = tools.iter().filter(|tool| tool.is_available());
        let mut costs: Vec<Cost<'a>> = available.map(Cost::of).collect();
        costs.sort_by_key(|cost| std::cmp::Reverse(cost.tokens));
        Self(costs)
    }

    fn totals(&self) -> [usize; COLUMNS.len()] {
        let sum = |totals: [usize; COLUMNS.len()], cost: &Cost<'_>| {
            let mut cells = cost.tokens.into_iter();
            totals.map(|total| total + cells.next().unwrap_or_default())
        };
        self.0.iter().fold([0; COLUMNS.len()], sum)
    }

    pub(super) fn table(&self) -> Table {
        let mut columns = vec![("TOOL", Content::Name)];
        columns.extend(COLUMNS.map(|(title, _)| (title, Content::Number)));
        let mut table = Table::new(&columns);
        let mut add = |name: String, tokens: [usize; COLUMNS.len()]| {
            let cells = tokens.map(|number| number.to_string());
            table.add_row([name].into_iter().chain(cells));
        };
        for cost in &self.0 {
            add(cost.name.to_owned(), cost.tokens);
        }
        if self.0.len() > 1 {
            add(format!("{} tools", self.0.len()), self.totals());
        }
        table
    }

    /// What the numbers are, and advice about the biggest tools and the whole list. Beside the numbers
    /// there is no room for it.
    pub(super) fn notes(&self) -> Vec<String> {
        let mut notes = vec![format!("estimated: {}", tokens::ESTIMATE)];
        let advised = self.0.iter().filter(|cost| !cost.advice.is_empty());
        let advice = advised.map(|cost| format!("{}: {}", cost.name, cost.advice));
        notes.extend(advice.take(MAX_ADVICE));
        if self
            .totals()
            .first()
            .is_some_and(|total| *total > LONG_LIST)
        {
            let advice = "the list is long: set `discovery`, give each caller a toolset, or list with detail=brief";
            notes.push(advice.to_owned());
        }
        notes
    }

    pub(super) fn to_json(&self) -> Value {
        let named = |tokens: [usize; COLUMNS.len()]| -> Value {
            let formats = COLUMNS.iter().map(|(_, format)| format.as_str().to_owned());
            formats
                .zip(tokens.map(Value::from))
                .collect::<serde_json::Map<_, _>>()
                .into()
        };
        let tools = self.0.iter().map(
            |cost| json!({"name": cost.name, "tokens": named(cost.tokens), "advice": cost.advice}),
        );
        json!({"tools": tools.collect::<Vec<_>>(), "total": named(self.totals()), "estimate": tokens::ESTIMATE})
    }
}
