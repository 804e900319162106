//! Writes the replies to a model that writes its calls as text.

use serde_json::{Value, json};

use crate::dialect::blocks;
use crate::dialect::found_calls::name_of;
use crate::dialect::message::{Message, TextSyntax, ToolReply};

/// The message to append: one message of the user with the results in the order of the calls, in the syntax of the
/// calls. Empty for a message without calls.
pub fn reply(message: &Message, said: &[ToolReply<'_>]) -> Vec<Value> {
    let several = said.len() > 1;
    let told: Vec<String> =
        message.asks.iter().zip(said).map(|(ask, said)| tell(message.form, name_of(ask), *said, several)).collect();
    if told.is_empty() {
        return Vec::new();
    }
    let between = match message.form {
        TextSyntax::Fenced | TextSyntax::Bare => "\n\n",
        TextSyntax::Marked | TextSyntax::Tagged | TextSyntax::React => "\n",
    };
    vec![json!({"role": "user", "content": told.join(between)})]
}

fn tell(form: TextSyntax, name: Option<&str>, said: ToolReply<'_>, several: bool) -> String {
    let text = &*blocks::all_in_words(&said);
    let shown = name.unwrap_or("unreadable call");
    match form {
        TextSyntax::Marked => format!("[TOOL_RESULT]{}[/TOOL_RESULT]", as_json(name, text, said.is_error)),
        TextSyntax::Tagged => format!("<tool_response>\n{}\n</tool_response>", as_json(name, text, said.is_error)),
        TextSyntax::React => {
            let name = if several { format!("{shown}: ") } else { String::new() };
            let error = if said.is_error { "Error: " } else { "" };
            format!("Observation: {name}{error}{text}")
        }
        TextSyntax::Fenced | TextSyntax::Bare => {
            let what = if said.is_error { "Error" } else { "Result" };
            format!("{what} of {shown}:\n{text}")
        }
    }
}

/// One line of JSON. The markers in it are escaped, so a tool's output cannot end the block.
fn as_json(name: Option<&str>, text: &str, is_error: bool) -> String {
    let name = Value::from(name);
    let text = Value::from(text).to_string().replace("[/", "[\\/").replace("</", "<\\/");
    let key = if is_error { "error" } else { "content" };
    format!("{{\"name\": {name}, \"{key}\": {text}}}")
}

/// Explains the syntax of a call, and lists the tools. An empty list names no tools.
pub fn reminder(form: TextSyntax, tools: &[&str]) -> String {
    let how = match form {
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
    if tools.is_empty() { how.to_owned() } else { format!("{how}\nThe tools are: {}.", tools.join(", ")) }
}
