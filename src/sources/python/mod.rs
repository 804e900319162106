//! The `python` kind: functions of Python modules, called in long-lived worker processes.
//!
//! - `module`: the source of these tools
//! - `interpreter`, `venv`: find or build the interpreter; `setup_program` runs the programs for it
//! - `worker`, `line_reader`, `protocol`, `call_message`: one process, its lines, its messages
//! - `worker_source` and the folder `worker/`: the program of that process, in Python
//! - `sync_pool`, `async_supervisor`, `worker_pools`: keep workers and give them calls;
//!   `waiting_calls` is the queue for a worker, and `exit_watch` notices the end of workers
//! - `config`, `runner`: the settings of a module, its functions as runners
//! - `stderr_log`: writes the output of a module to the log, never into the protocol

mod async_supervisor;
mod call_message;
mod config;
mod exit_watch;
mod interpreter;
mod line_reader;
mod module;
mod pool_state;
mod pooled_worker;
mod protocol;
mod questions;
mod runner;
mod setup_program;
mod stderr_log;
mod sync_pool;
mod venv;
mod waiting_calls;
mod worker;
mod worker_pools;
mod worker_source;

pub use self::config::{Interpreter, ModulePath, ModuleSettings, WorkerRange};
pub use self::module::Module;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod waiting_tests;
