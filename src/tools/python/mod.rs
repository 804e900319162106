//! The `python` kind: functions of Python modules, called in long-lived worker processes.

mod config;

pub use config::{Interpreter, ModulePath, ModuleSettings};
