//! Functions of modules in another language, called in long-lived worker processes.
//!
//! - `module`: the source of these tools, with all workers of a module
//! - `runtime`: what a language adds: how its workers are started
//! - `worker`, `line_reader`, `protocol`, `call_message`: one process, its lines, its messages
//! - `sync_pool`, `async_supervisor`: keep workers and give them calls;
//!   `pool_state` has the workers of a pool and the queue of calls that wait for one
//! - `config`, `language`: the settings of a module, and its language
//! - `imported_files`: whether a module has to be loaded again
//! - `setup_program`, `package_folder`: run the programs that prepare a module, and build its packages once
//! - `stderr_log`: writes the output of a module to the log, never into the protocol

mod async_supervisor;
mod call_message;
mod config;
mod imported_files;
mod language;
mod line_reader;
mod module;
mod package_folder;
mod pool_state;
mod protocol;
mod runtime;
mod setup_program;
mod stderr_log;
mod sync_pool;
#[cfg(test)]
pub(in crate::sources) mod testing;
mod worker;

pub use self::config::{ModulePath, ModuleSettings, WorkerRange};
pub use self::language::Language;
pub use self::module::Module;
pub(in crate::sources) use self::package_folder::PackageFolder;
pub(in crate::sources) use self::runtime::{Setup, WorkerProgram, WorkerRuntime};
pub(in crate::sources) use self::setup_program::run_to_end;
