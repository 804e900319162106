//! Builds the program's arguments (argv) from the call's arguments and from fields of the caller's
//! context.
//!
//! A value stays within one item, so it cannot add a second argument. It must not be the start of
//! an item with a leading `-`, unless the manifest has a `--` before it. So it cannot be an option,
//! such as `--output=/etc/passwd` as a "file name". A number may be negative as the value of an
//! option such as `--lon`. Only the manifest decides which items are there: by `when`, and by
//! `each` for the elements of a list.

use std::borrow::Cow;
use std::collections::BTreeSet;

use serde_json::Value;

use super::dash::DashRule;
use super::item_text::{ELEMENT, Element, ItemText, ItemValues};
use super::items::{CommandItem, EachItem, WhenItem};
use crate::kinds::template::{Part, Template};
use crate::kinds::{BuildContext, ConfigFault, Placeholder, ValueFault, Values};

/// The items after the program.
pub(super) struct Argv {
    items: Vec<Item>,
    /// The bytes of the program's name.
    program_bytes: usize,
}

enum Item {
    Literal(String),
    Text(ItemText),
    /// Items that are there if the call has a value for the placeholder.
    When(Placeholder, Vec<Item>),
    /// Items for each element of the list in this argument.
    Each(String, Vec<ItemText>),
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
        };
        let program = parser.program(command.first()).unwrap_or_default();
        let rest = command.iter().enumerate().skip(1);
        let items = parser.items(rest, &["command".to_owned()], &mut Scope::default());
        (
            Self {
                items,
                program_bytes: program.len(),
            },
            parser.faults,
        )
    }

    /// The items with all values filled in.
    pub(super) fn render(&self, values: Values<'_>) -> Vec<String> {
        let mut rendered = Vec::new();
        visit(&self.items, values, &mut |item| {
            rendered.push(match item {
                PresentItem::Literal(text) => text.to_owned(),
                PresentItem::Text(text, values) => text.render(values),
            });
        });
        rendered
    }

    /// The bytes of the command line with these values, with `each` more for every item.
    pub(super) fn bytes(&self, values: Values<'_>, each: usize) -> ArgvBytes {
        let mut bytes = ArgvBytes {
            fixed: self.program_bytes + each,
            ..ArgvBytes::default()
        };
        visit(&self.items, values, &mut |item| {
            bytes.fixed += each;
            match item {
                PresentItem::Literal(text) => bytes.fixed += text.len(),
                PresentItem::Text(text, values) => {
                    bytes.fixed += text.literal_bytes();
                    text.value_bytes(values, |placeholder, length| match *placeholder {
                        Placeholder::Argument(_) => bytes.arguments += length,
                        Placeholder::Context(_) | Placeholder::Caller(_) => bytes.fields += length,
                    });
                }
            }
        });
        bytes
    }

    /// The argument that takes the most bytes.
    pub(super) fn longest_argument(&self, values: Values<'_>) -> Option<Placeholder> {
        let mut totals: Vec<(usize, Placeholder)> = Vec::new();
        visit(&self.items, values, &mut |item| {
            if let PresentItem::Text(text, values) = item {
                text.value_bytes(values, |placeholder: Cow<'_, Placeholder>, length| {
                    if matches!(
                        *placeholder,
                        Placeholder::Context(_) | Placeholder::Caller(_)
                    ) {
                        return;
                    }
                    match totals.iter_mut().find(|(_, known)| *known == *placeholder) {
                        Some((total, _)) => *total += length,
                        None => totals.push((length, placeholder.into_owned())),
                    }
                });
            }
        });
        totals
            .into_iter()
            .max_by_key(|(total, _)| *total)
            .map(|(_, placeholder)| placeholder)
    }

    /// The parameters on which the items depend.
    pub(super) fn parameters(&self) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        collect_parameters(&self.items, &mut names);
        names
    }

    /// Why these values are not permitted in argv: at most one fault for each item of the manifest.
    pub(super) fn value_faults(&self, values: Values<'_>) -> Vec<ValueFault> {
        let mut faults = Vec::new();
        collect_value_faults(&self.items, values, &mut faults);
        faults
    }
}

fn collect_parameters(items: &[Item], names: &mut BTreeSet<String>) {
    for item in items {
        match item {
            Item::Literal(_) => {}
            Item::Text(text) => names.extend(text.template.parameters().map(str::to_owned)),
            Item::When(condition, items) => {
                names.extend(condition.argument().map(str::to_owned));
                collect_parameters(items, names);
            }
            Item::Each(list, texts) => {
                names.insert(list.clone());
                names.extend(
                    texts
                        .iter()
                        .flat_map(|text| text.template.parameters())
                        .map(str::to_owned),
                );
            }
        }
    }
}

impl From<ItemText> for Item {
    fn from(text: ItemText) -> Self {
        match text.template.as_literal() {
            Some(literal) => Self::Literal(literal.to_owned()),
            None => Self::Text(text),
        }
    }
}

/// An item that is there in a call.
enum PresentItem<'a> {
    Literal(&'a str),
    Text(&'a ItemText, ItemValues<'a>),
}

/// Shows `take` the items that are there, in order.
fn visit<'a>(items: &'a [Item], values: Values<'a>, take: &mut dyn FnMut(PresentItem<'a>)) {
    for item in items {
        match item {
            Item::Literal(text) => take(PresentItem::Literal(text)),
            Item::Text(text) => {
                let element = None;
                take(PresentItem::Text(text, ItemValues { values, element }));
            }
            Item::When(condition, items) => {
                if is_given(values.get(condition)) {
                    visit(items, values, take);
                }
            }
            Item::Each(list, texts) => {
                for element in elements(list, values) {
                    let element = Some(element);
                    for text in texts {
                        take(PresentItem::Text(text, ItemValues { values, element }));
                    }
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

fn elements<'a>(list: &'a str, values: Values<'a>) -> impl Iterator<Item = Element<'a>> {
    let elements = values
        .arguments
        .get(list)
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default();
    elements
        .iter()
        .enumerate()
        .map(move |(index, value)| Element { list, index, value })
}

fn collect_value_faults(items: &[Item], values: Values<'_>, faults: &mut Vec<ValueFault>) {
    for item in items {
        match item {
            Item::Literal(_) => {}
            Item::Text(text) => faults.extend(text.value_fault(ItemValues {
                values,
                element: None,
            })),
            Item::When(condition, items) if is_given(values.get(condition)) => {
                collect_value_faults(items, values, faults);
            }
            Item::When(..) => {}
            Item::Each(list, texts) => match values.arguments.get(list) {
                None | Some(Value::Null | Value::Array(_)) => {
                    let mut found = elements(list, values).flat_map(|element| {
                        let values = ItemValues {
                            values,
                            element: Some(element),
                        };
                        texts
                            .iter()
                            .filter_map(move |text| text.value_fault(values))
                    });
                    faults.extend(found.next());
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
    fn error(&mut self, path: &[String], message: impl Into<String>) {
        self.faults.push(ConfigFault {
            path: path.to_vec(),
            ..ConfigFault::error(&[], message)
        });
    }

    /// The name or path of the program.
    fn program(&mut self, item: Option<&CommandItem>) -> Option<String> {
        let path = ["command".to_owned(), "0".to_owned()];
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
        path: &[String],
        scope: &mut Scope,
    ) -> Vec<Item> {
        let mut parsed = Vec::new();
        for (index, item) in items {
            let path = [path, &[index.to_string()]].concat();
            scope.after_option =
                matches!(parsed.last(), Some(Item::Literal(text)) if text.starts_with("--"));
            let item = match item {
                CommandItem::Text(text) => self.text(text, &path, scope).map(Item::from),
                CommandItem::When(entry) => self.when(entry, &path, scope),
                CommandItem::Each(entry) => self.each(entry, &path, scope),
            };
            scope.after_dashes |= matches!(&item, Some(Item::Literal(text)) if text == "--");
            parsed.extend(item);
        }
        parsed
    }

    fn when(&mut self, entry: &WhenItem, path: &[String], scope: &Scope) -> Option<Item> {
        let condition = self.name(&entry.when, &[path, &["when".to_owned()]].concat())?;
        let mut inner = scope.clone();
        inner.given.push(condition.clone());
        let path = [path, &["args".to_owned()]].concat();
        if entry.args.is_empty() {
            self.error(
                &path,
                "must not be empty: list the items that are there if the argument is given",
            );
        }
        let items = self.items(entry.args.iter().enumerate(), &path, &mut inner);
        Some(Item::When(condition, items))
    }

    fn each(&mut self, entry: &EachItem, path: &[String], scope: &Scope) -> Option<Item> {
        let key = [path, &["each".to_owned()]].concat();
        let Placeholder::Argument(list) = self.name(&entry.each, &key)? else {
            self.error(
                &key,
                "must be a parameter: a field of the context is one value",
            );
            return None;
        };
        if let Some(declared) = self
            .declared_type(&list)
            .filter(|declared| declared != "array")
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
        let path = [path, &["args".to_owned()]].concat();
        let is_element =
            |placeholder: &Placeholder| *placeholder == Placeholder::Argument(ELEMENT.to_owned());
        let mut texts = Vec::new();
        for (index, text) in args.iter().enumerate() {
            let path = [&path[..], &[index.to_string()]].concat();
            let text = self.text(text, &path, &inner)?;
            inner.after_option = text
                .template
                .as_literal()
                .is_some_and(|literal| literal.starts_with("--"));
            texts.push(text);
        }
        if !texts
            .iter()
            .any(|text| text.template.placeholders().any(is_element))
        {
            self.error(
                &path,
                format!("must contain `{{{{ {ELEMENT} }}}}`, which stands for the element"),
            );
        } else if entry.args.is_some() && self.context.parameter_use(ELEMENT).is_some() {
            let message = format!(
                "`{{{{ {ELEMENT} }}}}` is the element here: give the parameter `{ELEMENT}` another name"
            );
            self.error(&path, message);
        }
        Some(Item::Each(list, texts))
    }

    /// The parameter or field that `when` or `each` names.
    fn name(&mut self, name: &str, path: &[String]) -> Option<Placeholder> {
        let placeholder = self.context.resolve_placeholder(name.trim());
        match self.context.unknown_name_message(&placeholder) {
            None => Some(placeholder),
            Some(_) if name.contains("{{") => {
                self.error(path, "write the name of the parameter, without `{{ }}`");
                None
            }
            Some(message) => {
                self.error(path, message);
                None
            }
        }
    }

    fn text(&mut self, text: &str, path: &[String], scope: &Scope) -> Option<ItemText> {
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
        let option_fault = || {
            if scope.after_dashes {
                None
            } else {
                self.option_fault(&template)
            }
        };
        if let Some(message) = message.or_else(option_fault) {
            self.error(path, message);
            return None;
        }
        let dash_rule = scope.dash_rule();
        if let Some(Part::Value(placeholder)) = template
            .parts()
            .first()
            .filter(|_| template.parts().len() == 1)
            && !scope.is_element(placeholder)
        {
            self.faults
                .extend(dash_rule.warning(placeholder, self.context, path));
        }
        self.faults.extend(self.context.single_braces(
            &template,
            &path.iter().map(String::as_str).collect::<Vec<_>>(),
        ));
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
        let may_be_absent = self
            .context
            .parameter_use(name)
            .is_some_and(|parameter| !parameter.always_present);
        (may_be_absent && !scope.given.contains(placeholder)).then(|| {
            format!(
                "some calls have no value for `{name}`: write `{{when: {name}, args: [\"{text}\"]}}`, give it a default or \
                 make it required"
            )
        })
    }

    /// Why the value would choose the option: the item has only dashes before it. A number or one
    /// of a fixed set is what the manifest permits, as in `head -5`.
    fn option_fault(&self, template: &Template) -> Option<String> {
        let [Part::Text(dashes), Part::Value(placeholder), ..] = template.parts() else {
            return None;
        };
        if !dashes.chars().all(|c| c == '-') {
            return None;
        }
        if let Placeholder::Argument(name) = placeholder {
            let is_closed = self.context.input_schema["properties"][name]
                .get("enum")
                .is_some();
            if is_closed
                || matches!(
                    self.declared_type(name).as_deref(),
                    Some("integer" | "number")
                )
            {
                return None;
            }
        }
        Some(format!(
            "`{placeholder}` would choose the option: write the option's name before the value"
        ))
    }

    /// The type that the schema declares for a parameter, if it is one type.
    fn declared_type(&self, name: &str) -> Option<String> {
        self.context.input_schema["properties"][name]
            .get("type")
            .and_then(Value::as_str)
            .map(str::to_owned)
    }
}
