//! Declarations for TypeScript. They extend the interface `Tools` of the npm package, from which its
//! client knows the arguments and the result of each tool.

use serde_json::Value;

use super::kind::{Declared, Object, Rest, Type, TypedTool, lines_of, quote};

/// Beyond it, neighboring integers are the same number in JavaScript.
const MAX_SAFE_INTEGER: f64 = 9_007_199_254_740_991.0;

pub(super) fn render(tools: &[TypedTool<'_>], declared: &[Declared]) -> String {
    let mut out = String::from(
        "// The tools of a Toolcrib service. Written by `toolcrib types`.\n\nimport type {} from \"toolcrib\";\n\n\
         declare module \"toolcrib\" {\n  interface Tools {\n",
    );
    for tool in tools {
        let result = tool.result.as_deref().unwrap_or("unknown");
        let (name, arguments) = (property_name(tool.name), &tool.arguments);
        out += &comment(tool.description, 4);
        out += &format!("    {name}: {{ arguments: {arguments}; result: {result} }};\n");
    }
    out += "  }\n}\n";
    for one in declared {
        let text = write(&one.kind, 0, one.is_argument);
        let comment = comment(&one.description, 0);
        out += &format!("\n{comment}export type {} = {text};\n", one.name);
    }
    out
}

/// The name of a property, which stands without quotes where it can.
fn property_name(name: &str) -> String {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '$';
    match name.chars().all(is_word) && !name.is_empty() && !name.as_bytes()[0].is_ascii_digit() {
        true => name.to_owned(),
        false => quote(name),
    }
}

/// A description as a comment before a line.
fn comment(description: &str, indent: usize) -> String {
    let margin = " ".repeat(indent);
    let lines = lines_of(&description.replace("*/", "*\\/"));
    match lines.as_slice() {
        [] => String::new(),
        // A tag on a line of its own could be an instruction to the compiler.
        [line] if !line.contains('@') => format!("{margin}/** {line} */\n"),
        lines => {
            let lines = lines
                .iter()
                .map(|line| format!("{margin} * {line}").trim_end().to_owned() + "\n");
            format!("{margin}/**\n{}{margin} */\n", lines.collect::<String>())
        }
    }
}

fn write(kind: &Type, indent: usize, is_argument: bool) -> String {
    let write = |kind: &Type| write(kind, indent, is_argument);
    // A type that stands before `[]` or beside `&`.
    let enclosed = |kind: &Type| match kind {
        Type::Any(_) | Type::All(_) => format!("({})", write(kind)),
        kind => write(kind),
    };
    match kind {
        Type::Unknown => "unknown".to_owned(),
        Type::Never => "never".to_owned(),
        Type::Null => "null".to_owned(),
        Type::Boolean => "boolean".to_owned(),
        Type::Integer | Type::Number => "number".to_owned(),
        Type::Text => "string".to_owned(),
        Type::Literal(Value::Number(number)) => match number.as_f64() {
            Some(exact) if exact.abs() <= MAX_SAFE_INTEGER => exact.to_string(),
            _ => "number".to_owned(),
        },
        Type::Literal(value) => value.to_string(),
        Type::List(item) => format!("{}[]", enclosed(item)),
        Type::Tuple {
            items,
            required,
            rest,
        } => {
            let items = items
                .iter()
                .enumerate()
                .map(|(at, item)| match at < *required {
                    true => write(item),
                    false => format!("{}?", enclosed(item)),
                });
            let rest = rest.iter().map(|rest| format!("...{}[]", enclosed(rest)));
            format!("[{}]", items.chain(rest).collect::<Vec<_>>().join(", "))
        }
        Type::Object(object) => write_object(object, indent, is_argument),
        Type::Any(forms) => forms.iter().map(write).collect::<Vec<_>>().join(" | "),
        Type::All(parts) => parts.iter().map(enclosed).collect::<Vec<_>>().join(" & "),
        Type::Named(name) => name.clone(),
    }
}

fn write_object(Object { fields, rest }: &Object, indent: usize, is_argument: bool) -> String {
    let inner = indent + 2;
    let write = |kind: &Type| write(kind, inner, is_argument);
    let index = match rest {
        Rest::Nothing if fields.is_empty() => Some("never".to_owned()),
        Rest::Nothing => None,
        // Reading an undeclared property is more likely a mistake than writing one.
        Rest::Unstated if is_argument || fields.is_empty() => Some("unknown".to_owned()),
        Rest::Unstated => None,
        // The type of the rest must include those of all fields.
        Rest::Of(rest) => {
            let missing = fields.iter().any(|field| !field.is_required);
            let fields = fields.iter().map(|field| field.kind.clone());
            let all = write(&Type::any(std::iter::once((**rest).clone()).chain(fields)));
            Some(if missing && all != "unknown" {
                format!("{all} | undefined")
            } else {
                all
            })
        }
    };
    let margin = " ".repeat(inner);
    let mut out = String::from("{\n");
    for field in fields {
        let mark = if field.is_required { "" } else { "?" };
        out += &comment(&field.description, inner);
        out += &format!(
            "{margin}{}{mark}: {};\n",
            property_name(&field.name),
            write(&field.kind)
        );
    }
    if let Some(index) = index {
        out += &format!("{margin}[key: string]: {index};\n");
    }
    out + &" ".repeat(indent) + "}"
}
