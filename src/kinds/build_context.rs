//! The interface between the manifest and the kinds of tools: what every kind gets for building a
//! runner, and what it returns. A kind that shares HTTP clients or databases gets these beside it.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use serde_json::Value;

use super::config_fault::{ConfigFault, FaultRule};
use super::literal;
use super::placeholder::{CONTEXT_PREFIX, Placeholder};
use super::runner::Runner;
use super::template::{Part, Template};
use crate::call::{Effect, is_field_name};
use crate::text::suggest::{MIN_HINT_RATIO, closest_name};

/// A runner with its warnings, or all faults that prevent it from being built.
pub type BuildResult = Result<(Arc<dyn Runner>, Vec<ConfigFault>), Vec<ConfigFault>>;

/// What a kind needs to build a runner from its manifest keys.
pub struct BuildContext<'a> {
    /// The name of the tool, for the log.
    pub name: &'a str,
    /// The folder of the manifest. Relative paths start here.
    pub base_dir: &'a Path,
    /// The tool's input schema. Placeholders are checked against it.
    pub input_schema: &'a Value,
    /// The fields of the caller's context that the tool declares.
    pub context_fields: &'a [String],
    /// The effect that the tool is declared to have.
    pub effect: Effect,
    /// Whether the operator's manifest declares the tool. Then a literal address that the tool may
    /// not reach is only a warning, otherwise an error.
    pub trusted: bool,
}

impl BuildContext<'_> {
    /// Whether the input schema declares the parameter.
    pub fn has_parameter(&self, name: &str) -> bool {
        self.parameters().any(|parameter| parameter == name)
    }

    /// Whether the parameter is declared, and a validated call may have no value for it: it is not
    /// required and has no default.
    pub fn may_be_absent(&self, name: &str) -> bool {
        let schema = self.input_schema["properties"].get(name);
        let required = self.input_schema["required"].as_array();
        let is_required = required.is_some_and(|list| list.iter().any(|item| item == name));
        !is_required && schema.is_some_and(|schema| schema.get("default").is_none())
    }

    /// Warnings about names in one brace, as in OpenAPI: `/orders/{id}`. They stay as they are. In
    /// a URL every name is meant to be a placeholder, elsewhere only the name of a parameter.
    pub fn single_braces(&self, template: &Template, path: &[&str]) -> Vec<ConfigFault> {
        let is_meant = |name: &&str| path == ["request", "url"] || self.has_parameter(name);
        let names: BTreeSet<&str> = names_in_single_braces(template).filter(is_meant).collect();
        let warning = |name: &str| {
            let message =
                format!("`{{{name}}}` stays as it is: a placeholder is `{{{{ {name} }}}}`");
            ConfigFault::warning(path, message).with_rule(FaultRule::SingleBrace)
        };
        names.into_iter().map(warning).collect()
    }

    /// The names of the parameters.
    pub fn parameters(&self) -> impl Iterator<Item = &str> {
        let properties = self.input_schema.get("properties");
        let properties = properties.and_then(Value::as_object);
        properties.into_iter().flatten().map(|(name, _)| &**name)
    }

    /// Warnings about parameters that no placeholder names. `keys` are those where a placeholder
    /// may stand, and `write` writes one.
    pub fn unused_parameters(
        &self,
        used: &BTreeSet<String>,
        write: impl Fn(&str) -> String,
        keys: &str,
    ) -> Vec<ConfigFault> {
        let unused = self.parameters().filter(|name| !used.contains(*name));
        let warning = |name| {
            let placeholder = write(name);
            let message = format!(
                "the parameter is not used: write `{placeholder}` in {keys}, or leave it out"
            );
            ConfigFault::warning(&["parameters", name], message)
                .with_rule(FaultRule::UnusedParameter)
        };
        unused.map(warning).collect()
    }

    /// What the name in a placeholder stands for: a declared field of the context, or else an
    /// argument.
    pub fn resolve_placeholder(&self, name: &str) -> Placeholder {
        match name
            .strip_prefix(CONTEXT_PREFIX)
            .filter(|field| self.declares_field(field))
        {
            Some(field) => Placeholder::Context(field.to_owned()),
            None => Placeholder::Argument(name.to_owned()),
        }
    }

    /// Whether the tool declares this field of the context.
    pub fn declares_field(&self, field: &str) -> bool {
        self.context_fields.iter().any(|declared| declared == field)
    }

    /// Parses a text with placeholders.
    ///
    /// # Errors
    /// A sentence, if the text cannot be parsed.
    pub fn parse_template(&self, text: &str) -> Result<Template, String> {
        let template = self.parse_styled_template(text)?;
        if template.styles().next().is_some() {
            return Err(
                "a style such as `| comma` is only for requests of tools of kind http".into(),
            );
        }
        Ok(template)
    }

    /// Parses a text whose placeholders may have a style.
    pub fn parse_styled_template(&self, text: &str) -> Result<Template, String> {
        if !self.trusted && literal::has_caller_reference(text) {
            return Err("a character that no text may hold".into());
        }
        Template::parse(text, |name| self.resolve_placeholder(name))
    }

    /// Faults of placeholders that name neither a parameter nor a declared field.
    pub fn unknown_placeholders(&self, template: &Template, path: &[&str]) -> Vec<ConfigFault> {
        let unknown = template.placeholders().filter_map(|placeholder| {
            let reason = self.unknown_name_message(placeholder)?;
            Some(ConfigFault::error(
                path,
                format!("`{{{{ {placeholder} }}}}`: {reason}"),
            ))
        });
        unknown.collect()
    }

    /// Why a placeholder names nothing that the tool has; `None` if it names a parameter or a
    /// declared field.
    pub fn unknown_name_message(&self, placeholder: &Placeholder) -> Option<String> {
        match placeholder {
            Placeholder::Argument(name) if !self.has_parameter(name) => {
                Some(match name.strip_prefix(CONTEXT_PREFIX) {
                    Some(field) => self.undeclared_field_message(field),
                    None => format!("the tool has no parameter `{name}`"),
                })
            }
            Placeholder::Argument(_) | Placeholder::Context(_) | Placeholder::Caller(_) => None,
        }
    }

    /// Why a field of the context cannot be used, and what to write instead.
    pub fn undeclared_field_message(&self, field: &str) -> String {
        match field.split_once('.') {
            Some((first, _)) => {
                format!(
                    "a context field is a single name, not a path; `{CONTEXT_PREFIX}{first}` is all of it"
                )
            }
            None if is_field_name(field) => {
                let declared = self.context_fields.iter().map(String::as_str);
                if let Some(suggestion) = closest_name(field, declared, MIN_HINT_RATIO) {
                    return format!(
                        "the tool does not take this field of the context, did you mean `{CONTEXT_PREFIX}{suggestion}`?"
                    );
                }
                let fields: Vec<&str> = self
                    .context_fields
                    .iter()
                    .map(String::as_str)
                    .chain([field])
                    .collect();
                format!(
                    "the tool does not take this field of the context; write `context: [{}]`",
                    fields.join(", ")
                )
            }
            None => "this is not a valid name of a context field".into(),
        }
    }
}

/// The placeholder of a parameter in a template.
pub(super) fn template_placeholder(name: &str) -> String {
    format!("{{{{ {name} }}}}")
}

/// The names in single braces in the literal parts of a text.
pub(super) fn names_in_single_braces(template: &Template) -> impl Iterator<Item = &str> {
    let literals = template.parts().iter().filter_map(|part| match part {
        Part::Text(text) => Some(text.as_str()),
        Part::Value(..) => None,
    });
    let names = literals
        .flat_map(|text| text.split('{').skip(1))
        .filter_map(|rest| rest.split_once('}'))
        .map(|(name, _)| name);
    let is_name_char = |c: char| c.is_alphanumeric() || "_-.".contains(c);
    names
        .filter(move |name| name.starts_with(char::is_alphabetic) && name.chars().all(is_name_char))
}
