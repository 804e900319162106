//! The first messages to the model: the system prompt, and the arguments as the user's message.

use serde_json::{Value, json};

use crate::tools::template::{Template, plain_text};
use crate::tools::{BuildContext, ConfigFault, Values};

/// The parameters whose texts become the user's message without a template.
const TASK: &str = "task";
const CONTEXT: &str = "context";

/// How the first messages are made.
pub(super) struct Prompt {
    system: Option<String>,
    template: Option<Template>,
    /// The only parameters are `task` and perhaps `context`.
    is_plain: bool,
    /// The model must answer with JSON.
    wants_json: bool,
}

impl Prompt {
    pub(super) fn build(
        system: Option<String>,
        template: Option<String>,
        output_schema: Option<Value>,
        context: &BuildContext<'_>,
        faults: &mut Vec<ConfigFault>,
    ) -> Option<Self> {
        let template = match template.as_deref().map(|text| context.template(text)).transpose() {
            Ok(template) => template,
            Err(message) => {
                faults.push(ConfigFault::error(&["prompt"], message));
                return None;
            }
        };
        if let Some(template) = &template {
            faults.extend(context.unknown_placeholders(template, &["prompt"]));
        }
        let properties = context.input_schema.get("properties").and_then(Value::as_object);
        let is_plain = properties.is_some_and(|properties| {
            properties.contains_key(TASK) && properties.keys().all(|name| name == TASK || name == CONTEXT)
        });
        let wants_json = output_schema.is_some();
        let form = output_schema.map(|schema| {
            format!("Answer with one JSON value and nothing else. It must fit this JSON Schema: {schema}")
        });
        let system = [system.filter(|text| !text.trim().is_empty()), form].into_iter().flatten().collect::<Vec<_>>();
        let system = (!system.is_empty()).then(|| system.join("\n\n"));
        Some(Self { system, template, is_plain, wants_json })
    }

    /// Whether the model was told to answer with JSON.
    pub(super) fn wants_json(&self) -> bool {
        self.wants_json
    }

    /// The first messages of the conversation.
    pub(super) fn messages(&self, values: Values<'_>) -> Vec<Value> {
        let system = self.system.iter().map(|text| json!({"role": "system", "content": text}));
        system.chain([json!({"role": "user", "content": self.user(values)})]).collect()
    }

    fn user(&self, values: Values<'_>) -> String {
        let arguments = values.arguments;
        if let Some(template) = &self.template {
            return template.render(values, plain_text);
        }
        if !self.is_plain {
            return Value::Object(arguments.clone()).to_string();
        }
        let text = |name: &str| arguments.get(name).map(plain_text).unwrap_or_default();
        with_context(&text(TASK), &text(CONTEXT))
    }
}

/// A task and its context as one text.
pub(super) fn with_context(task: &str, context: &str) -> String {
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
    use crate::tools::Clients;

    fn said(template: Option<&str>, parameters: &[&str], arguments: Value) -> Value {
        let properties: JsonObject = parameters.iter().map(|name| ((*name).to_owned(), json!({}))).collect();
        let (schema, clients) = (json!({"properties": properties}), Clients::default());
        let context = BuildContext {
            base: Path::new(""),
            input_schema: &schema,
            fields: &["tenant".to_owned()],
            effect: Effect::Read,
            trusted: true,
            clients: &clients,
            databases: &crate::tools::Databases::default(),
        };
        let mut faults = Vec::new();
        let prompt = Prompt::build(None, template.map(str::to_owned), None, &context, &mut faults).unwrap();
        assert_eq!(faults, []);
        let context = json!({"tenant": "acme"});
        let values = Values { arguments: arguments.as_object().unwrap(), context: context.as_object().unwrap() };
        prompt.messages(values)[0]["content"].clone()
    }

    #[test]
    fn a_task_is_said_as_it_is_and_anything_else_as_json() {
        assert_eq!(said(None, &["task", "context"], json!({"task": "Add {{ 1 }}."})), "Add {{ 1 }}.");
        let both = json!({"task": "Add.", "context": "1 and 2"});
        assert_eq!(said(None, &["task", "context"], both.clone()), "Add.\n\nContext:\n1 and 2");
        assert_eq!(said(None, &["task", "context", "n"], both), r#"{"task":"Add.","context":"1 and 2"}"#);
        let template = Some("Sum of {{ a }} and {{b}}?");
        assert_eq!(said(template, &["a", "b"], json!({"a": 1, "b": "{{ a }}"})), "Sum of 1 and {{ a }}?");
        let template = Some("{{ context }} of {{ context.tenant }}");
        assert_eq!(said(template, &["context"], json!({"context": "Rows"})), "Rows of acme");
    }
}
