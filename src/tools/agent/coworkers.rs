//! Delegation to other agents: `delegate_work` and `ask_question`. They are offered to a model that has coworkers, and
//! exist as tools of their own.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::prompt::with_context;
use crate::call::{
    AvailableTool, Definition, JsonObject, Kind, NoAnswer, SubAnswer, SubCall, ToolContext, ToolInvoker, ToolName,
    ToolResult,
};
use crate::tool_pattern::{ToolPattern, any_grants};

/// How one agent delegates to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::tools) enum Way {
    /// The tool `delegate_work`.
    Delegate,
    /// The tool `ask_question`.
    Ask,
}

impl Way {
    pub(in crate::tools) const ALL: [Self; 2] = [Self::Delegate, Self::Ask];

    /// The tool's name.
    pub(in crate::tools) fn name(self) -> &'static str {
        match self {
            Self::Delegate => "delegate_work",
            Self::Ask => "ask_question",
        }
    }

    /// The description for the model: when to use the tool.
    pub(in crate::tools) fn description(self) -> &'static str {
        match self {
            Self::Delegate => {
                "Hands a piece of work to a coworker, another agent, and returns what it comes to. The coworker knows nothing of \
                 this conversation: put everything it needs into task and context."
            }
            Self::Ask => {
                "Asks a coworker, another agent, a question and returns its answer. The coworker knows nothing of this \
                 conversation: put everything it needs into question and context."
            }
        }
    }

    /// The name of the parameter for the task.
    fn wants(self) -> &'static str {
        match self {
            Self::Delegate => "task",
            Self::Ask => "question",
        }
    }

    /// The input schema. `coworkers` are the names to choose from, if they are known.
    pub(in crate::tools) fn input_schema(self, coworkers: &[&str]) -> Value {
        let what = match self {
            Self::Delegate => "What the coworker is to do, in full, and what is to come of it",
            Self::Ask => "The question, in full",
        };
        let mut coworker = json!({"type": "string", "description": "The coworker's name"});
        if !coworkers.is_empty() {
            coworker["enum"] = json!(coworkers);
        }
        json!({
            "type": "object",
            "properties": {
                self.wants(): {"type": "string", "description": what},
                "context": {"type": "string", "description": "Everything that the coworker has to know for it"},
                "coworker": coworker,
            },
            "required": [self.wants(), "context", "coworker"],
            "additionalProperties": false,
        })
    }

    /// Reads the arguments. The error is a text for the model.
    pub(in crate::tools) fn read(self, arguments: JsonObject) -> Result<Work, String> {
        let written: Written = serde_json::from_value(Value::Object(arguments))
            .map_err(|error| format!("The arguments of {} do not fit: {error}.", self.name()))?;
        let Written { task, question, context, coworker } = written;
        let what = if self == Self::Delegate { task } else { question };
        match what.filter(|text| !text.trim().is_empty()) {
            Some(task) => Ok(Work { task, context: context.unwrap_or_default(), coworker }),
            None => Err(format!("The arguments of {} do not fit: `{}` is missing.", self.name(), self.wants())),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    task: Option<String>,
    question: Option<String>,
    context: Option<String>,
    coworker: String,
}

/// A task and the name of the coworker that gets it.
#[derive(Debug, PartialEq)]
pub(in crate::tools) struct Work {
    pub(in crate::tools) task: String,
    pub(in crate::tools) context: String,
    pub(in crate::tools) coworker: String,
}

/// The agents to which work may be delegated.
pub(in crate::tools) struct Coworkers<'a> {
    others: &'a dyn ToolInvoker,
    /// Patterns of names; `None`: all agents that the caller may use.
    names: Option<&'a [ToolPattern]>,
}

impl<'a> Coworkers<'a> {
    pub(in crate::tools) fn new(others: &'a dyn ToolInvoker, names: Option<&'a [ToolPattern]>) -> Self {
        Self { others, names }
    }

    /// The coworkers that exist now and may be called.
    pub(super) fn here(&self, context: &ToolContext) -> Vec<AvailableTool> {
        let mut offers = self.others.offers(context, &|tool| self.is_named(tool));
        offers.retain(|offer| offer.kind == Kind::Agent && takes_task(&offer.definition));
        offers
    }

    fn is_named(&self, tool: &Definition) -> bool {
        self.names.is_none_or(|names| any_grants(names, tool.names(), |_| false))
    }

    /// Calls the coworker with the work.
    ///
    /// # Errors
    /// A text for the model.
    pub(in crate::tools) async fn hand(
        &self,
        work: Work,
        context: &ToolContext,
        terms: Terms,
    ) -> Result<SubAnswer, String> {
        let here = self.here(context);
        let is_here = |tool: &Definition| here.iter().any(|offer| offer.definition.name == tool.name);
        // Models write a coworker's name as other frameworks do: in quotes, or with line breaks.
        let name = work.coworker.trim_matches(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '`')).to_owned();
        let name = self.others.resolve(context, &is_here, &name).map_err(|meant| unknown(&name, &meant, &here))?;
        let takes_context = here.iter().filter(|offer| offer.definition.name == name).any(|offer| {
            offer.definition.input_schema.get("properties").is_some_and(|fields| fields.get("context").is_some())
        });
        let arguments = match takes_context {
            true if work.context.trim().is_empty() => json!({"task": work.task}),
            true => json!({"task": work.task, "context": work.context}),
            false => json!({"task": with_context(&work.task, &work.context)}),
        };
        let call = SubCall {
            name: name.to_string(),
            arguments,
            cut_off: false,
            tool_use_id: terms.tool_use_id,
            deadline: terms.deadline,
            levels: terms.levels,
        };
        match self.others.call(context, &is_here, call).await {
            Ok(answer) => Ok(answer),
            Err(NoAnswer::Unknown(meant)) => Err(unknown(name.as_str(), &meant, &here)),
            Err(NoAnswer::TooDeep(levels)) => Err(super::turn::too_deep(levels)),
            Err(NoAnswer::Failed(failure)) => Err(failure.for_model),
        }
    }
}

/// A list of agents, one line each: the name and the description.
pub(in crate::tools) fn listed<'a>(agents: impl IntoIterator<Item = &'a Definition>) -> String {
    let lines = agents.into_iter().map(|agent| {
        let purpose = agent.description.split_whitespace().collect::<Vec<_>>().join(" ");
        if purpose.is_empty() { format!("\n- {}", agent.name) } else { format!("\n- {}: {purpose}", agent.name) }
    });
    format!(" Coworkers:{}", lines.collect::<String>())
}

/// Whether an agent has the parameter `task`, which delegation needs.
pub(in crate::tools) fn takes_task(agent: &Definition) -> bool {
    agent.input_schema.get("properties").is_some_and(|fields| fields.get("task").is_some())
}

/// Entries that cannot be the name of an agent: the index, and what is wrong.
pub(in crate::tools) fn misnamed(names: &[String]) -> impl Iterator<Item = (String, String)> {
    let wrong = names.iter().enumerate().filter(|(_, name)| ToolName::parse(name.trim()).is_err());
    wrong.map(|(at, name)| {
        (at.to_string(), format!("`{name}` is no tool's name: coworkers are agents, by their names, without patterns"))
    })
}

/// The bounds and ids of the call to a coworker.
pub(in crate::tools) struct Terms {
    pub(in crate::tools) tool_use_id: Option<Arc<str>>,
    pub(in crate::tools) deadline: Instant,
    pub(in crate::tools) levels: Option<u32>,
}

fn unknown(asked: &str, meant: &[String], here: &[AvailableTool]) -> String {
    let asked: String = asked.chars().take(200).collect();
    let known: Vec<&str> = here.iter().map(|offer| offer.definition.name.as_str()).collect();
    match (meant, known.as_slice()) {
        (_, []) => format!("There is no coworker `{asked}`, and no other either: do it yourself."),
        ([], known) => format!("There is no coworker `{asked}`. There are: {}.", known.join(", ")),
        (meant, known) => {
            format!(
                "There is no coworker `{asked}`; did you mean {}? There are: {}.",
                meant.join(", "),
                known.join(", ")
            )
        }
    }
}

/// The answer as a tool's result.
pub(in crate::tools) fn result(answer: SubAnswer) -> ToolResult {
    Arc::unwrap_or_clone(answer.result)
}
