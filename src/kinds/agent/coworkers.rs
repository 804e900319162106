//! Delegation to other agents: `delegate_work` and `ask_question`. They are offered to a model that
//! has coworkers, and exist as tools of their own.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::access::tool_pattern::{ToolPattern, any_grants};
use crate::call::json::plain_text;
use crate::call::{
    AvailableTool, Definition, JsonObject, Kind, NestedAnswer, NestedCall, NestedCallError,
    ToolContext, ToolInvoker, ToolName,
};
use crate::kinds::template::Template;
use crate::kinds::{BuildContext, ConfigFault, Values};

/// How one agent delegates to another.
#[derive(Debug, PartialEq)]
pub(in crate::kinds) struct DelegationTool {
    /// The tool's name.
    pub(in crate::kinds) name: &'static str,
    /// The description for the model: when to use the tool.
    pub(in crate::kinds) description: &'static str,
    /// The parameter for the task, and its description.
    task: (&'static str, &'static str),
}

pub(in crate::kinds) static DELEGATE_WORK: DelegationTool = DelegationTool {
    name: "delegate_work",
    description: "Hands a piece of work to a coworker, another agent, and returns the result. The coworker knows nothing of \
                  this conversation: put everything it needs into task and context.",
    task: ("task", "The task, in full, with the expected result"),
};

pub(in crate::kinds) static ASK_QUESTION: DelegationTool = DelegationTool {
    name: "ask_question",
    description: "Asks a coworker, another agent, a question and returns its answer. The coworker knows nothing of this \
                  conversation: put everything it needs into question and context.",
    task: ("question", "The question, in full"),
};

impl DelegationTool {
    /// The input schema. `coworkers` are the names to choose from, if they are known.
    pub(in crate::kinds) fn input_schema(&self, coworkers: &[&str]) -> Value {
        let (task, what) = self.task;
        let mut coworker = json!({"type": "string", "description": "The coworker's name"});
        if !coworkers.is_empty() {
            coworker["enum"] = json!(coworkers);
        }
        json!({
            "type": "object",
            "properties": {
                task: {"type": "string", "description": what},
                "context": {"type": "string", "description": "Everything that the coworker must know for it"},
                "coworker": coworker,
            },
            "required": [task, "context", "coworker"],
            "additionalProperties": false,
        })
    }

    /// Reads the arguments. The error is a text for the model.
    pub(in crate::kinds) fn parse_arguments(
        &self,
        arguments: JsonObject,
    ) -> Result<DelegatedTask, String> {
        let arguments: DelegationArguments = serde_json::from_value(Value::Object(arguments))
            .map_err(|error| format!("The arguments of {} are invalid: {error}.", self.name))?;
        let task = match self.task.0 {
            "task" => arguments.task,
            _ => arguments.question,
        };
        match task.filter(|text| !text.trim().is_empty()) {
            Some(task) => Ok(DelegatedTask {
                task,
                context: arguments.context.unwrap_or_default(),
                coworker: arguments.coworker,
            }),
            None => Err(format!(
                "The arguments of {} are invalid: `{}` is missing.",
                self.name, self.task.0
            )),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DelegationArguments {
    task: Option<String>,
    question: Option<String>,
    context: Option<String>,
    coworker: String,
}

/// A task and the name of the coworker that gets it.
#[derive(Debug, PartialEq)]
pub(in crate::kinds) struct DelegatedTask {
    pub(in crate::kinds) task: String,
    pub(in crate::kinds) context: String,
    pub(in crate::kinds) coworker: String,
}

/// The agents to which work may be delegated.
pub(in crate::kinds) struct Coworkers<'a> {
    pub(in crate::kinds) invoker: &'a dyn ToolInvoker,
    /// Patterns of names; `None`: all agents that the caller may use.
    pub(in crate::kinds) allowed: Option<&'a [ToolPattern]>,
}

impl Coworkers<'_> {
    /// The coworkers that exist now and may be called.
    pub(super) fn available(&self, context: &ToolContext) -> Vec<AvailableTool> {
        let mut agents = self
            .invoker
            .available_tools(context, &|tool| self.is_allowed(tool));
        agents.retain(|agent| agent.kind == Kind::Agent && has_task_parameter(&agent.definition));
        agents
    }

    fn is_allowed(&self, tool: &Definition) -> bool {
        self.allowed
            .is_none_or(|names| any_grants(names, tool.names(), |_| false))
    }

    /// Calls the coworker with the work.
    ///
    /// # Errors
    /// A text for the model.
    pub(in crate::kinds) async fn delegate(
        &self,
        task: DelegatedTask,
        context: &ToolContext,
        options: DelegationOptions,
    ) -> Result<NestedAnswer, String> {
        let available = self.available(context);
        let is_available = |tool: &Definition| {
            available
                .iter()
                .any(|agent| agent.definition.name == tool.name)
        };
        // Models write a coworker's name as other frameworks do: in quotes, or with line breaks.
        let name = task
            .coworker
            .trim_matches(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '`'))
            .to_owned();
        let name = self
            .invoker
            .resolve(context, &is_available, &name)
            .map_err(|suggestions| unknown_coworker_message(&name, &suggestions, &available))?;
        let takes_context = available.iter().any(|agent| {
            agent.definition.name == name && has_parameter(&agent.definition, "context")
        });
        let arguments = match takes_context {
            true if task.context.trim().is_empty() => json!({"task": task.task}),
            true => json!({"task": task.task, "context": task.context}),
            false => json!({"task": join_task_and_context(&task.task, &task.context)}),
        };
        let call = NestedCall {
            name: name.to_string(),
            arguments,
            cut_off: false,
            tool_use_id: options.tool_use_id,
            deadline: options.deadline,
            max_depth: options.max_depth,
            script_position: None,
        };
        match self.invoker.call(context, &is_available, call).await {
            Ok(answer) => Ok(answer),
            Err(NestedCallError::UnknownTool(suggestions)) => Err(unknown_coworker_message(
                name.as_str(),
                &suggestions,
                &available,
            )),
            Err(NestedCallError::TooDeep(levels)) => Err(too_deep_message(levels)),
            Err(NestedCallError::Failed(failure)) => Err(failure.for_model),
        }
    }
}

/// A list of agents, one line each: the name and the description.
pub(in crate::kinds) fn format_agent_list<'a>(
    agents: impl IntoIterator<Item = &'a Definition>,
) -> String {
    let lines = agents.into_iter().map(|agent| {
        let purpose = agent
            .description
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ");
        if purpose.is_empty() {
            format!("\n- {}", agent.name)
        } else {
            format!("\n- {}: {purpose}", agent.name)
        }
    });
    format!(" Coworkers:{}", lines.collect::<String>())
}

/// Whether an agent has the parameter `task`, which delegation needs.
pub(in crate::kinds) fn has_task_parameter(agent: &Definition) -> bool {
    has_parameter(agent, "task")
}

fn has_parameter(agent: &Definition, name: &str) -> bool {
    let properties = agent.input_schema.get("properties");
    properties.is_some_and(|properties| properties.get(name).is_some())
}

/// Entries that cannot be the name of an agent: the index, and what is wrong.
pub(in crate::kinds) fn invalid_names(names: &[String]) -> impl Iterator<Item = (String, String)> {
    let invalid = names
        .iter()
        .enumerate()
        .filter(|(_, name)| ToolName::parse(name.trim()).is_err());
    invalid.map(|(index, name)| {
        (
            index.to_string(),
            format!("`{name}` is not a tool name: list agents by name, without patterns"),
        )
    })
}

/// The bounds and ids of the call to a coworker.
pub(in crate::kinds) struct DelegationOptions {
    pub(in crate::kinds) tool_use_id: Option<Arc<str>>,
    pub(in crate::kinds) deadline: Instant,
    pub(in crate::kinds) max_depth: Option<u32>,
}

/// The text for the model when calls are nested as deep as they may be.
pub(in crate::kinds) fn too_deep_message(levels: u32) -> String {
    format!(
        "This is {levels} calls of tools deep, and no deeper call is allowed. Answer with what is known."
    )
}

fn unknown_coworker_message(
    name: &str,
    suggestions: &[String],
    available: &[AvailableTool],
) -> String {
    let name: String = name.chars().take(200).collect();
    let known: Vec<&str> = available
        .iter()
        .map(|agent| agent.definition.name.as_str())
        .collect();
    match (suggestions, known.as_slice()) {
        (_, []) => format!(
            "There is no coworker `{name}`, and there is no other coworker: do it yourself."
        ),
        ([], known) => format!(
            "There is no coworker `{name}`. There are: {}.",
            known.join(", ")
        ),
        (suggestions, known) => {
            format!(
                "There is no coworker `{name}`; did you mean {}? There are: {}.",
                suggestions.join(", "),
                known.join(", ")
            )
        }
    }
}

/// The parameters whose texts become the user's message without a template.
const TASK_PARAMETER: &str = "task";
const CONTEXT_PARAMETER: &str = "context";

/// How the first messages are made.
pub(super) struct Prompt {
    system: Option<String>,
    template: Option<Template>,
    /// The only parameters are `task` and perhaps `context`.
    has_task_parameters: bool,
    /// The model must answer with JSON.
    pub(super) requires_json: bool,
}

impl Prompt {
    pub(super) fn build(
        system: Option<String>,
        template: Option<String>,
        output_schema: Option<Value>,
        context: &BuildContext<'_>,
        faults: &mut Vec<ConfigFault>,
    ) -> Option<Self> {
        let template = template.as_deref();
        let template = template
            .map(|text| context.parse_template(text))
            .transpose()
            .map_err(|message| faults.push(ConfigFault::error(&["prompt"], message)))
            .ok()?;
        if let Some(template) = &template {
            faults.extend(context.unknown_placeholders(template, &["prompt"]));
        }
        let has_task_parameters = context.parameters().any(|name| name == TASK_PARAMETER)
            && context
                .parameters()
                .all(|name| [TASK_PARAMETER, CONTEXT_PARAMETER].contains(&name));
        let requires_json = output_schema.is_some();
        let json_instruction = output_schema.map(|schema| {
            format!("Answer with one JSON value and nothing else. It must fit this JSON Schema: {schema}")
        });
        let system = system.filter(|text| !text.trim().is_empty());
        let system: Vec<String> = system.into_iter().chain(json_instruction).collect();
        let system = (!system.is_empty()).then(|| system.join("\n\n"));
        Some(Self {
            system,
            template,
            has_task_parameters,
            requires_json,
        })
    }

    /// The first messages of the conversation.
    pub(super) fn initial_messages(&self, values: Values<'_>) -> Vec<Value> {
        let system = self
            .system
            .iter()
            .map(|text| json!({"role": "system", "content": text}));
        system
            .chain([json!({"role": "user", "content": self.user_message(values)})])
            .collect()
    }

    fn user_message(&self, values: Values<'_>) -> String {
        let arguments = values.arguments;
        if let Some(template) = &self.template {
            return template.render(values, plain_text);
        }
        if !self.has_task_parameters {
            return Value::Object(arguments.clone()).to_string();
        }
        let text = |name: &str| arguments.get(name).map(plain_text).unwrap_or_default();
        join_task_and_context(&text(TASK_PARAMETER), &text(CONTEXT_PARAMETER))
    }
}

/// A task and its context as one text.
fn join_task_and_context(task: &str, context: &str) -> String {
    match context.trim() {
        "" => task.to_owned(),
        context => format!("{task}\n\nContext:\n{context}"),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::call::{Effect, JsonObject};

    fn render_prompt(template: Option<&str>, parameters: &[&str], arguments: Value) -> Value {
        let properties: JsonObject = parameters
            .iter()
            .map(|name| ((*name).to_owned(), json!({})))
            .collect();
        let schema = json!({"properties": properties});
        let context = BuildContext {
            name: "t",
            base_dir: Path::new(""),
            input_schema: &schema,
            context_fields: &["tenant".to_owned()],
            effect: Effect::Read,
            trusted: true,
        };
        let mut faults = Vec::new();
        let prompt = Prompt::build(
            None,
            template.map(str::to_owned),
            None,
            &context,
            &mut faults,
        )
        .unwrap();
        assert_eq!(faults, []);
        let context = json!({"tenant": "acme"});
        let values = Values {
            arguments: arguments.as_object().unwrap(),
            context: context.as_object().unwrap(),
            credentials: None,
        };
        prompt.initial_messages(values)[0]["content"].clone()
    }

    #[test]
    fn task_is_text_other_arguments_are_json() {
        assert_eq!(
            render_prompt(None, &["task", "context"], json!({"task": "Add {{ 1 }}."})),
            "Add {{ 1 }}."
        );
        let both = json!({"task": "Add.", "context": "1 and 2"});
        assert_eq!(
            render_prompt(None, &["task", "context"], both.clone()),
            "Add.\n\nContext:\n1 and 2"
        );
        assert_eq!(
            render_prompt(None, &["task", "context", "n"], both),
            r#"{"task":"Add.","context":"1 and 2"}"#
        );
        let template = Some("Sum of {{ a }} and {{b}}?");
        assert_eq!(
            render_prompt(template, &["a", "b"], json!({"a": 1, "b": "{{ a }}"})),
            "Sum of 1 and {{ a }}?"
        );
        let template = Some("{{ context }} of {{ context.tenant }}");
        assert_eq!(
            render_prompt(template, &["context"], json!({"context": "Rows"})),
            "Rows of acme"
        );
    }
}
