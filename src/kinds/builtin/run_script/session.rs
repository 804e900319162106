//! One script: its process, and the calls that it makes.

use std::collections::HashMap;
use std::path::Path;
use std::pin::pin;
use std::process::Stdio;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_util::codec::{FramedRead, LinesCodec};

use super::protocol::{Event, Reply, Start, WORKER_ARGUMENT};
use super::signatures::{self, parameters, signature};
use crate::access::tool_pattern::{ToolPattern, any_grants};
use crate::call::units::Count;
use crate::call::{
    Definition, JsonObject, NestedCall, ToolContext, ToolError, ToolInvoker, ToolResult,
};
use crate::kinds::builtin::find_tools::explain;
use crate::kinds::process::{Launch, OrphanReaper, ProcessTree, call_marker};

/// More than the line around the longest value.
const LINE_SLACK: usize = 64 << 10;
/// How long a process may take to end after its last word.
const END_GRACE: Duration = Duration::from_secs(1);
/// The functions that find tools, show how they are called, and call tools whose names Python cannot write.
const CALL_TOOL: &str = "call_tool";
const TOOL_SCHEMA: &str = "tool_schema";
const SEARCH_TOOLS: &str = "search_tools";
/// The tools that a search answers without a `limit`, and the most.
const FOUND: usize = 5;
const MAX_FOUND: usize = 50;
/// mimalloc must not reserve memory that counts against the limit of the process.
const ALLOCATOR_SETTINGS: [(&str, &str); 1] = [("MIMALLOC_ARENA_EAGER_COMMIT", "0")];

/// A script that runs.
pub(super) struct Session<'a> {
    context: &'a ToolContext,
    invoker: &'a dyn ToolInvoker,
    /// Patterns of the tools that it may use; `None`: all that the caller may use.
    tools: Option<&'a [ToolPattern]>,
    /// The tools that the script has named, by the names that it uses.
    functions: HashMap<String, Definition>,
    printed: String,
    /// Tokens that models used for its calls.
    tokens: u64,
    /// The calls so far.
    calls: u32,
    /// The tools whose calls have succeeded, in the order of the results.
    done: Vec<String>,
}

/// The tool of a call, what the call gives the script, and the tokens that it used.
type Ended = (String, u32, Result<Value, String>, u64);

impl<'a> Session<'a> {
    pub(super) fn new(
        context: &'a ToolContext,
        invoker: &'a dyn ToolInvoker,
        tools: Option<&'a [ToolPattern]>,
    ) -> Self {
        Self {
            context,
            invoker,
            tools,
            functions: HashMap::new(),
            printed: String::new(),
            tokens: 0,
            calls: 0,
            done: Vec::new(),
        }
    }

    /// Runs the script to its end. Dropping the future ends its process, and cancels its calls.
    pub(super) async fn run(
        mut self,
        program: &Path,
        start: &Start,
        mut launch: Launch,
        reaper: &OrphanReaper,
    ) -> Result<ToolResult, ToolError> {
        let mut command = launch.command(program);
        command
            .arg(WORKER_ARGUMENT)
            .env_clear()
            .envs(ALLOCATOR_SETTINGS)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let marker = call_marker(self.context);
        let failed = |error: std::io::Error| {
            let message = format!("the interpreter cannot be started: {error}");
            ToolError::upstream(message).not_delivered()
        };
        let mut tree = ProcessTree::spawn(&mut command, marker, reaper, launch).map_err(failed)?;
        let (Some(mut stdin), Some(stdout), Some(mut stderr)) = tree.take_pipes() else {
            return Err(ToolError::upstream("the interpreter has no pipes"));
        };
        let mut last_words = Vec::new();
        let outcome = {
            let mut reading = pin!(stderr.read_to_end(&mut last_words));
            let serving = async {
                write_line(&mut stdin, start).await;
                self.serve(&mut stdin, stdout, start).await
            };
            let mut serving = pin!(serving);
            let outcome = tokio::select! {
                biased;
                outcome = &mut serving => outcome,
                _ = &mut reading => serving.await,
            };
            if outcome.is_none() {
                let _ = timeout(END_GRACE, reading).await;
            }
            outcome
        };
        if self.tokens > 0 {
            let mut usage = self.context.model_usage();
            usage.total_tokens = usage.total_tokens.saturating_add(self.tokens);
            self.context.set_model_usage(usage);
        }
        let failure = match outcome {
            Some(Ok(result)) => return Ok(result),
            Some(Err(message)) => message,
            None => explain_end(&String::from_utf8_lossy(&last_words), start),
        };
        Err(ToolError::ErrorResult(self.describe_calls(failure)))
    }

    /// Answers the script until it ends; `None`: its process ended without an event, or sent
    /// an invalid one.
    async fn serve(
        &mut self,
        stdin: &mut ChildStdin,
        stdout: ChildStdout,
        start: &Start,
    ) -> Option<Result<ToolResult, String>> {
        let longest = start.output + LINE_SLACK;
        let mut lines = FramedRead::new(stdout, LinesCodec::new_with_max_length(longest));
        let permits = Semaphore::new(self.invoker.max_parallel_calls());
        let mut running = FuturesUnordered::<BoxFuture<'_, Ended>>::new();
        let caller = Caller {
            context: self.context,
            invoker: self.invoker,
            tools: self.tools,
            permits: &permits,
        };
        loop {
            let line = tokio::select! {
                Some((tool, id, result, tokens)) = running.next(), if !running.is_empty() => {
                    self.tokens += tokens;
                    if result.is_ok() {
                        self.done.push(tool);
                    }
                    write_line(stdin, &reply(id, result)).await;
                    continue;
                }
                line = lines.next() => line?.ok()?,
            };
            match serde_json::from_str(&line).ok()? {
                Event::Print(text) => self.print(&text, start.output),
                Event::Lookup(name) => {
                    let found = self.find_function(&caller, &name);
                    write_line(stdin, &Reply::Function(found)).await;
                }
                Event::Call {
                    id,
                    name,
                    arguments,
                } if name == TOOL_SCHEMA || name == SEARCH_TOOLS => {
                    let found = match name == TOOL_SCHEMA {
                        true => caller.describe(&arguments),
                        false => Ok(caller.search(&arguments)),
                    };
                    write_line(stdin, &reply(id, found)).await;
                }
                Event::Call {
                    id,
                    name,
                    arguments,
                } => {
                    self.calls += 1;
                    if self.calls > start.calls {
                        return None;
                    }
                    let call = match name == CALL_TOOL {
                        true => caller.read_call(arguments),
                        false => Ok((self.functions.get(&name)?.name.to_string(), arguments)),
                    };
                    match call {
                        Ok((tool, arguments)) => {
                            running.push(caller.call(id, tool, arguments).boxed());
                        }
                        Err(message) => write_line(stdin, &Reply::Error(id, message)).await,
                    }
                }
                Event::Done { value, unused } => {
                    // A call that was not awaited goes on to its end, too.
                    while let Some((_, _, _, tokens)) = running.next().await {
                        self.tokens += tokens;
                    }
                    if !unused.is_empty() {
                        let calls = Count(unused.len(), "call");
                        self.context.warn(format!(
                            "the script did not wait for {calls}: write `await` before them"
                        ));
                    }
                    return Some(Ok(self.result(value)));
                }
                Event::Failed(message) => return Some(Err(message)),
            }
        }
    }

    /// The names of the parameters, if a tool of the caller has this name.
    fn find_function(&mut self, caller: &Caller<'_>, name: &str) -> Option<Vec<String>> {
        match name {
            TOOL_SCHEMA => return Some(vec!["name".into()]),
            CALL_TOOL => return Some(vec!["name".into(), "arguments".into()]),
            SEARCH_TOOLS => return Some(vec!["query".into(), "limit".into()]),
            _ => {}
        }
        let definition = caller.find(name).ok()?;
        let names = parameters(&definition);
        self.functions.insert(name.to_owned(), definition);
        Some(names)
    }

    fn print(&mut self, text: &str, most: usize) {
        self.context
            .progress(json!({"print": text.trim_end_matches('\n')}));
        let room = most.saturating_sub(self.printed.len());
        let end = text.floor_char_boundary(room);
        self.printed.push_str(&text[..end]);
    }

    /// The result of a script that ended with this value. Without one, what it printed is the result.
    fn result(&mut self, value: Value) -> ToolResult {
        match value {
            Value::Null if self.printed.is_empty() => ToolResult::text(
                "The script ended without a value. Its last line is its result: write an expression there.",
            ),
            Value::Null => ToolResult::text(std::mem::take(&mut self.printed)),
            Value::String(text) => ToolResult::text(text),
            value @ (Value::Array(_) | Value::Object(_)) => ToolResult::json(value),
            value @ (Value::Bool(_) | Value::Number(_)) => ToolResult::text(value.to_string()),
        }
    }

    /// The message of a failure, with the calls that are done and stay done, and what was printed.
    fn describe_calls(&self, mut message: String) -> String {
        if !self.done.is_empty() {
            let calls = Count(self.done.len(), "call");
            let mut names = self.done.clone();
            names.dedup();
            names.truncate(20);
            message.push_str(&format!(" Not undone: {calls} ({}).", names.join(", ")));
        }
        if !self.printed.is_empty() {
            let tail = self.printed.len().saturating_sub(2000);
            let tail = &self.printed[self.printed.ceil_char_boundary(tail)..];
            message.push_str(&format!(" It printed: {}", tail.trim_end()));
        }
        message
    }
}

/// The way to the other tools.
#[derive(Clone, Copy)]
struct Caller<'a> {
    context: &'a ToolContext,
    invoker: &'a dyn ToolInvoker,
    tools: Option<&'a [ToolPattern]>,
    /// How many calls run at the same time.
    permits: &'a Semaphore,
}

impl Caller<'_> {
    fn may_use(&self, tool: &Definition) -> bool {
        let patterns = self.tools;
        patterns.is_none_or(|patterns| any_grants(patterns, tool.names(), |_| false))
    }

    /// What `call_tool(name, arguments)` calls.
    fn read_call(&self, mut call: JsonObject) -> Result<(String, JsonObject), String> {
        let name = call.get("name").and_then(Value::as_str).unwrap_or_default();
        let tool = self.find(name)?.name.to_string();
        match call.remove("arguments") {
            None => Ok((tool, JsonObject::new())),
            Some(Value::Object(arguments)) => Ok((tool, arguments)),
            Some(_) => Err(format!("the arguments of {tool} must be a dict")),
        }
    }

    /// The tool that the name means. The error is a sentence.
    fn find(&self, name: &str) -> Result<Definition, String> {
        let may_use = |tool: &Definition| self.may_use(tool);
        let found = self.invoker.resolve(self.context, &may_use, name);
        let found = found.map_err(|similar| unknown_tool(name, &similar))?;
        let is_found = |tool: &Definition| tool.name == found && self.may_use(tool);
        let tools = self.invoker.available_tools(self.context, &is_found);
        let tool = tools.into_iter().next();
        tool.map(|tool| tool.definition)
            .ok_or_else(|| unknown_tool(name, &[]))
    }

    fn describe(&self, arguments: &JsonObject) -> Result<Value, String> {
        let name = arguments.get("name").and_then(Value::as_str);
        let tool = self.find(name.unwrap_or_default())?;
        Ok(json!({
            "name": signatures::function_name(tool.name.as_str()),
            "signature": signature(&tool),
            "description": tool.description,
            "parameters": tool.input_schema,
            "returns": tool.output_schema,
        }))
    }

    fn search(&self, arguments: &JsonObject) -> Value {
        let query = arguments.get("query").and_then(Value::as_str);
        let limit = arguments.get("limit").and_then(Value::as_u64);
        let limit = limit.and_then(|limit| usize::try_from(limit).ok());
        let limit = limit.unwrap_or(FOUND).min(MAX_FOUND);
        let query = query.unwrap_or_default();
        let found = self.invoker.find_tools(self.context, query, limit);
        let names = found.as_array().into_iter().flatten();
        let tools = names.filter_map(|tool| self.find(tool["name"].as_str()?).ok());
        tools.map(|tool| signature(&tool)).collect()
    }

    async fn call(self, id: u32, name: String, arguments: JsonObject) -> Ended {
        let _permit = self.permits.acquire().await;
        let call = NestedCall {
            name: name.clone(),
            arguments: Value::Object(arguments),
            cut_off: false,
            tool_use_id: None,
            deadline: self.context.deadline,
            max_depth: None,
            script_position: Some(id),
        };
        let may_use = |tool: &Definition| self.may_use(tool);
        match self.invoker.call(self.context, &may_use, call).await {
            Ok(answer) => {
                let result = &answer.result;
                let value = match &result.structured_content {
                    _ if answer.waiting || result.is_error => Err(result.as_text()),
                    Some(value) => Ok(value.clone()),
                    None => Ok(result.as_text().into()),
                };
                let value = value.map_err(|text| format!("{name}: {text}"));
                (name, id, value, answer.tokens)
            }
            Err(error) => {
                let message = format!("{name}: {}", explain(&name, error));
                (name, id, Err(message), 0)
            }
        }
    }
}

fn unknown_tool(name: &str, similar: &[String]) -> String {
    let name: String = name.chars().take(200).collect();
    match similar {
        [] => format!("there is no tool `{name}` for this caller"),
        similar => format!(
            "there is no tool `{name}`; did you mean {}?",
            similar.join(", ")
        ),
    }
}

fn reply(id: u32, result: Result<Value, String>) -> Reply {
    match result {
        Ok(value) => Reply::Result(id, value),
        Err(message) => Reply::Error(id, message),
    }
}

/// Writes a line. If the process has ended, the loop that reads learns it.
async fn write_line(stdin: &mut ChildStdin, message: &impl Serialize) {
    let mut line = serde_json::to_vec(message).unwrap_or_default();
    line.push(b'\n');
    let _ = stdin.write_all(&line).await;
}

/// Why a process ended without a word.
fn explain_end(last_words: &str, start: &Start) -> String {
    let (time, memory) = (start.time, start.memory >> 20);
    let why = if last_words.contains("memory allocation of") {
        format!("it used more than {memory} MiB of memory")
    } else if last_words.contains("overflowed its stack") {
        "its values or functions are nested too deep".into()
    } else {
        format!(
            "its interpreter ended. It computed longer than {time} ms, used more than {memory} MiB of memory, or met a fault of \
             the interpreter. Write it in a simpler way"
        )
    };
    format!("The script failed: {why}.")
}
