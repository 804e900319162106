//! Builds the program's arguments (argv) from the call's arguments and from fields of the caller's context.
//!
//! A value is always one whole item, so it cannot add a second argument. It must not begin with `-`, unless the
//! manifest has a `--` before it. So it cannot be an option either, such as `--output=/etc/passwd` as a "file name".

use serde_json::Value;

use super::variables::text_len;
use crate::call::json::plain_text;
use crate::tools::{BuildContext, ConfigFault, Placeholder, ValueFault, Values};

/// The longest item that Linux accepts (`MAX_ARG_STRLEN`, 32 pages), without its final NUL.
const MAX_ITEM_BYTES: usize = 32 * 4096 - 1;

/// The items after the program.
pub(super) struct Argv(Vec<Item>);

enum Item {
    Literal(String),
    /// A value. `after_dashes` means that a literal `--` precedes it.
    Value {
        placeholder: Placeholder,
        after_dashes: bool,
    },
}

impl Argv {
    /// Parses the manifest's list, program included, and returns its faults.
    pub(super) fn parse(command: &[String], context: &BuildContext<'_>) -> (Self, Vec<ConfigFault>) {
        let mut faults = Vec::new();
        let mut items = Vec::new();
        match command.first() {
            None => faults.push(ConfigFault::error(&["command"], "must be a list: the program, then its arguments")),
            Some(program) if program.is_empty() || program.contains('\0') => {
                faults.push(ConfigFault::error(&["command", "0"], "must be the name or path of a program"));
            }
            Some(program) if program.contains("{{") => {
                let message = "the program is fixed: placeholders are not allowed here";
                faults.push(ConfigFault::error(&["command", "0"], message));
            }
            Some(_) => {}
        }
        for (index, text) in command.iter().enumerate().skip(1) {
            let index = index.to_string();
            let path = ["command", index.as_str()];
            let after_dashes = items.iter().any(|item| matches!(item, Item::Literal(text) if text == "--"));
            match parse_item(text, after_dashes, context, &path) {
                Ok(item) => items.push(item),
                Err(fault) => faults.push(fault),
            }
        }
        (Self(items), faults)
    }

    /// The items with all values filled in.
    pub(super) fn render(&self, values: Values<'_>) -> Vec<String> {
        let render = |item: &Item| match item {
            Item::Literal(text) => text.clone(),
            Item::Value { placeholder, .. } => values.get(placeholder).map(plain_text).unwrap_or_default(),
        };
        self.0.iter().map(render).collect()
    }

    /// The bytes of the items that are the same in each call, plus `each` for every item of the command line.
    pub(super) fn fixed_bytes(&self, each: usize) -> usize {
        let bytes = |item: &Item| match item {
            Item::Literal(text) => text.len() + each,
            Item::Value { .. } => each,
        };
        // The program is an item too.
        self.0.iter().map(bytes).sum::<usize>() + each
    }

    /// The bytes of the items that are arguments of the call, and of those that are fields of the context.
    pub(super) fn value_bytes(&self, values: Values<'_>) -> (usize, usize) {
        let (mut arguments, mut fields) = (0, 0);
        for placeholder in self.placeholders() {
            let bytes = values.get(placeholder).map_or(0, text_len);
            match placeholder {
                Placeholder::Argument(_) => arguments += bytes,
                Placeholder::Context(_) => fields += bytes,
            }
        }
        (arguments, fields)
    }

    /// The argument with the longest item.
    pub(super) fn longest_argument(&self, values: Values<'_>) -> Option<&Placeholder> {
        let arguments = self.placeholders().filter(|placeholder| matches!(placeholder, Placeholder::Argument(_)));
        arguments.max_by_key(|placeholder| values.get(placeholder).map_or(0, text_len))
    }

    fn placeholders(&self) -> impl Iterator<Item = &Placeholder> {
        self.0.iter().filter_map(|item| match item {
            Item::Value { placeholder, .. } => Some(placeholder),
            Item::Literal(_) => None,
        })
    }

    /// Why these values are not permitted in argv.
    pub(super) fn value_faults(&self, values: Values<'_>) -> Vec<ValueFault> {
        let faults = self.0.iter().filter_map(|item| match item {
            Item::Literal(_) => None,
            Item::Value { placeholder, after_dashes } => match (placeholder, values.get(placeholder)) {
                // A schema cannot require a field of the context. A program without one of its arguments may do more
                // than was meant, so the call is refused.
                (Placeholder::Context(field), None | Some(Value::Null)) => Some(ValueFault::Context(format!(
                    "`{placeholder}` stands in the command line, so `context` must have `{field}`."
                ))),
                (_, value) => value_fault(placeholder, value?, *after_dashes),
            },
        });
        faults.collect()
    }
}

fn parse_item(text: &str, after_dashes: bool, context: &BuildContext<'_>, path: &[&str]) -> Result<Item, ConfigFault> {
    let template = context.parse_template(text).map_err(|message| ConfigFault::error(path, message))?;
    if let Some(fault) = context.unknown_placeholders(&template, path).into_iter().next() {
        return Err(fault);
    }
    let Some(placeholder) = template.single_placeholder() else {
        return match template.placeholders().next() {
            Some(name) => {
                let message = format!("`{{{{ {name} }}}}` must be the whole item: put it into an item of its own");
                Err(ConfigFault::error(path, message))
            }
            None if text.contains('\0') => {
                Err(ConfigFault::error(path, "an argument must not contain a NUL character"))
            }
            None => Ok(Item::Literal(template.as_literal().unwrap_or_default().to_owned())),
        };
    };
    if let Placeholder::Argument(name) = placeholder
        && context.parameter_use(name).is_some_and(|parameter| !parameter.always_present)
    {
        let message = format!("some calls have no value for `{name}`: give it a default or make it required");
        return Err(ConfigFault::error(path, message));
    }
    Ok(Item::Value { placeholder: placeholder.clone(), after_dashes })
}

fn value_fault(name: &Placeholder, value: &Value, after_dashes: bool) -> Option<ValueFault> {
    let text = plain_text(value);
    let message = if text.starts_with('-') && !after_dashes {
        format!("`{name}` must not begin with `-`, because the program would read it as an option.")
    } else if text.contains('\0') {
        format!("`{name}` must not contain a NUL character.")
    } else if text.len() > MAX_ITEM_BYTES {
        format!(
            "`{name}` is too long: it has {} bytes, and a program argument has at most {MAX_ITEM_BYTES}.",
            text.len()
        )
    } else {
        return None;
    };
    Some(name.fault("argv", message))
}
