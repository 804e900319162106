//! Argv items out of arguments.
//!
//! A value is one whole item, so it can be no second argument; and it may not begin with `-` unless the manifest has
//! put `--` before it, so it can be no option either (`--output=/etc/passwd` as a "file name").

use serde_json::Value;

use crate::call::{JsonObject, Violation, json::pointer_token};
use crate::tools::template::{Template, plain_text};
use crate::tools::{BuildContext, ConfigFault};

/// Longest single item that Linux takes (`MAX_ARG_STRLEN`, 32 pages), without its final NUL.
const LONGEST: usize = 32 * 4096 - 1;

/// The items after the program.
pub(super) struct Argv(Vec<Item>);

enum Item {
    Literal(String),
    /// The value of an argument; `dashes`: a literal `--` stands before it.
    Argument {
        name: String,
        dashes: bool,
    },
}

impl Argv {
    /// Reads the manifest's list, program included, and says what is wrong with it.
    pub(super) fn parse(command: &[String], context: &BuildContext<'_>) -> (Self, Vec<ConfigFault>) {
        let mut faults = Vec::new();
        let mut items = Vec::new();
        match command.first() {
            None => faults.push(ConfigFault::error(&["command"], "a list: the program, then its arguments")),
            Some(program) if program.is_empty() || program.contains('\0') => {
                faults.push(ConfigFault::error(&["command", "0"], "the program's name or path"));
            }
            Some(program) if program.contains("{{") => {
                let message = "the program is fixed: no placeholder may stand here";
                faults.push(ConfigFault::error(&["command", "0"], message));
            }
            Some(_) => {}
        }
        for (index, text) in command.iter().enumerate().skip(1) {
            let index = index.to_string();
            let path = ["command", index.as_str()];
            let dashes = items.iter().any(|item| matches!(item, Item::Literal(text) if text == "--"));
            match item(text, dashes, context, &path) {
                Ok(item) => items.push(item),
                Err(fault) => faults.push(fault),
            }
        }
        (Self(items), faults)
    }

    /// The items with every value in place.
    pub(super) fn render(&self, arguments: &JsonObject) -> Vec<String> {
        let render = |item: &Item| match item {
            Item::Literal(text) => text.clone(),
            Item::Argument { name, .. } => arguments.get(name).map(plain_text).unwrap_or_default(),
        };
        self.0.iter().map(render).collect()
    }

    /// Why these arguments cannot stand in argv.
    pub(super) fn faults(&self, arguments: &JsonObject) -> Vec<Violation> {
        let faults = self.0.iter().filter_map(|item| match item {
            Item::Literal(_) => None,
            Item::Argument { name, dashes } => value_fault(name, arguments.get(name)?, *dashes),
        });
        faults.collect()
    }
}

fn item(text: &str, dashes: bool, context: &BuildContext<'_>, path: &[&str]) -> Result<Item, ConfigFault> {
    let template = Template::parse(text).map_err(|message| ConfigFault::error(path, message))?;
    if let Some(fault) = context.unknown_placeholders(&template, path).into_iter().next() {
        return Err(fault);
    }
    let Some(name) = template.lone() else {
        return match template.arguments().next() {
            Some(name) => {
                let message = format!("`{{{{ {name} }}}}` must be the whole item: put it into an item of its own");
                Err(ConfigFault::error(path, message))
            }
            None if text.contains('\0') => Err(ConfigFault::error(path, "an argument holds no NUL character")),
            None => Ok(Item::Literal(text.to_owned())),
        };
    };
    if context.parameter(name).is_some_and(|parameter| !parameter.always) {
        let message = format!("some calls have no value for `{name}`: give it a default or make it required");
        return Err(ConfigFault::error(path, message));
    }
    Ok(Item::Argument { name: name.to_owned(), dashes })
}

fn value_fault(name: &str, value: &Value, dashes: bool) -> Option<Violation> {
    let text = plain_text(value);
    let message = if text.starts_with('-') && !dashes {
        format!("`{name}` must not begin with `-`, because the program would read it as an option.")
    } else if text.contains('\0') {
        format!("`{name}` must not hold a NUL character.")
    } else if text.len() > LONGEST {
        format!("`{name}` is too long: it has {} bytes, and a program argument has at most {LONGEST}.", text.len())
    } else {
        return None;
    };
    let token = pointer_token(name);
    let (pointer, schema_pointer) = (format!("/{token}"), format!("/properties/{token}"));
    Some(Violation { pointer, keyword: "argv".into(), message, schema_pointer })
}
