//! A Python module with `TypedDict`s, and with clients that know them.

use serde_json::Value;

use super::kind::{Declared, Object, Rest, Type, TypedTool, lines_of, quote};
use super::names::{Names, pascal_case};

/// How many merged objects are written inside each other.
const MAX_MERGED: usize = 4;

const HEADER: &str = r#""""The tools of a Toolcrib service. Written by `toolcrib types --language python`."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypedDict, Union, cast, overload

import toolcrib

if sys.version_info >= (3, 11):
    from typing import NotRequired, Unpack
else:
    from typing_extensions import NotRequired, Unpack
"#;

pub(super) fn render(tools: &[TypedTool<'_>], declared: &[Declared], names: Names) -> String {
    let mut writer = Writer {
        declared,
        names,
        out: HEADER.to_owned(),
        is_argument: false,
        merged: 0,
    };
    for one in declared {
        writer.is_argument = one.is_argument;
        match &one.kind {
            Type::Object(object) if !writer.is_mapping(object) => {
                writer.write_class(&one.name, object, &one.description);
            }
            kind => {
                let text = writer.write(kind, &one.name);
                let lines = comment(&one.description, "");
                writer.out += &format!("\n{lines}{}: TypeAlias = {text}\n", one.name);
            }
        }
    }
    let mut answers = Vec::new();
    for tool in tools {
        let name = format!("{}Answer", pascal_case(tool.name));
        let name = writer.names.claim(&name);
        let result = tool.result.as_deref().unwrap_or("Any");
        writer.out +=
            &format!("\n\nclass {name}(toolcrib.ToolAnswer):\n    structured_content: {result}\n");
        answers.push(name);
    }
    for (class, is_async) in [("Client", false), ("AsyncClient", true)] {
        writer.out += &format!(
            "\n\nclass {class}(toolcrib.{class}):\n    \"\"\"`toolcrib.{class}` with the types of these tools.\"\"\"\n"
        );
        write_invoke(&mut writer, tools, &answers, is_async);
    }
    writer.out
}

/// The method `invoke` of a client, with a signature for each tool.
fn write_invoke(
    writer: &mut Writer<'_>,
    tools: &[TypedTool<'_>],
    answers: &[String],
    is_async: bool,
) {
    let (word, wait) = if is_async {
        ("async ", "await ")
    } else {
        ("", "")
    };
    let (declared, out) = (writer.declared, &mut writer.out);
    let has_required = |one: &Declared| match &one.kind {
        Type::Object(object) => object.fields.iter().any(|field| field.is_required),
        _ => false,
    };
    let forward = format!("{wait}super().invoke(name, arguments, **options)");
    // Python has no way to refuse a known name here and to permit unknown ones.
    let ignored = "  # type: ignore[override]";
    for (at, (tool, answer)) in tools.iter().zip(answers).enumerate() {
        let (name, arguments) = (quote(tool.name), &tool.arguments);
        let takes_some = declared
            .iter()
            .any(|one| one.name == *arguments && has_required(one));
        let default = if takes_some { "" } else { " | None = None" };
        let first = if at == 0 { ignored } else { "" };
        // One overload alone is an error.
        let (decorator, first, body) = match tools.len() {
            1 => (
                String::new(),
                first,
                format!("return cast({answer}, {forward})"),
            ),
            _ => (format!("    @overload{first}\n"), "", "...".to_owned()),
        };
        *out += &format!(
            "\n{decorator}    {word}def invoke({first}\n        self, name: Literal[{name}], arguments: {arguments} | str{default}, \
             **options: Unpack[toolcrib.InvokeOptions]\n    ) -> {answer}:\n        {}\n        {body}\n",
            quote(tool.description),
        );
    }
    if tools.len() > 1 {
        *out += &format!(
            "\n    {word}def invoke(self, name: str, arguments: Any = None, **options: Any) -> Any:\n        return {forward}\n"
        );
    }
}

/// A description as comments before a line. The colon keeps checkers from reading instructions.
fn comment(description: &str, margin: &str) -> String {
    let lines = lines_of(description).into_iter();
    lines
        .map(|line| format!("{margin}#: {line}").trim_end().to_owned() + "\n")
        .collect()
}

struct Writer<'a> {
    declared: &'a [Declared],
    names: Names,
    out: String,
    is_argument: bool,
    /// How many merged objects are being written, each inside the one before.
    merged: usize,
}

impl Writer<'_> {
    /// Whether the object is no `TypedDict`: these have fields, and no others can be written.
    fn is_mapping(&self, Object { fields, rest }: &Object) -> bool {
        match rest {
            Rest::Nothing => false,
            Rest::Unstated => fields.is_empty(),
            Rest::Of(_) => fields.is_empty() || self.is_argument,
        }
    }

    /// Writes an object as a class. The names of its fields may be any texts.
    fn write_class(&mut self, name: &str, object: &Object, description: &str) {
        let mut lines = String::new();
        for field in &object.fields {
            let hint = format!("{name}{}", pascal_case(&field.name));
            let kind = self.write(&field.kind, &hint);
            lines += &comment(&field.description, "    ");
            lines += &match field.is_required {
                true => format!("    {}: {kind},\n", quote(&field.name)),
                false => format!("    {}: NotRequired[{kind}],\n", quote(&field.name)),
            };
        }
        let start = if lines.is_empty() { "" } else { "\n" };
        let comment = comment(description, "");
        self.out += &format!("\n{comment}{name} = TypedDict(\"{name}\", {{{start}{lines}}})\n");
    }

    /// A type as an expression. Declared types are texts, because they may follow later. `hint` is the
    /// name of a class that has to be written for it.
    fn write(&mut self, kind: &Type, hint: &str) -> String {
        match kind {
            Type::Unknown | Type::Never => "Any".to_owned(),
            Type::Null => "None".to_owned(),
            Type::Boolean => "bool".to_owned(),
            Type::Integer => "int".to_owned(),
            Type::Number => "float".to_owned(),
            Type::Text => "str".to_owned(),
            Type::Literal(value) => match write_literal(value) {
                Some(literal) => format!("Literal[{literal}]"),
                None => "float".to_owned(),
            },
            Type::List(item) => self.write_list(item, hint),
            Type::Tuple { items, rest, .. } => {
                let rest = rest.iter().map(|rest| (**rest).clone());
                let item = Type::any(items.iter().cloned().chain(rest));
                self.write_list(&item, hint)
            }
            Type::Object(object) if self.is_mapping(object) => {
                let value = match &object.rest {
                    Rest::Of(value) if object.fields.is_empty() => {
                        self.write(value, &format!("{hint}Value"))
                    }
                    _ => "Any".to_owned(),
                };
                let word = if self.is_argument { "Mapping" } else { "dict" };
                format!("{word}[str, {value}]")
            }
            Type::Object(object) => {
                let name = self.names.claim(hint);
                self.write_class(&name, object, "");
                format!("\"{name}\"")
            }
            Type::Any(forms) => self.write_union(forms, hint),
            Type::All(parts) => {
                // A merged object has no name. One that contains itself would have no end.
                self.merged += 1;
                let object = self.merge(parts).filter(|_| self.merged <= MAX_MERGED);
                let text = match object {
                    Some(object) => self.write(&Type::Object(object), hint),
                    None => self.write(parts.first().unwrap_or(&Type::Unknown), hint),
                };
                self.merged -= 1;
                text
            }
            Type::Named(name) => format!("\"{name}\""),
        }
    }

    /// A list. Callers may write any sequence, but a text is no sequence of texts here.
    fn write_list(&mut self, item: &Type, hint: &str) -> String {
        let is_list = !self.is_argument || *item == Type::Text;
        let word = if is_list { "list" } else { "Sequence" };
        format!("{word}[{}]", self.write(item, &format!("{hint}Item")))
    }

    fn write_union(&mut self, forms: &[Type], hint: &str) -> String {
        let (mut literals, mut parts) = (Vec::new(), Vec::new());
        for form in forms {
            let literal = match form {
                Type::Literal(value) => write_literal(value),
                _ => None,
            };
            match literal {
                Some(literal) => literals.push(literal),
                None => parts.push(self.write(form, hint)),
            }
        }
        if !literals.is_empty() {
            parts.insert(0, format!("Literal[{}]", literals.join(", ")));
        }
        match parts.as_slice() {
            [one] => one.clone(),
            _ => format!("Union[{}]", parts.join(", ")),
        }
    }

    /// One object with the fields of all parts, if all are objects.
    fn merge(&self, parts: &[Type]) -> Option<Object> {
        let mut merged = Object {
            fields: Vec::new(),
            rest: Rest::Unstated,
        };
        for part in parts {
            let object = match part {
                Type::Object(object) => object.clone(),
                Type::All(parts) => self.merge(parts)?,
                Type::Named(name) => {
                    let found = self.declared.iter().find(|one| one.name == *name)?;
                    self.merge(std::slice::from_ref(&found.kind))?
                }
                _ => return None,
            };
            for field in object.fields {
                let fields = &mut merged.fields;
                let Some(known) = fields.iter_mut().find(|known| known.name == field.name) else {
                    fields.push(field);
                    continue;
                };
                known.is_required |= field.is_required;
                known.kind = Type::all([known.kind.clone(), field.kind]);
            }
            if merged.rest == Rest::Unstated {
                merged.rest = object.rest;
            }
        }
        Some(merged)
    }
}

/// A value in `Literal[…]`, which takes no fractions.
fn write_literal(value: &Value) -> Option<String> {
    match value {
        Value::Bool(true) => Some("True".to_owned()),
        Value::Bool(false) => Some("False".to_owned()),
        Value::Number(number) if number.is_f64() => None,
        plain => Some(plain.to_string()),
    }
}
