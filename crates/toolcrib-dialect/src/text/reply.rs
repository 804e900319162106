//! Writes the replies to a model that writes its calls as text.

use serde_json::{Value, json};

use crate::blocks;
use crate::found_calls::tool_name;
use crate::message::{Message, TextSyntax, ToolReply};

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
        TextSyntax::Marked | TextSyntax::Tagged | TextSyntax::React => "\n",
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
    match syntax {
        TextSyntax::Marked => format!(
            "[TOOL_RESULT]{}[/TOOL_RESULT]",
            as_json(name, text, reply.is_error)
        ),
        TextSyntax::Tagged => format!(
            "<tool_response>\n{}\n</tool_response>",
            as_json(name, text, reply.is_error)
        ),
        TextSyntax::React => {
            let name = if several {
                format!("{shown}: ")
            } else {
                String::new()
            };
            let error = if reply.is_error { "Error: " } else { "" };
            format!("Observation: {name}{error}{text}")
        }
        TextSyntax::Fenced | TextSyntax::Bare => {
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
        .replace("</", "<\\/");
    let key = if is_error { "error" } else { "content" };
    format!("{{\"name\": {name}, \"{key}\": {text}}}")
}

/// Explains the syntax of a call, and lists the tools. An empty list names no tools.
pub fn syntax_reminder(syntax: TextSyntax, tools: &[&str]) -> String {
    let instruction = match syntax {
        TextSyntax::Marked => {
            "To call a tool, write exactly this, with strict JSON between the marks:\n\
             [TOOL_CALL]{\"name\": \"TOOL\", \"args\": {\"PARAMETER\": \"VALUE\"}}[/TOOL_CALL]"
        }
        TextSyntax::Tagged => {
            "To call a tool, write exactly this, with strict JSON between the tags:\n\
             <tool_call>\n{\"name\": \"TOOL\", \"arguments\": {\"PARAMETER\": \"VALUE\"}}\n</tool_call>"
        }
        TextSyntax::React => {
            "To call a tool, write exactly these two lines, with one strict JSON object as the input, and stop:\n\
             Action: TOOL\nAction Input: {\"PARAMETER\": \"VALUE\"}"
        }
        TextSyntax::Fenced => {
            "To call a tool, write exactly one fenced block of strict JSON:\n\
             ```json\n{\"tool_name\": \"TOOL\", \"arguments\": {\"PARAMETER\": \"VALUE\"}}\n```"
        }
        TextSyntax::Bare => {
            "To call a tool, write strict JSON like this and nothing else:\n\
             {\"tool_name\": \"TOOL\", \"arguments\": {\"PARAMETER\": \"VALUE\"}}"
        }
    };
    if tools.is_empty() {
        instruction.to_owned()
    } else {
        format!("{instruction}\nThe tools are: {}.", tools.join(", "))
    }
}
