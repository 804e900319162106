//! `run_script`: a script in Python that calls the other tools.
//!
//! - `config`: its bounds.
//! - `functions`: lists the functions in its description.
//! - `runner`: the tool.
//! - `session`: starts the process of a script, and makes its calls.
//! - `worker`: that process, with the interpreter.
//! - `protocol`: what the two say to each other.
//! - `signatures`: tools as functions of Python, for models.
//!
//! The interpreter runs in a process of its own, because none is safe from every script. The process is this
//! program again, in a sandbox without files and network. `docs/dev/decisions/0014-scripts.md` has the reasons.

mod config;
mod functions;
mod protocol;
mod runner;
mod session;
mod signatures;
#[cfg(feature = "script")]
mod worker;

use std::sync::Arc;
use std::time::Duration;

pub(super) use self::config::Config;
pub(crate) use self::functions::append_functions;
pub(crate) use self::protocol::WORKER_ARGUMENT;
use self::runner::RunScript;
pub use self::runner::ScriptProgram;
#[cfg(feature = "script")]
pub(crate) use self::worker::run as run_worker;
use crate::kinds::{ConfigFault, Tool};

const DESCRIPTION: &str = "Runs a script in Python that calls your other tools as functions, and returns only its result. Use it instead of \
     many single calls: to call a tool for each item of a list, or to filter, join and count results before you read them. \
     A call takes keyword arguments and returns the tool's data (dict, list or str); if the tool fails, it raises an exception. \
     To run calls at the same time write `await asyncio.gather(...)`, and then `await` before every call. \
     The value of the last line is the result; print() shows progress. There are json, re, math, datetime, itertools and collections, \
     but no other imports, files, network or clock. There is no yield, match, del, inheritance, `dict | dict` and `text % value`: write lists, if, \
     functions, {**a, **b} and f-strings. gather has no return_exceptions. search_tools('a few words') returns the signatures of further functions, \
     tool_schema(name) the parameters of a tool. call_tool(name, {...}) calls a tool by any name.";
const TIMEOUT: Duration = Duration::from_secs(600);

pub(super) fn tool(name: &str, config: Config) -> Result<Tool, ConfigFault> {
    if !cfg!(feature = "script") {
        let message = "run_script is not in this program: build it with the cargo feature `script`";
        return Err(ConfigFault::error(&["use"], message));
    }
    if !(1..=1000).contains(&config.calls) {
        return Err(ConfigFault::error(
            &["with", "calls"],
            "must be from 1 to 1000",
        ));
    }
    // What the tools do is not known here. So the tool is a `write`, the default of every tool.
    let tool = Tool::new(name, DESCRIPTION)
        .param("code", "string", "The script, in Python")
        .timeout(TIMEOUT);
    Ok(tool.with_runner(Arc::new(RunScript::new(config))))
}
