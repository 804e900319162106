//! Runs programs so that nothing of them stays behind.
//!
//! - [`ProcessTree`] is a running program. When the program ends, everything that it started ends
//!   too, also a process that has left the program's group and session.
//! - [`OrphanReaper`] finds, kills and reaps such processes; [`ProcessMarker`] identifies them.
//! - [`confine_process`] restricts every program that the process starts. Without it, each
//!   [`ProcessTree`] restricts its own program.
//! - [`Sandbox`](sandbox::Sandbox) restricts the programs of one entry further.
//! - [`which`] finds the file of a program.
//!
//! Linux has all of it. Other Unix systems have no way to find a process that left its group.

mod confine;
mod orphan_reaper;
mod process_tree;
mod program;
pub mod sandbox;

pub use self::confine::confine_process;
#[cfg(target_os = "linux")]
pub use self::confine::take_inherited_files;
pub use self::orphan_reaper::{OrphanReaper, ProcessMarker};
pub use self::process_tree::ProcessTree;
pub use self::program::{is_executable_file, which};
