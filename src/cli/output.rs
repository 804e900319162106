//! What commands print: tables and sentences for people, JSON for programs.

use std::io::{self, IsTerminal as _, Write as _};

use rustix::termios::tcgetwinsize;
use serde_json::Value;

use super::table::Table;
use crate::environment::Environment;

/// The width of a table if there is no terminal, in columns.
const DEFAULT_WIDTH: usize = 80;

/// The formats of most commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum OutputFormat {
    /// For people.
    Table,
    /// For programs.
    Json,
}

/// The format of a command's output.
#[derive(clap::Args)]
pub(super) struct OutputArgs {
    /// Format of the output. By default, a table on a terminal and JSON elsewhere.
    #[arg(long, value_enum)]
    format: Option<OutputFormat>,
}

impl OutputArgs {
    /// Whether a person reads the output.
    pub(super) fn is_for_people(&self) -> bool {
        match self.format {
            Some(format) => format == OutputFormat::Table,
            None => is_terminal(),
        }
    }
}

/// Whether standard output is a terminal.
pub(super) fn is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Prints a table as wide as the terminal. The variable `COLUMNS` takes precedence, as in other
/// programs. `when_empty` stands for a table without rows.
pub(super) fn print_table(table: &Table, when_empty: &str, environment: &Environment) {
    let variable = environment
        .get_text("COLUMNS")
        .and_then(|columns| columns.parse().ok());
    let terminal = || {
        tcgetwinsize(io::stdout())
            .ok()
            .map(|size| usize::from(size.ws_col))
    };
    let width = variable
        .or_else(terminal)
        .filter(|width| *width > 0)
        .unwrap_or(DEFAULT_WIDTH);
    let text = table.format(width);
    print_line(if text.is_empty() { when_empty } else { &text });
}

/// Prints to standard output. If the reader has closed it, that is not our failure.
pub(super) fn print_line(text: &str) {
    let _ = writeln!(io::stdout(), "{text}");
}

/// Prints to standard error, so that standard output has only the result.
pub(super) fn print_note(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Prints JSON with indentation.
pub(super) fn print_json(value: &Value) {
    print_line(&serde_json::to_string_pretty(value).unwrap_or_default());
}
