//! Types of all tools for those who call them: declarations for TypeScript and for Python.
//!
//! A schema becomes a `Type`, which each language writes in its own words. A type may
//! accept more than its schema does, but never less: what a language cannot express is left out.

mod kind;
mod names;
mod python;
mod schema_reader;
mod typescript;

use serde_json::Value;

use self::kind::TypedTool;
use self::names::Names;
use self::schema_reader::declare;

/// A language in which types are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Language {
    /// Declarations that extend the npm package `toolcrib`.
    #[default]
    Typescript,
    /// A module with `TypedDict`s, `Client` and `AsyncClient`.
    Python,
}

/// The types of tools as the source of a file. `tools` are objects as `GET /tools` lists them. The order
/// is that of their names.
pub fn render_types(language: Language, tools: &[Value]) -> String {
    fn text<'a>(tool: &'a Value, key: &str) -> &'a str {
        tool[key].as_str().unwrap_or_default()
    }
    let mut sorted: Vec<&Value> = tools.iter().collect();
    sorted.sort_by_key(|tool| text(tool, "name"));
    let (mut names, mut declared, mut typed) = (Names::default(), Vec::new(), Vec::new());
    for tool in sorted {
        let name = text(tool, "name");
        let mut add = |schema: &Value, word: &str| {
            let is_argument = word == "Arguments";
            let name = names.claim(&format!("{}{word}", names::pascal_case(name)));
            declared.extend(declare(schema, name.clone(), is_argument, &mut names));
            name
        };
        let arguments = add(&tool["input_schema"], "Arguments");
        let output = Some(&tool["output_schema"]).filter(|schema| !schema.is_null());
        let result = output.map(|schema| add(schema, "Result"));
        typed.push(TypedTool {
            name,
            description: text(tool, "description"),
            arguments,
            result,
        });
    }
    match language {
        Language::Typescript => typescript::render(&typed, &declared),
        Language::Python => python::render(&typed, &declared, names),
    }
}

#[cfg(test)]
mod tests;
