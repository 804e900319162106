//! The `python` kind: how the workers of Python modules are started.
//!
//! - `runtime`: the program of a worker and its arguments
//! - `interpreter`, `venv`: find or build the interpreter
//! - the folder `worker/`: the program of a worker, in Python
//!
//! `sources/workers/` has everything else.

mod interpreter;
mod runtime;
mod venv;

pub(super) use self::runtime::PythonRuntime;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod waiting_tests;
