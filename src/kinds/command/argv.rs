//! Builds the program's arguments (argv) from the call's arguments and from fields of the caller's
//! context.
//!
//! A value stays within one item, so it cannot add a second argument. It must not be the start of
//! an item with a leading `-`, unless the manifest has a `--` before it. So it cannot be an option,
//! such as `--output=/etc/passwd` as a "file name". A number may be negative as the value of an
//! option such as `--lon`. Only the manifest decides which items are there: by `when`, and by
//! `each` for the elements of a list.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::de::Error;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::item_text::{DashRule, ELEMENT, Element, ItemText, ItemValues};
use crate::kinds::template::{Part, Template};
use crate::kinds::{BuildContext, ConfigFault, Placeholder, ValueFault, Values};

/// The items after the program.
pub(super) struct Argv {
    items: Vec<Item>,
    /// The bytes of the program's name.
    program_bytes: usize,
    /// The parameters on which the items depend.
    pub(super) parameters: BTreeSet<String>,
}

enum Item {
    Text(ItemText),
    /// Items that are there if the call has a value for the placeholder.
    When(Placeholder, Vec<Item>),
    /// Items for each element of the list in this argument.
    Each(String, Vec<ItemText>),
}

impl Item {
    /// The text, if it is the same in every call.
    fn literal(&self) -> Option<&str> {
        match self {
            Self::Text(text) => text.template.as_literal(),
            Self::When(..) | Self::Each(..) => None,
        }
    }
}

/// The bytes of a command line.
#[derive(Default)]
pub(super) struct ArgvBytes {
    /// Of the text that the manifest gives, and of what the system adds to each item.
    pub(super) fixed: usize,
    /// Of the call's arguments.
    pub(super) arguments: usize,
    /// Of the fields of the context.
    pub(super) fields: usize,
}

impl Argv {
    /// Parses the manifest's list, program included, and returns its faults.
    pub(super) fn parse(
        command: &[CommandItem],
        context: &BuildContext<'_>,
    ) -> (Self, Vec<ConfigFault>) {
        let mut parser = Parser {
            context,
            faults: Vec::new(),
            parameters: BTreeSet::new(),
        };
        let program = parser.program(command.first()).unwrap_or_default();
        let rest = command.iter().enumerate().skip(1);
        let items = parser.items(rest, &["command"], &mut Scope::default());
        (
            Self {
                items,
                program_bytes: program.len(),
                parameters: parser.parameters,
            },
            parser.faults,
        )
    }

    /// The items with all values filled in.
    pub(super) fn render(&self, values: Values<'_>) -> Vec<String> {
        let mut rendered = Vec::new();
        visit(&self.items, values, &mut |text, values| {
            rendered.push(text.render(values));
        });
        rendered
    }

    /// Existing files and folders that items name which are the same in every call.
    pub(super) fn fixed_paths(&self, workdir: &Path) -> Vec<PathBuf> {
        let paths = self.items.iter().filter_map(Item::literal);
        let paths = paths
            .filter(|text| !text.starts_with('-') && !text.is_empty())
            .map(|text| workdir.join(text));
        paths.filter(|path| path.exists()).collect()
    }

    /// The bytes of the command line with these values, with `each` more for every item.
    pub(super) fn bytes(&self, values: Values<'_>, each: usize) -> ArgvBytes {
        let mut bytes = ArgvBytes {
            fixed: self.program_bytes + each,
            ..ArgvBytes::default()
        };
        visit(&self.items, values, &mut |text, values| {
            bytes.fixed += each + text.literal_bytes();
            text.value_bytes(values, |placeholder, length| match *placeholder {
                Placeholder::Argument(_) => bytes.arguments += length,
                Placeholder::Context(_) | Placeholder::Caller(_) => bytes.fields += length,
            });
        });
        bytes
    }

    /// The argument that takes the most bytes.
    pub(super) fn longest_argument(&self, values: Values<'_>) -> Option<Placeholder> {
        let mut totals: Vec<(usize, Placeholder)> = Vec::new();
        visit(&self.items, values, &mut |text, values| {
            text.value_bytes(values, |placeholder, length| {
                if placeholder.argument().is_none() {
                    return;
                }
                match totals.iter_mut().find(|(_, known)| *known == *placeholder) {
                    Some((total, _)) => *total += length,
                    None => totals.push((length, placeholder.into_owned())),
                }
            });
        });
        totals
            .into_iter()
            .max_by_key(|(total, _)| *total)
            .map(|(_, placeholder)| placeholder)
    }

    /// Why these values are not permitted in argv: at most one fault for each item of the manifest.
    pub(super) fn value_faults(&self, values: Values<'_>) -> Vec<ValueFault> {
        let mut faults = Vec::new();
        collect_value_faults(&self.items, values, &mut faults);
        faults
    }
}

/// Shows `take` the items that are there in a call, in order.
fn visit<'a>(
    items: &'a [Item],
    values: Values<'a>,
    take: &mut dyn FnMut(&'a ItemText, ItemValues<'a>),
) {
    for item in items {
        match item {
            Item::Text(text) => take(text, ItemValues::new(values)),
            Item::When(condition, items) => {
                if is_given(values.get(condition)) {
                    visit(items, values, take);
                }
            }
            Item::Each(list, texts) => {
                for values in element_values(list, values) {
                    texts.iter().for_each(|text| take(text, values));
                }
            }
        }
    }
}

/// Whether a value counts as given: `false` and an empty list do not, so that a flag and a list can
/// be conditions.
fn is_given(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null | Value::Bool(false)) => false,
        Some(Value::Array(elements)) => !elements.is_empty(),
        Some(_) => true,
    }
}

/// The values for each element of the list.
fn element_values<'a>(list: &'a str, values: Values<'a>) -> impl Iterator<Item = ItemValues<'a>> {
    let elements = values.arguments.get(list).and_then(Value::as_array);
    let elements = elements.into_iter().flatten().enumerate();
    elements.map(move |(index, value)| ItemValues {
        values,
        element: Some(Element { list, index, value }),
    })
}

fn collect_value_faults(items: &[Item], values: Values<'_>, faults: &mut Vec<ValueFault>) {
    for item in items {
        match item {
            Item::Text(text) => faults.extend(text.value_fault(ItemValues::new(values))),
            Item::When(condition, items) if is_given(values.get(condition)) => {
                collect_value_faults(items, values, faults);
            }
            Item::When(..) => {}
            Item::Each(list, texts) => match values.arguments.get(list) {
                None | Some(Value::Null | Value::Array(_)) => {
                    let fault = |values| texts.iter().find_map(|text| text.value_fault(values));
                    faults.extend(element_values(list, values).find_map(fault));
                }
                Some(_) => {
                    let message = format!("`{list}` must be a list.");
                    faults.push(Placeholder::Argument(list.clone()).fault("argv", message));
                }
            },
        }
    }
}

/// Parses the manifest's items, and collects their faults.
struct Parser<'a> {
    context: &'a BuildContext<'a>,
    faults: Vec<ConfigFault>,
    /// The parameters that the items name.
    parameters: BTreeSet<String>,
}

/// What holds at the position of an item.
#[derive(Clone, Default)]
struct Scope {
    /// The conditions of the `when` entries around the item.
    given: Vec<Placeholder>,
    /// Whether the item is in the `args` of `each`.
    in_each: bool,
    /// Whether a literal `--` is always before the item.
    after_dashes: bool,
    /// Whether the item directly before it is a literal that begins with `--`.
    after_option: bool,
}

impl Scope {
    fn dash_rule(&self) -> DashRule {
        match (self.after_dashes, self.after_option) {
            (true, _) => DashRule::Any,
            (false, true) => DashRule::Numbers,
            (false, false) => DashRule::Refused,
        }
    }

    fn is_element(&self, placeholder: &Placeholder) -> bool {
        self.in_each && *placeholder == Placeholder::Argument(ELEMENT.to_owned())
    }
}

impl Parser<'_> {
    fn error(&mut self, path: &[&str], message: impl Into<String>) {
        self.faults.push(ConfigFault::error(path, message));
    }

    /// The name or path of the program.
    fn program(&mut self, item: Option<&CommandItem>) -> Option<String> {
        let path = ["command", "0"];
        match item {
            None => self.error(
                &path[..1],
                "must be a list: the program, then its arguments",
            ),
            Some(CommandItem::Text(program)) if program.contains("{{") => {
                self.error(
                    &path,
                    "the program is fixed: placeholders are not allowed here",
                );
            }
            Some(CommandItem::Text(program)) if !program.is_empty() && !program.contains('\0') => {
                return Some(program.clone());
            }
            Some(_) => self.error(&path, "must be the name or path of a program"),
        }
        None
    }

    fn items<'i>(
        &mut self,
        items: impl Iterator<Item = (usize, &'i CommandItem)>,
        path: &[&str],
        scope: &mut Scope,
    ) -> Vec<Item> {
        let mut parsed: Vec<Item> = Vec::new();
        for (index, item) in items {
            let index = index.to_string();
            let path = [path, &[&index]].concat();
            scope.after_option = parsed
                .last()
                .and_then(Item::literal)
                .is_some_and(|text| text.starts_with("--"));
            let item = match item {
                CommandItem::Text(text) => self.text(text, &path, scope).map(Item::Text),
                CommandItem::When(entry) => self.when(entry, &path, scope),
                CommandItem::Each(entry) => self.each(entry, &path, scope),
            };
            scope.after_dashes |= item.as_ref().and_then(Item::literal) == Some("--");
            parsed.extend(item);
        }
        parsed
    }

    fn when(&mut self, entry: &WhenItem, path: &[&str], scope: &Scope) -> Option<Item> {
        let condition = self.name(&entry.when, &[path, &["when"]].concat())?;
        let mut inner = scope.clone();
        inner.given.push(condition.clone());
        let path = [path, &["args"]].concat();
        if entry.args.is_empty() {
            self.error(
                &path,
                "must not be empty: list the items that are there if the argument is given",
            );
        }
        let items = self.items(entry.args.iter().enumerate(), &path, &mut inner);
        Some(Item::When(condition, items))
    }

    fn each(&mut self, entry: &EachItem, path: &[&str], scope: &Scope) -> Option<Item> {
        let key = [path, &["each"]].concat();
        let Placeholder::Argument(list) = self.name(&entry.each, &key)? else {
            self.error(
                &key,
                "must be a parameter: a field of the context is one value",
            );
            return None;
        };
        if let Some(declared) = self
            .declared_type(&list)
            .filter(|declared| *declared != "array")
        {
            self.error(
                &key,
                format!(
                    "`each` needs a list, but `{list}` has the type {declared}: write `type: array`"
                ),
            );
            return None;
        }
        let mut inner = Scope {
            in_each: true,
            ..scope.clone()
        };
        let own = [format!("{{{{ {ELEMENT} }}}}")];
        let args = entry.args.as_deref().unwrap_or(&own);
        let path = [path, &["args"]].concat();
        let mut texts = Vec::new();
        for (index, text) in args.iter().enumerate() {
            let index = index.to_string();
            let text = self.text(text, &[&path[..], &[&index]].concat(), &inner)?;
            inner.after_option = text
                .template
                .as_literal()
                .is_some_and(|literal| literal.starts_with("--"));
            texts.push(text);
        }
        let has_element = texts
            .iter()
            .flat_map(|text| text.template.placeholders())
            .any(|placeholder| inner.is_element(placeholder));
        if !has_element {
            self.error(
                &path,
                format!("must contain `{{{{ {ELEMENT} }}}}`, which stands for the element"),
            );
        } else if entry.args.is_some() && self.context.has_parameter(ELEMENT) {
            let message = format!(
                "`{{{{ {ELEMENT} }}}}` is the element here: give the parameter `{ELEMENT}` another name"
            );
            self.error(&path, message);
        }
        Some(Item::Each(list, texts))
    }

    /// The parameter or field that `when` or `each` names.
    fn name(&mut self, name: &str, path: &[&str]) -> Option<Placeholder> {
        let placeholder = self.context.resolve_placeholder(name.trim());
        let Some(message) = self.context.unknown_name_message(&placeholder) else {
            let parameter = placeholder.argument().map(str::to_owned);
            self.parameters.extend(parameter);
            return Some(placeholder);
        };
        let message = match name.contains("{{") {
            true => "write the name of the parameter, without `{{ }}`".to_owned(),
            false => message,
        };
        self.error(path, message);
        None
    }

    fn text(&mut self, text: &str, path: &[&str], scope: &Scope) -> Option<ItemText> {
        let template = match self.context.parse_template(text) {
            Ok(template) => template,
            Err(message) => {
                self.error(path, message);
                return None;
            }
        };
        if template
            .parts()
            .iter()
            .any(|part| matches!(part, Part::Text(text) if text.contains('\0')))
        {
            self.error(path, "an argument must not contain a NUL character");
            return None;
        }
        let message = template
            .placeholders()
            .find_map(|placeholder| self.placeholder_fault(placeholder, text, scope));
        let message = message.or_else(|| self.option_fault(&template, scope));
        if let Some(message) = message {
            self.error(path, message);
            return None;
        }
        self.parameters
            .extend(template.parameters().map(str::to_owned));
        let dash_rule = scope.dash_rule();
        if let Some((placeholder, _)) = template.single_value()
            && !scope.is_element(placeholder)
        {
            self.faults
                .extend(dash_rule.warning(placeholder, self.context, path));
        }
        self.faults
            .extend(self.context.single_braces(&template, path));
        Some(ItemText {
            template,
            dash_rule,
        })
    }

    /// Why a placeholder must not be in this item.
    fn placeholder_fault(
        &self,
        placeholder: &Placeholder,
        text: &str,
        scope: &Scope,
    ) -> Option<String> {
        if scope.is_element(placeholder) {
            return None;
        }
        if let Some(reason) = self.context.unknown_name_message(placeholder) {
            return Some(format!("`{{{{ {placeholder} }}}}`: {reason}"));
        }
        let Placeholder::Argument(name) = placeholder else {
            return None;
        };
        let may_be_absent = self.context.may_be_absent(name);
        (may_be_absent && !scope.given.contains(placeholder)).then(|| {
            format!(
                "some calls have no value for `{name}`: write `{{when: {name}, args: [\"{text}\"]}}`, give it a default or \
                 make it required"
            )
        })
    }

    /// Why the value would choose the option: the item has only dashes before it. A number or one
    /// of a fixed set is what the manifest permits, as in `head -5`.
    fn option_fault(&self, template: &Template, scope: &Scope) -> Option<String> {
        let [Part::Text(dashes), Part::Value(placeholder, _), ..] = template.parts() else {
            return None;
        };
        if scope.after_dashes || !dashes.chars().all(|c| c == '-') {
            return None;
        }
        if let Placeholder::Argument(name) = placeholder {
            let schema = &self.context.input_schema["properties"][name];
            let is_number = matches!(self.declared_type(name), Some("integer" | "number"));
            if is_number || schema.get("enum").is_some() {
                return None;
            }
        }
        Some(format!(
            "`{placeholder}` would choose the option: write the option's name before the value"
        ))
    }

    /// The type that the schema declares for a parameter, if it is one type.
    fn declared_type(&self, name: &str) -> Option<&str> {
        self.context.input_schema["properties"][name]
            .get("type")
            .and_then(Value::as_str)
    }
}

/// The shapes that an item may have, for messages.
const SHAPES: &str = "an item is a text, `{when: NAME, args: [...]}` or `{each: NAME}`";

/// An item of `command:`.
#[derive(Debug, Clone, PartialEq, Eq, schemars::JsonSchema)]
#[schemars(untagged)]
pub enum CommandItem {
    /// One argument of the program, with placeholders.
    Text(String),
    /// Items that are there only if the call has a value.
    When(WhenItem),
    /// Items for each element of a list.
    Each(EachItem),
}

/// Items that are there only if an argument is given.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WhenItem {
    /// The parameter, or `context.NAME`. Its value must not be absent, null, false or an empty
    /// list.
    pub when: String,
    /// The items.
    pub args: Vec<CommandItem>,
}

/// Items for each element of a list argument, in the order of the list.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EachItem {
    /// The parameter.
    pub each: String,
    /// The texts for one element, which is `{{ item }}`. Default: the element alone.
    pub args: Option<Vec<String>>,
}

impl<'de> Deserialize<'de> for CommandItem {
    /// Reads by the keys that are there, so that a message is about the shape that was meant.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::String(text) => Ok(Self::Text(text)),
            Value::Object(entries) if entries.contains_key("when") => {
                if !entries.contains_key("args") {
                    return Err(D::Error::custom(
                        "`when` needs its items: `{when: NAME, args: [...]}`",
                    ));
                }
                WhenItem::deserialize(Value::Object(entries))
                    .map(Self::When)
                    .map_err(D::Error::custom)
            }
            Value::Object(entries) if entries.contains_key("each") => {
                EachItem::deserialize(Value::Object(entries))
                    .map(Self::Each)
                    .map_err(D::Error::custom)
            }
            value @ (Value::Number(_) | Value::Bool(_)) => Err(D::Error::custom(format!(
                "{SHAPES}: write {value} in quotes, \"{value}\""
            ))),
            Value::Null | Value::Array(_) | Value::Object(_) => Err(D::Error::custom(SHAPES)),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn wrong_items_show_the_right_shapes() {
        for (item, expected) in [
            (json!(5), "write 5 in quotes, \"5\""),
            (json!(true), "write true in quotes, \"true\""),
            (json!(null), SHAPES),
            (json!(["a"]), SHAPES),
            (json!({"if": "a"}), SHAPES),
            (
                json!({"when": "a"}),
                "`when` needs its items: `{when: NAME, args: [...]}`",
            ),
            (
                json!({"when": "a", "args": [], "else": []}),
                "unknown field `else`",
            ),
            (json!({"each": "a", "sep": ","}), "unknown field `sep`"),
        ] {
            let message = serde_json::from_value::<CommandItem>(item)
                .unwrap_err()
                .to_string();
            assert!(message.contains(expected), "{message}");
        }
    }
}
