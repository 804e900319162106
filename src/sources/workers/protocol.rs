//! The protocol between the service and a worker: one JSON object per line, in UTF-8.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::config::{ModulePath, ModuleSettings};
use super::language::Language;
use super::stderr_log::log_traceback;
use crate::call::{
    AskError, Content, CutEnds, EnvVar, QuestionAnswer, ToolContext, ToolError, ToolResult,
    Violation,
    json::{Changes, parse_result},
};
use crate::kinds::malformed_definition::{describe_decode_error, read_tool_name};
use crate::schema::SchemaOwner;

/// Longest result that a worker writes, in bytes of its JSON.
const MAX_RESULT_BYTES: usize = 4 << 20;
/// Characters of an exception's text that a worker sends (`MAX_EXCEPTION_CHARS` in
/// `calls.py` of the Python worker).
const MAX_EXCEPTION_CHARS: usize = 1 << 20;
/// Bytes of this text that are kept, if the function raised the exception.
const MAX_ERROR_BYTES: usize = 64 << 10;
/// Bytes of this text that are kept, if the function's result cannot be passed on.
const MAX_FAULT_BYTES: usize = 4 << 10;

/// How a function runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Mode {
    /// It blocks its thread.
    Sync,
    /// It is a coroutine.
    Async,
}

/// Which calls a worker takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Role {
    /// Calls of blocking functions, one at a time.
    Sync,
    /// Calls of coroutines, on one loop.
    Async,
    /// Calls of coroutines on one loop, and of blocking functions on one thread beside it.
    Shared,
}

/// The line of a message to a worker, beside [`CallMessage`](super::call_message::CallMessage).
fn to_line(message: &Value) -> Vec<u8> {
    format!("{message}\n").into_bytes()
}

/// The first message: what to load.
pub(super) fn load_message(
    settings: &ModuleSettings,
    packages: Option<&Path>,
    source: Option<&str>,
    role: Role,
) -> Vec<u8> {
    let (module, is_file) = match &settings.module {
        ModulePath::File(path) => (path.to_string_lossy(), true),
        ModulePath::Name(name) => (name.into(), false),
    };
    to_line(&json!({
        "op": "load",
        "module": module,
        "is_file": is_file,
        // The text of the file when the module was listed.
        "source": source,
        "object": settings.object,
        "init": settings.init,
        "functions": settings.functions,
        // The folder with `node_modules`, for packages that are not beside the module.
        "packages": packages.map(Path::to_string_lossy),
        "role": role,
        "max_result": MAX_RESULT_BYTES,
    }))
}

/// The message that cancels a call.
pub(super) fn cancel_message(id: u64) -> Vec<u8> {
    to_line(&json!({"op": "cancel", "id": id}))
}

/// The message with the answer to a question, or with the reason why it has none.
pub(super) fn answer_message(
    id: u64,
    question: u64,
    answer: &Result<QuestionAnswer, AskError>,
) -> Vec<u8> {
    let mut message = match answer {
        Ok(answer) => json!(answer),
        Err(error) => json!({"error": error.to_string()}),
    };
    message["op"] = "answer".into();
    message["id"] = id.into();
    message["question"] = question.into();
    to_line(&message)
}

/// A worker's first message.
pub(super) enum Hello {
    /// The worker takes calls.
    Ready(ModuleListing),
    /// The worker could not load the module, and ends.
    Failed {
        /// One sentence that names the location of the error.
        message: String,
        traceback: Option<String>,
    },
}

/// Reads a worker's first message. Leaves out a function whose definition is nested too deep to be
/// read, with a warning.
///
/// # Errors
/// The line is not a first message of a worker.
pub(super) fn read_hello(line: &[u8]) -> serde_json::Result<Hello> {
    #[derive(Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Op {
        Ready,
        Failed,
    }
    #[derive(Deserialize)]
    struct RawHello<'a> {
        op: Op,
        #[serde(borrow, default)]
        tools: Vec<&'a RawValue>,
        #[serde(default)]
        warnings: Vec<String>,
        #[serde(default)]
        files: Vec<PathBuf>,
        #[serde(default)]
        message: String,
        #[serde(default)]
        traceback: Option<String>,
    }
    let RawHello {
        op,
        tools: written,
        mut warnings,
        files,
        message,
        traceback,
    } = serde_json::from_slice(line)?;
    if matches!(op, Op::Failed) {
        return Ok(Hello::Failed { message, traceback });
    }
    let (mut tools, mut left_out) = (Vec::new(), Vec::new());
    for text in written {
        match serde_json::from_str(text.get()) {
            Ok(function) => tools.push(function),
            Err(error) if error.is_syntax() => {
                let name = read_tool_name(text)?;
                warnings.push(format!(
                    "the tool `{name}` is left out: {}",
                    describe_decode_error(&error)
                ));
                left_out.push(name);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(Hello::Ready(ModuleListing {
        tools,
        warnings,
        files,
        skipped_names: left_out,
    }))
}

/// The contents of a module.
#[derive(Debug, PartialEq)]
pub(super) struct ModuleListing {
    pub tools: Vec<Function>,
    pub warnings: Vec<String>,
    /// The files of the user that were loaded, as far as the worker reports them.
    pub files: Vec<PathBuf>,
    /// Names of functions that cannot be used.
    pub skipped_names: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(super) struct Function {
    pub name: String,
    pub description: String,
    pub input_schema: Value,
    #[serde(default)]
    pub output_schema: Option<Value>,
    #[serde(default)]
    pub schema_owner: SchemaOwner,
    pub mode: Mode,
    #[serde(default)]
    pub takes_context: bool,
    #[serde(default)]
    pub result_as_answer: bool,
    /// The total number of calls that the function permits.
    #[serde(default)]
    pub max_calls: Option<u64>,
    /// Environment variables that it reads.
    #[serde(default)]
    pub env: Vec<EnvVar>,
}

impl Function {
    /// Whether calls may ask their caller.
    pub(super) fn may_ask(&self) -> bool {
        self.takes_context && self.mode == Mode::Async
    }
}

/// A question of a function.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct WorkerQuestion {
    /// The number of the question within its call.
    pub question: u64,
    pub message: String,
    pub schema: Option<Value>,
    pub name: Option<String>,
}

/// A worker's message about a call.
pub(super) enum WorkerMessage {
    /// A question to the caller. Only a call whose message says that it may ask has questions.
    Ask(WorkerQuestion),
    Note(Note),
    /// The end of the call, and what was changed in the result.
    End(Result<ToolResult, ToolError>, Changes),
}

/// What a worker says about a running call.
pub(super) enum Note {
    /// Progress of the call.
    Progress(Value),
    /// A warning about the result, for the caller.
    Warning(String),
    /// The traceback of the exception with which the function ends, for the log.
    Traceback(String),
}

impl Note {
    /// Hands the note to the caller of the call, or to the log.
    pub(super) fn pass_on(self, language: Language, context: &ToolContext) {
        match self {
            Self::Progress(data) => context.progress(data),
            Self::Warning(warning) => context.warn(warning),
            Self::Traceback(traceback) => log_traceback(language, context, &traceback),
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Op {
    Ask,
    Progress,
    Warning,
    Traceback,
    Result,
    Invalid,
    FailedCall,
    Cancelled,
}

/// Any message about a call. Its parts stay unparsed until the kind of the message says which parts
/// are needed.
#[derive(Deserialize)]
struct RawMessage<'a> {
    op: Op,
    id: u64,
    #[serde(borrow, default)]
    data: Option<&'a RawValue>,
    #[serde(borrow, default)]
    content: Option<&'a RawValue>,
    #[serde(borrow, default)]
    structured_content: Option<&'a RawValue>,
    #[serde(default)]
    is_error: bool,
    #[serde(default)]
    result_as_answer: Option<bool>,
    #[serde(default)]
    not_cached: bool,
    #[serde(default)]
    hint: Option<String>,
    #[serde(default)]
    violations: Vec<RawViolation>,
    #[serde(default)]
    message: Option<String>,
}

#[derive(Deserialize)]
struct RawViolation {
    pointer: String,
    message: String,
}

/// Reads a message of a worker that has loaded its module: the id of the call, and the content.
///
/// # Errors
/// What is wrong with the line. After that the worker cannot be trusted, and must be ended.
pub(super) fn read_message(
    language: Language,
    line: &[u8],
) -> Result<(u64, WorkerMessage), String> {
    let line: RawMessage<'_> = serde_json::from_slice(line).map_err(|error| error.to_string())?;
    let failed = |error| WorkerMessage::End(Err(error), Changes::default());
    let message = match line.op {
        Op::Ask => {
            let data = line.data.map(|data| serde_json::from_str(data.get()));
            let question = data.transpose().map_err(|error| error.to_string())?;
            WorkerMessage::Ask(question.unwrap_or_default())
        }
        Op::Progress => WorkerMessage::Note(Note::Progress(
            line.data
                .and_then(|data| parse_result(data.get().as_bytes()).ok())
                .map(|(data, _)| data)
                .unwrap_or_default(),
        )),
        Op::Warning => WorkerMessage::Note(Note::Warning(line.message.unwrap_or_default())),
        Op::Traceback => WorkerMessage::Note(Note::Traceback(line.message.unwrap_or_default())),
        Op::Result => {
            let mut changes = Changes::default();
            WorkerMessage::End(read_result(&line, &mut changes), changes)
        }
        Op::Invalid => {
            let violations = line.violations.into_iter();
            let violations = violations.map(|violation| to_violation(language, violation));
            failed(ToolError::InvalidArguments(violations.collect()))
        }
        Op::FailedCall => failed(ToolError::BadOutput(line.message.unwrap_or_default())),
        // A call that the service cancelled has no waiting caller, so this is read only if the
        // function cancelled itself.
        Op::Cancelled => failed(ToolError::ErrorResult(
            "Error: the function cancelled itself".into(),
        )),
    };
    Ok((line.id, message))
}

fn read_result(line: &RawMessage<'_>, changes: &mut Changes) -> Result<ToolResult, ToolError> {
    let bad_output = |what: &str, reason: String| {
        ToolError::BadOutput(format!(
            "the function's {what} cannot be passed on: {reason}"
        ))
    };
    let mut content = line
        .content
        .map(|content| serde_json::from_str::<Vec<Content>>(content.get()))
        .transpose()
        .map_err(|error| bad_output("content", error.to_string()))?
        .unwrap_or_default();
    for block in &content {
        check_block(block).map_err(|error| bad_output("content", error))?;
    }
    let structured_content = line
        .structured_content
        .map(|value| parse_result(value.get().as_bytes()).map(|read| (value.get(), read)))
        .transpose()
        .map_err(|error| bad_output("result", error.to_string()))?
        .map(|(written, (value, changed))| {
            *changes = changed;
            // The text for the model has the same numbers.
            if let (true, [Content::Text { text }]) = (changed.numbers, &mut *content)
                && text == written
            {
                *text = value.to_string();
            }
            value
        });
    Ok(ToolResult {
        content,
        structured_content,
        is_error: line.is_error,
        result_as_answer: line.result_as_answer,
        hint: line.hint.clone(),
        not_cached: line.not_cached,
        ..ToolResult::default()
    })
}

/// Tells the caller what was changed in a result.
pub(super) fn warn_of_changes(changes: Changes, context: &ToolContext) {
    for warning in changes.warnings("the result") {
        context.warn(warning);
    }
}

/// Cuts the text of an exception. The worker sends more of it than is kept, because the worker does
/// not know the secrets. If it cut a secret in half, the redactor would not find it.
pub(super) fn shorten_error(
    result: Result<ToolResult, ToolError>,
    context: &ToolContext,
) -> Result<ToolResult, ToolError> {
    let shorten = |text: &str, max_bytes: usize| {
        let cut = CutEnds {
            start: false,
            end: text.chars().count() >= MAX_EXCEPTION_CHARS,
        };
        let mut text = context.excerpt(text.as_bytes(), cut);
        text.truncate(text.floor_char_boundary(max_bytes));
        text
    };
    match result {
        Ok(mut result) if result.is_error => {
            if let [Content::Text { text }] = &mut *result.content
                && text.len() > MAX_ERROR_BYTES
            {
                *text = shorten(text, MAX_ERROR_BYTES);
            }
            Ok(result)
        }
        Err(ToolError::BadOutput(message)) if message.len() > MAX_FAULT_BYTES => {
            Err(ToolError::BadOutput(shorten(&message, MAX_FAULT_BYTES)))
        }
        result => result,
    }
}

/// Checks the rules of a content block that its types do not express.
fn check_block(block: &Content) -> Result<(), String> {
    let base64 = |what: &str, data: &str| match BASE64_STANDARD.decode(data) {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("the {what} is not base64: {error}")),
    };
    match block {
        Content::Text { .. } | Content::ResourceLink(_) => Ok(()),
        Content::Image { data, .. } => base64("picture", data),
        Content::Audio { data, .. } => base64("sound", data),
        Content::Resource { resource } => match (&resource.text, &resource.blob) {
            (Some(_), None) => Ok(()),
            (None, Some(blob)) => base64("file", blob),
            _ => Err("a resource has either `text` or `blob`".into()),
        },
    }
}

/// The keyword is our own, because no keyword of JSON Schema expresses what a type of the language
/// does.
fn to_violation(language: Language, RawViolation { pointer, message }: RawViolation) -> Violation {
    let property = pointer
        .split('/')
        .nth(1)
        .map(|token| format!("/properties/{token}"));
    Violation {
        pointer,
        keyword: language.kind().as_str().into(),
        message,
        schema_pointer: property.unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deep_definitions_are_skipped() {
        let deep = format!("{}{}{}", r#"{"a":"#.repeat(400), 1, "}".repeat(400));
        let function = |name: &str, schema: &str| {
            format!(
                r#"{{"input_schema":{schema},"name":"{name}","description":"…","mode":"sync"}}"#
            )
        };
        let hello_line = |tools: &[String]| {
            format!(
                r#"{{"op":"ready","python":"3","tools":[{}],"warnings":["w"]}}"#,
                tools.join(",")
            )
        };
        let Ok(Hello::Ready(listing)) =
            read_hello(hello_line(&[function("deep", &deep), function("plain", "{}")]).as_bytes())
        else {
            panic!("no listing");
        };
        let names: Vec<&str> = listing
            .tools
            .iter()
            .map(|tool| tool.name.as_str())
            .collect();
        assert_eq!(
            (names, listing.skipped_names),
            (vec!["plain"], vec!["deep".to_owned()])
        );
        let expected =
            "the tool `deep` is left out: its definition is nested more than 128 levels deep";
        assert_eq!(listing.warnings, ["w", expected]);
        assert!(
            read_hello(hello_line(&["{}".into()]).as_bytes()).is_err(),
            "an invalid definition"
        );
    }
    fn result_with_block(content: Value) -> Result<ToolResult, ToolError> {
        let line =
            json!({"op": "result", "id": 7, "content": [content], "structured_content": null});
        match read_message(Language::Python, line.to_string().as_bytes()) {
            Ok((7, WorkerMessage::End(end, _))) => end,
            _ => panic!("{line}"),
        }
    }

    #[test]
    fn result_blocks_must_be_base64() {
        let data = json!({"type": "image", "data": "aGk=", "mimeType": "image/png"});
        assert_eq!(result_with_block(data).unwrap().content.len(), 1);
        for (block, what) in [
            (
                json!({"type": "image", "data": "not base64!", "mimeType": "image/png"}),
                "the picture is not base64",
            ),
            (
                json!({"type": "audio", "data": "aGk", "mimeType": "audio/wav"}),
                "the sound is not base64",
            ),
            (
                json!({"type": "resource", "resource": {"uri": "f:///a", "blob": "a=b"}}),
                "the file is not base64",
            ),
            (
                json!({"type": "resource", "resource": {"uri": "f:///a"}}),
                "either `text` or `blob`",
            ),
            (
                json!({"type": "resource", "resource": {"uri": "f:///a", "text": "a", "blob": "aGk="}}),
                "either `text` or `blob`",
            ),
        ] {
            let Err(ToolError::BadOutput(message)) = result_with_block(block) else {
                panic!("{what}")
            };
            assert!(
                message.starts_with("the function's content cannot be passed on: ")
                    && message.contains(what),
                "{message}"
            );
        }
    }

    #[test]
    fn long_exceptions_are_redacted_before_the_cut() {
        let (context, _call) = crate::kinds::http::tests::test_context();
        let context = context.with_redactor(std::sync::Arc::new(crate::secrets::Redactor::new([
            "top-secret-value",
        ])));
        for (max_bytes, is_error_result) in [(MAX_ERROR_BYTES, true), (MAX_FAULT_BYTES, false)] {
            let text = format!(
                "{}top-secret-value{}",
                "x".repeat(max_bytes - 9),
                "y".repeat(100)
            );
            let text = match shorten_error(
                if is_error_result {
                    Ok(ToolResult::error(text))
                } else {
                    Err(ToolError::BadOutput(text))
                },
                &context,
            ) {
                Ok(result) => result.as_text(),
                Err(error) => error.to_string(),
            };
            assert!(
                text.ends_with("x[redacted") && text.len() <= max_bytes + 60,
                "{}",
                &text[text.len() - 40..]
            );
        }
    }
}
