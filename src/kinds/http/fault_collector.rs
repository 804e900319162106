//! Collects the faults that the build of an `http` tool finds, and checks the placeholders of its
//! texts.

use std::collections::BTreeSet;

use crate::kinds::build_context::{names_in_single_braces, template_placeholder};
use crate::kinds::template::Template;
use crate::kinds::{BuildContext, ConfigFault};

/// Collects all faults, so that the operator sees them at once.
pub(super) struct FaultCollector<'a> {
    pub(super) context: &'a BuildContext<'a>,
    pub(super) faults: Vec<ConfigFault>,
    /// The parameters that placeholders name.
    used_parameters: BTreeSet<String>,
}

impl<'a> FaultCollector<'a> {
    pub(super) fn new(context: &'a BuildContext<'a>) -> Self {
        Self {
            context,
            faults: Vec::new(),
            used_parameters: BTreeSet::new(),
        }
    }

    pub(super) fn error(&mut self, path: &[&str], message: impl Into<String>) {
        self.faults.push(ConfigFault::error(path, message));
    }

    pub(super) fn warning(&mut self, path: &[&str], message: impl Into<String>) {
        self.faults.push(ConfigFault::warning(path, message));
    }

    /// Reports a literal address that the address policy refuses. In the operator's manifest this
    /// is only a warning.
    pub(super) fn report_denied_address(&mut self, path: &[&str], message: impl Into<String>) {
        match self.context.trusted {
            true => self.warning(path, format!("{}: calls will fail", message.into())),
            false => self.error(path, message),
        }
    }

    /// Parses a part of a text. The whole text was parsed before and reported its faults, so this
    /// reports none.
    pub(super) fn parse_part(&self, text: &str) -> Option<Template> {
        self.context.parse_styled_template(text).ok()
    }

    /// Parses a text as a template, and checks its placeholders against the tool's parameters and
    /// declared context fields.
    pub(super) fn parse_template(&mut self, text: &str, path: &[&str]) -> Option<Template> {
        match self.context.parse_styled_template(text) {
            Ok(template) => {
                self.faults
                    .extend(self.context.unknown_placeholders(&template, path));
                self.faults
                    .extend(self.context.single_braces(&template, path));
                // A name in one brace has a warning of its own.
                let names = template
                    .parameters()
                    .chain(names_in_single_braces(&template));
                self.used_parameters.extend(names.map(str::to_owned));
                Some(template)
            }
            Err(message) => {
                self.error(path, message);
                None
            }
        }
    }

    /// Warns of parameters whose values are not sent.
    pub(super) fn warn_unused_parameters(&mut self) {
        self.faults.extend(self.context.unused_parameters(
            &self.used_parameters,
            template_placeholder,
            "`request`",
        ));
    }

    /// Reports a placeholder in a key: keys are never filled in.
    pub(super) fn check_key(&mut self, key: &str, path: &[&str]) {
        if key.contains("{{") {
            self.error(path, "placeholders are allowed in values, not in keys");
        }
    }

    /// The first parameter in the template that a valid call may omit.
    pub(super) fn first_optional_parameter<'t>(&self, template: &'t Template) -> Option<&'t str> {
        // A schema cannot require a field of the context, so this gives no advice about it.
        let mut names = template.parameters();
        names.find(|name| self.context.may_be_absent(name))
    }

    /// Whether one of the faults is an error, so that the tool cannot be built.
    pub(super) fn has_errors(&self) -> bool {
        self.faults.iter().any(|fault| !fault.warning)
    }
}
