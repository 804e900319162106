//! Restricts what a program may do, beyond [`confine_process`](crate::confine_process).
//!
//! A [`Sandbox`] is prepared once for an entry of the manifest. Each start of a program then takes its
//! [`Launch`], which has the command to start and what the child process applies to itself before it
//! executes the program. Three means exist, and a launch takes all that the machine has:
//!
//! - **namespaces**, made by bubblewrap (`/usr/bin/bwrap`);
//! - **Landlock**, for files, TCP ports, signals and abstract sockets;
//! - **seccomp**, for system calls.
//!
//! Landlock and seccomp are applied between fork and exec. Another start of our own program as a launcher
//! would cost 4 ms for each program.

mod bubblewrap;
mod carve;
mod child;
mod landlock;
mod limits;
mod prepared;
mod rules;
mod seccomp;
mod support;

pub(crate) use self::child::ChildSettings;
pub use self::prepared::{Launch, Sandbox};
pub use self::rules::{Files, Grant, Level, Limits, Network, NotEnforced, Rules};
pub use self::support::Support;
