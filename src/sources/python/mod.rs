//! The `python` kind: functions of Python modules, called in long-lived worker processes.
//!
//! - `module`: the source of these tools, with all workers of a module
//! - `interpreter`, `venv`: find or build the interpreter; `setup_program` runs the programs for it
//! - `worker`, `line_reader`, `protocol`, `call_message`: one process, its lines, its messages
//! - the folder `worker/`: the program of that process, in Python
//! - `sync_pool`, `async_supervisor`: keep workers and give them calls;
//!   `pool_state` has the workers of a pool and the queue of calls that wait for one
//! - `config`: the settings of a module
//! - `stderr_log`: writes the output of a module to the log, never into the protocol

mod async_supervisor;
mod call_message;
mod config;
mod interpreter;
mod line_reader;
mod module;
mod pool_state;
mod protocol;
mod setup_program;
mod stderr_log;
mod sync_pool;
mod venv;
mod worker;

pub use self::config::{Interpreter, ModulePath, ModuleSettings, WorkerRange};
pub use self::module::Module;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod waiting_tests;
