//! Writes the replies to a model that writes its calls as text.

use serde_json::{Value, json};

use super::marks::style_of;
use crate::blocks;
use crate::message::{Message, TextSyntax, ToolReply, tool_name};

/// The message to append: one message of the user with the results in the order of the calls, in
/// the syntax of the calls. Empty for a message without calls.
pub fn write_reply(message: &Message, replies: &[ToolReply<'_>]) -> Vec<Value> {
    let several = replies.len() > 1;
    let texts: Vec<String> = message
        .calls
        .iter()
        .zip(replies)
        .map(|(call, reply)| format_reply(message.syntax, tool_name(call), *reply, several))
        .collect();
    if texts.is_empty() {
        return Vec::new();
    }
    let between = match message.syntax {
        TextSyntax::Fenced | TextSyntax::Bare => "\n\n",
        _ => "\n",
    };
    vec![json!({"role": "user", "content": texts.join(between)})]
}

fn format_reply(
    syntax: TextSyntax,
    name: Option<&str>,
    reply: ToolReply<'_>,
    several: bool,
) -> String {
    let text = &*blocks::result_as_text(&reply);
    let shown = name.unwrap_or("unreadable call");
    if let Some(style) = style_of(syntax) {
        let (begin, end) = style.reply;
        return format!("{begin}{}{end}", as_json(name, text, reply.is_error));
    }
    match syntax {
        TextSyntax::React => {
            let name = if several {
                format!("{shown}: ")
            } else {
                String::new()
            };
            let error = if reply.is_error { "Error: " } else { "" };
            format!("Observation: {name}{error}{text}")
        }
        _ => {
            let what = if reply.is_error { "Error" } else { "Result" };
            format!("{what} of {shown}:\n{text}")
        }
    }
}

/// One line of JSON. The markers in it are escaped, so a tool's output cannot end the block.
fn as_json(name: Option<&str>, text: &str, is_error: bool) -> String {
    let name = Value::from(name);
    let text = Value::from(text)
        .to_string()
        .replace("[/", "[\\/")
        .replace("</", "<\\/")
        .replace("<|", "<\\u007c")
        .replace("<｜", "<\\uff5c")
        .replace("```", "`\\u0060`");
    let key = if is_error { "error" } else { "content" };
    format!("{{\"name\": {name}, \"{key}\": {text}}}")
}

/// How to write a call that is the whole text.
const BARE_FORM: &str = "To call a tool, write strict JSON like this and nothing else:\n\
    {\"tool_name\": \"TOOL\", \"arguments\": {\"PARAMETER\": \"VALUE\"}}";

/// Explains the syntax of a call, and lists the tools. An empty list names no tools.
pub fn syntax_reminder(syntax: TextSyntax, tools: &[&str]) -> String {
    let form;
    let instruction = match syntax {
        TextSyntax::React => {
            "To call a tool, write exactly these two lines, with one strict JSON object as the input, and stop:\n\
             Action: TOOL\nAction Input: {\"PARAMETER\": \"VALUE\"}"
        }
        TextSyntax::Fenced => {
            "To call a tool, write exactly one fenced block of strict JSON:\n\
             ```json\n{\"tool_name\": \"TOOL\", \"arguments\": {\"PARAMETER\": \"VALUE\"}}\n```"
        }
        syntax => {
            form = match style_of(syntax) {
                Some(style) => format!("To call a tool, write exactly this, {}", style.form),
                None => BARE_FORM.to_owned(),
            };
            &form
        }
    };
    if tools.is_empty() {
        instruction.to_owned()
    } else {
        format!("{instruction}\nThe tools are: {}.", tools.join(", "))
    }
}
