//! `toolcrib completions`: a script with which a shell completes commands and flags.

use clap::CommandFactory as _;
use clap_complete::Shell;

use super::arguments::Cli;
use super::output::print_line;

/// Prints the script for this shell.
pub(super) fn print_script(shell: Shell) {
    // The generator panics when its output cannot be written, as when the reader has closed a pipe.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "toolcrib", &mut script);
    print_line(String::from_utf8_lossy(&script).trim_end());
}
