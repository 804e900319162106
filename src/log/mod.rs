//! The log: one line for each call, and the thread that writes the log. A line shows caller, tool and outcome, never
//! arguments or results. The thread also writes all other lines of the program.
//!
//! Calls do not wait for the log. The end of a call is put into a bounded queue as plain data. The thread formats and
//! writes everything that has collected at once. If nothing reads the output, calls continue and lines are lost.
//! Their number is reported later in a separate line and in the metrics. Programs that embed the crate get tracing
//! events by default.

#[cfg(test)]
pub(crate) mod captured;
mod ended;
mod line;
mod writer;

use tracing::Level;
use tracing::level_filters::LevelFilter;

use ended::Ended;
pub use line::Format;
pub use writer::LogWriter;

use crate::call::Invocation;
use crate::ledger::Row;

/// The target of the lines, for filters.
pub const TARGET: &str = "toolcrib::call";

/// The destination of the log line of each call. Clones share it.
#[derive(Clone)]
pub struct CallLog(To);

#[derive(Clone)]
enum To {
    Nobody,
    /// Emitted as tracing events.
    Events,
    Lines {
        writer: LogWriter,
        /// The least important level that is written.
        least: LevelFilter,
    },
}

impl CallLog {
    /// Writes no lines.
    pub fn off() -> Self {
        Self(To::Nobody)
    }

    /// Emits a tracing event for each call, under [`TARGET`].
    pub fn events() -> Self {
        Self(To::Events)
    }

    /// Writes lines of text. Calls below `least` are left out.
    pub fn lines(writer: LogWriter, least: LevelFilter) -> Self {
        Self(To::Lines { writer, least })
    }

    /// The level up to which the program's subscriber accepts these lines.
    pub fn wanted() -> LevelFilter {
        // One callsite for each level, because the level is part of a callsite.
        if tracing::enabled!(target: TARGET, Level::INFO) {
            LevelFilter::INFO
        } else if tracing::enabled!(target: TARGET, Level::WARN) {
            LevelFilter::WARN
        } else if tracing::enabled!(target: TARGET, Level::ERROR) {
            LevelFilter::ERROR
        } else {
            LevelFilter::OFF
        }
    }

    /// Logs a call that ended with this row.
    pub fn ended(&self, invocation: &Invocation, row: &Row) {
        match &self.0 {
            To::Nobody => {}
            To::Events => Ended::new(invocation, row).emit(),
            To::Lines { writer, least } => {
                if ended::level_of(row.kind) <= *least {
                    writer.call(Ended::new(invocation, row));
                }
            }
        }
    }

    /// Logs that the answer in this row was given again.
    pub fn replayed(&self, invocation: &Invocation, row: &Row) {
        let ended = || Ended { replayed: true, ..Ended::new(invocation, row) };
        match &self.0 {
            To::Events => ended().emit(),
            To::Lines { writer, least } if Level::INFO <= *least => writer.call(ended()),
            To::Nobody | To::Lines { .. } => {}
        }
    }

    /// The number of lines that were lost because nothing read the output.
    pub fn lost(&self) -> u64 {
        match &self.0 {
            To::Lines { writer, .. } => writer.lost(),
            To::Nobody | To::Events => 0,
        }
    }

    /// Returns when everything is written, or after a second if nothing reads the output.
    pub async fn flush(&self) {
        if let To::Lines { writer, .. } = &self.0 {
            writer.flush().await;
        }
    }
}

#[cfg(test)]
mod tests;
