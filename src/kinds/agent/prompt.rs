//! The first messages to the model: the system prompt, and the arguments as the user's message.

use serde_json::{Value, json};

use crate::call::json::plain_text;
use crate::kinds::template::Template;
use crate::kinds::{BuildContext, ConfigFault, Values};

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
pub(super) fn join_task_and_context(task: &str, context: &str) -> String {
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
