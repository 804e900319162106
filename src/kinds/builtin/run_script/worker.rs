//! The process of a script: Pydantic's Monty, an interpreter of Python that reaches nothing but the
//! functions that it is given.
//!
//! A script that uses `await` gets a future from each call, so that calls of `asyncio.gather` run at the
//! same time. In any other script, a call returns its result.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::io::{self, BufRead as _, Write as _};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use monty::{FunctionCall, MontyRun, ResolveFutures, RunProgress};
use monty_types::{
    BASELINE_MEMORY, CompileOptions, ExcType, ExtFunctionResult, LIVE_MEMORY, MontyDate,
    MontyException, MontyObject, NameLookupResult, PrintWriter, PrintWriterCallback,
    ResourceLimits, ResourceTracker,
};
use serde_json::{Number, Value};

use super::protocol::{Event, Reply, Start};
use crate::call::JsonObject;

/// Replies that have come and are not read yet. No script makes more calls.
const MAX_REPLIES: usize = 4096;
/// Calls of functions within each other. Each takes some of the stack of the interpreter.
/// Names that are looked up.
const MAX_NAMES: usize = 1000;
const MAX_RECURSION: usize = 500;
const STACK_BYTES: usize = 64 << 20;
/// Levels of lists and objects in a value, as in all JSON that the service reads.
const MAX_DEPTH: usize = 100;
/// How often the memory is measured.
const MEASURE_INTERVAL: Duration = Duration::from_millis(1);

/// Runs the script that standard input names.
pub(crate) fn run() -> ExitCode {
    let (sender, lines) = sync_channel(MAX_REPLIES);
    // A thread of its own: the service must never wait for a script that computes.
    std::thread::spawn(move || {
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    let script = std::thread::Builder::new().stack_size(STACK_BYTES);
    let done = script.spawn(move || Script::start(lines).map(Script::run));
    match done.map(std::thread::JoinHandle::join) {
        Ok(Ok(Some(()))) => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

/// Measures the memory of this process where the interpreter looks for it.
fn measure_memory() {
    let resident = || -> Option<usize> {
        let sizes = std::fs::read_to_string("/proc/self/statm").ok()?;
        let pages: usize = sizes.split(' ').nth(1)?.parse().ok()?;
        Some(pages * rustix::param::page_size())
    };
    BASELINE_MEMORY.store(resident().unwrap_or_default(), Ordering::Relaxed);
    std::thread::spawn(move || {
        while let Some(bytes) = resident() {
            LIVE_MEMORY.store(bytes, Ordering::Relaxed);
            std::thread::sleep(MEASURE_INTERVAL);
        }
    });
}

struct Script {
    start: Start,
    lines: Receiver<String>,
    /// The parameters of the functions that were looked up; `None`: there is no such function.
    functions: HashMap<String, Option<Vec<String>>>,
    /// The replies that have come and are not used yet.
    replies: HashMap<u32, Result<Value, String>>,
    calls: u32,
    /// Calls whose results the script has not used.
    unused: BTreeSet<u32>,
    is_async: bool,
    printed: Printer,
}

impl Script {
    fn start(lines: Receiver<String>) -> Option<Self> {
        let start: Start = serde_json::from_str(&lines.recv().ok()?).ok()?;
        measure_memory();
        Some(Self {
            is_async: uses_await(&start.code),
            printed: Printer {
                line: String::new(),
                room: start.output,
            },
            start,
            lines,
            functions: HashMap::new(),
            replies: HashMap::new(),
            calls: 0,
            unused: BTreeSet::new(),
        })
    }

    fn run(mut self) {
        let outcome = self.run_steps();
        self.printed.flush();
        send(&match outcome {
            Ok(value) => self.finish(value),
            Err(error) => Event::Failed(explain(&error, &self.start)),
        });
    }

    fn run_steps(&mut self) -> Result<MontyObject, MontyException> {
        let code = self.start.code.clone();
        let script = MontyRun::new(code, "script", Vec::new(), CompileOptions::default())?;
        let limits = ResourceLimits::default()
            .max_duration(Duration::from_millis(self.start.time))
            .max_memory(usize::try_from(self.start.memory).unwrap_or(usize::MAX))
            .max_recursion_depth(MAX_RECURSION);
        let mut progress = script.start(
            Vec::new(),
            ResourceTracker::new(limits),
            PrintWriter::Callback(&mut self.printed),
        )?;
        loop {
            progress = match progress {
                RunProgress::Complete(value) => return Ok(value),
                RunProgress::NameLookup(lookup) => {
                    let found = self.find_function(&lookup.name);
                    lookup.resume(found, PrintWriter::Callback(&mut self.printed))?
                }
                RunProgress::FunctionCall(call) => self.call(call)?,
                RunProgress::ResolveFutures(futures) => self.resolve(futures)?,
                RunProgress::OsCall(call) => {
                    let refusal = "a script has no files, no environment and no clock: use tools";
                    let error = exception(ExcType::PermissionError, refusal);
                    call.resume(error, PrintWriter::Callback(&mut self.printed))?
                }
            }
        }
    }

    fn find_function(&mut self, name: &str) -> NameLookupResult {
        let function = || {
            NameLookupResult::Value(MontyObject::Function {
                name: name.to_owned(),
                docstring: None,
            })
        };
        match self.functions.get(name) {
            Some(Some(_)) => return function(),
            Some(None) => return NameLookupResult::Undefined,
            None if self.functions.len() == MAX_NAMES => return NameLookupResult::Undefined,
            None => {}
        }
        self.printed.flush();
        send(&Event::Lookup(name.to_owned()));
        while let Ok(line) = self.lines.recv() {
            match serde_json::from_str(&line) {
                Ok(Reply::Function(parameters)) => {
                    let is_known = parameters.is_some();
                    self.functions.insert(name.to_owned(), parameters);
                    if is_known {
                        return function();
                    }
                    break;
                }
                reply => self.keep(reply),
            }
        }
        NameLookupResult::Undefined
    }

    fn call(&mut self, call: FunctionCall) -> Result<RunProgress, MontyException> {
        // The interpreter does not look up a name that is only called.
        let name = &call.function_name;
        if matches!(self.find_function(name), NameLookupResult::Undefined) {
            let missing = ExtFunctionResult::NotFound(name.clone());
            return call.resume(missing, PrintWriter::Callback(&mut self.printed));
        }
        if self.calls == self.start.calls {
            let message = format!("a script makes at most {} calls", self.start.calls);
            return self.abort(call, &message);
        }
        let arguments = match self.arguments(&call) {
            Ok(arguments) => arguments,
            Err(message) => {
                let error = exception(ExcType::TypeError, &message);
                return call.resume(error, PrintWriter::Callback(&mut self.printed));
            }
        };
        self.calls += 1;
        let id = call.call_id;
        self.unused.insert(id);
        self.printed.flush();
        send(&Event::Call {
            id,
            name: call.function_name.clone(),
            arguments,
        });
        if self.is_async {
            return call.resume_pending(PrintWriter::Callback(&mut self.printed));
        }
        let result = self.wait_for(&[id]).into_iter().next();
        let result = result.map_or_else(|| closed().into(), |(_, result)| result);
        call.resume(result, PrintWriter::Callback(&mut self.printed))
    }

    fn abort(&mut self, call: FunctionCall, why: &str) -> Result<RunProgress, MontyException> {
        let error = exception(ExcType::RuntimeError, why);
        call.abort(error, PrintWriter::Callback(&mut self.printed))
    }

    fn resolve(&mut self, futures: ResolveFutures) -> Result<RunProgress, MontyException> {
        let results = self.wait_for(futures.pending_call_ids());
        if results.is_empty() {
            return futures.abort(closed(), PrintWriter::Callback(&mut self.printed));
        }
        futures.resume(results, PrintWriter::Callback(&mut self.printed))
    }

    /// The results that have come of these calls, at least one; none if the service has closed the pipe.
    fn wait_for(&mut self, ids: &[u32]) -> Vec<(u32, ExtFunctionResult)> {
        self.printed.flush();
        loop {
            while let Ok(line) = self.lines.try_recv() {
                self.keep(serde_json::from_str(&line));
            }
            let replies = &mut self.replies;
            let come = ids.iter().filter_map(|id| Some((*id, replies.remove(id)?)));
            let come: Vec<_> = come.map(|(id, reply)| (id, to_result(reply))).collect();
            if !come.is_empty() {
                self.unused
                    .retain(|id| !come.iter().any(|(one, _)| one == id));
                return come;
            }
            match self.lines.recv() {
                Ok(line) => self.keep(serde_json::from_str(&line)),
                Err(_) => return Vec::new(),
            }
        }
    }

    fn keep(&mut self, reply: serde_json::Result<Reply>) {
        match reply {
            Ok(Reply::Result(id, value)) => drop(self.replies.insert(id, Ok(value))),
            Ok(Reply::Error(id, message)) => drop(self.replies.insert(id, Err(message))),
            Ok(Reply::Function(_)) | Err(_) => {}
        }
    }

    /// The arguments by name. A positional argument has the name of the parameter at its position.
    fn arguments(&self, call: &FunctionCall) -> Result<JsonObject, String> {
        let name = &call.function_name;
        let parameters = self.functions.get(name).and_then(Option::as_deref);
        let parameters = parameters.unwrap_or_default();
        if call.args.len() > parameters.len() {
            let known = parameters.join(", ");
            return Err(format!("{name}() takes only these arguments: {known}"));
        }
        let mut arguments = JsonObject::new();
        let named = parameters.iter().cloned().zip(&call.args);
        let keywords = call
            .kwargs
            .iter()
            .map(|(key, value)| (key.to_string(), value));
        for (key, value) in named.chain(keywords) {
            let json =
                to_json(value, MAX_DEPTH).map_err(|why| format!("{name}({key}=…): {why}"))?;
            if arguments.insert(key.clone(), json).is_some() {
                return Err(format!("{name}() got the argument {key} twice"));
            }
        }
        self.check_size(&arguments, "the arguments have")?;
        Ok(arguments)
    }

    fn check_size(&self, value: &impl serde::Serialize, what: &str) -> Result<(), String> {
        let bytes = serde_json::to_vec(value).map_or(usize::MAX, |json| json.len());
        match bytes <= self.start.output {
            true => Ok(()),
            false => Err(format!(
                "{what} {bytes} bytes, at most {}",
                self.start.output
            )),
        }
    }

    fn finish(&mut self, value: MontyObject) -> Event {
        let value = to_json(&value, MAX_DEPTH).and_then(|value| {
            self.check_size(&value, "the result has")?;
            Ok(value)
        });
        match value {
            Ok(value) => Event::Done {
                value,
                unused: self.unused.iter().copied().collect(),
            },
            Err(why) => Event::Failed(format!(
                "The script ended, but its value is no result: {why}."
            )),
        }
    }
}

/// Whether the script waits for its calls by itself. A comment is no code.
fn uses_await(code: &str) -> bool {
    let mut lines = code.lines().filter_map(|line| line.split('#').next());
    lines.any(|line| line.contains("await ") || line.contains("asyncio."))
}

fn to_result(reply: Result<Value, String>) -> ExtFunctionResult {
    match reply {
        Ok(value) => from_json(value).into(),
        Err(message) => exception(ExcType::RuntimeError, &message).into(),
    }
}

fn exception(kind: ExcType, message: &str) -> MontyException {
    MontyException::new(kind, Some(message.to_owned()))
}

fn closed() -> MontyException {
    exception(ExcType::RuntimeError, "the service has ended the script")
}

/// Sends a line. If the service has gone, this process is ended anyway.
fn send(event: &Event) {
    let mut line = serde_json::to_vec(event).unwrap_or_default();
    line.push(b'\n');
    let mut out = io::stdout().lock();
    let _ = out.write_all(&line).and_then(|()| out.flush());
}

/// Sends what is printed, line by line.
struct Printer {
    line: String,
    /// The bytes that may still be printed.
    room: usize,
}

/// A line is divided here, so that one long line is not kept.
const MAX_PRINTED_LINE: usize = 4096;

impl Printer {
    fn push(&mut self, text: &str) -> Result<(), MontyException> {
        let Some(room) = self.room.checked_sub(text.len()) else {
            let message = "the script prints too much";
            return Err(exception(ExcType::RuntimeError, message));
        };
        self.room = room;
        self.line.push_str(text);
        if self.line.len() > MAX_PRINTED_LINE || self.line.ends_with('\n') {
            self.flush();
        }
        Ok(())
    }

    fn flush(&mut self) {
        if !self.line.is_empty() {
            send(&Event::Print(std::mem::take(&mut self.line)));
        }
    }
}

impl PrintWriterCallback for Printer {
    fn stdout_write(&mut self, output: Cow<'_, str>) -> Result<(), MontyException> {
        self.push(&output)
    }

    fn stdout_push(&mut self, end: char) -> Result<(), MontyException> {
        self.push(end.encode_utf8(&mut [0; 4]))
    }
}

/// What went wrong, in words for a model.
fn explain(error: &MontyException, start: &Start) -> String {
    let at = error.traceback().last().map_or_else(String::new, |frame| {
        let line = frame.preview_line.as_deref().unwrap_or_default().trim();
        let shown: String = line.chars().take(200).collect();
        format!(
            " in line {}, column {} (`{shown}`)",
            frame.start.line, frame.start.column
        )
    });
    let summary = error.summary();
    let message = error.message().unwrap_or_default();
    let why = if message.starts_with("time limit exceeded") {
        format!(
            "it computed longer than {} ms, without the time of its calls",
            start.time
        )
    } else if error.exc_type() == ExcType::MemoryError {
        format!("it used more than {} MiB of memory", start.memory >> 20)
    } else {
        let advice = if summary.contains("unsupported operand type(s) for |") {
            " Merge with {**a, **b}."
        } else if summary.contains("unsupported operand type(s) for %") {
            " Format with an f-string."
        } else if summary.contains("operand type") && summary.contains("'bool'") {
            " A bool is no number: write `1 if x else 0`."
        } else if summary.contains("return_exceptions") {
            " Make the calls one after the other, each in `try`."
        } else if summary.contains("is not defined") {
            " search_tools('a few words') finds functions."
        } else if message.contains("coroutine") || message.contains("future") {
            " A call needs `await` in a script that uses `await`."
        } else {
            ""
        };
        let shown: String = summary.chars().take(4000).collect();
        format!("{}.{advice}", shown.trim_end_matches('.'))
    };
    format!("The script failed{at}: {why}")
}

fn from_json(value: Value) -> MontyObject {
    match value {
        Value::Null => MontyObject::None,
        Value::Bool(flag) => MontyObject::Bool(flag),
        Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(whole), _) => MontyObject::Int(whole),
            (None, Some(whole)) => MontyObject::BigInt(whole.into()),
            (None, None) => MontyObject::Float(number.as_f64().unwrap_or(f64::NAN)),
        },
        Value::String(text) => MontyObject::String(text),
        Value::Array(items) => MontyObject::List(items.into_iter().map(from_json).collect()),
        Value::Object(fields) => {
            let pair = |(key, value)| (MontyObject::String(key), from_json(value));
            MontyObject::dict(fields.into_iter().map(pair).collect::<Vec<_>>())
        }
    }
}

/// The value as JSON. The error is the end of a sentence.
fn to_json(value: &MontyObject, depth: usize) -> Result<Value, String> {
    let depth = depth.checked_sub(1).ok_or("it is nested too deep")?;
    let list = |items: &[MontyObject]| -> Result<Value, String> {
        items.iter().map(|item| to_json(item, depth)).collect()
    };
    Ok(match value {
        MontyObject::None => Value::Null,
        MontyObject::Bool(flag) => (*flag).into(),
        MontyObject::Int(whole) => (*whole).into(),
        MontyObject::BigInt(whole) => match u64::try_from(whole) {
            Ok(whole) => whole.into(),
            Err(_) => whole.to_string().into(),
        },
        MontyObject::Float(number) => match Number::from_f64(*number) {
            Some(number) => number.into(),
            None => return Err(format!("{number} is no number in JSON")),
        },
        MontyObject::String(text) | MontyObject::Path(text) => text.as_str().into(),
        MontyObject::List(items)
        | MontyObject::Tuple(items)
        | MontyObject::Set(items)
        | MontyObject::FrozenSet(items)
        | MontyObject::NamedTuple { values: items, .. } => list(items)?,
        MontyObject::Dict(pairs) => {
            let field = |(key, value): &(MontyObject, MontyObject)| {
                Ok((key.to_string(), to_json(value, depth)?))
            };
            Value::Object(
                pairs
                    .into_iter()
                    .map(field)
                    .collect::<Result<_, String>>()?,
            )
        }
        MontyObject::Date(MontyDate { year, month, day }) => {
            format!("{year:04}-{month:02}-{day:02}").into()
        }
        MontyObject::DateTime(_)
        | MontyObject::Time(_)
        | MontyObject::TimeDelta(_)
        | MontyObject::TimeZone(_) => value.to_string().into(),
        MontyObject::Cycle(..) => return Err("it contains itself".into()),
        MontyObject::Bytes(_) => return Err("bytes are no JSON: decode them".into()),
        other => {
            let shown: String = other.to_string().chars().take(100).collect();
            return Err(format!("{shown} is no JSON"));
        }
    })
}
