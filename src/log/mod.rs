//! The log: one line for each call (who called what, and how it ended; never arguments, never results), and the thread
//! that writes it together with whatever else the program says.
//!
//! Off the way of the call: its end is put into a bounded queue as plain data, and the thread formats and writes what
//! has collected in one go. When nobody reads what is written, calls go on and lines are lost; how many is said later,
//! in a line of its own and in the metrics. Programs that embed the crate get tracing events instead, unless they say
//! otherwise.

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

/// What filters know the lines by.
pub const TARGET: &str = "toolcrib::call";

/// Where the line of each call goes. Clones share it.
#[derive(Clone)]
pub struct CallLog(To);

#[derive(Clone)]
enum To {
    Nobody,
    /// Whoever subscribes to tracing.
    Events,
    Lines {
        writer: LogWriter,
        /// What is less important is left out.
        least: LevelFilter,
    },
}

impl CallLog {
    /// No lines.
    pub fn off() -> Self {
        Self(To::Nobody)
    }

    /// A tracing event for each call, under [`TARGET`].
    pub fn events() -> Self {
        Self(To::Events)
    }

    /// Lines of text; calls below `least` are left out.
    pub fn lines(writer: LogWriter, least: LevelFilter) -> Self {
        Self(To::Lines { writer, least })
    }

    /// How much of it the program's subscriber lets through.
    pub fn wanted() -> LevelFilter {
        // A callsite each, since a level is part of one.
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

    /// A call has ended with this row.
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

    /// What this row says was said again.
    pub fn replayed(&self, invocation: &Invocation, row: &Row) {
        let ended = || Ended { replayed: true, ..Ended::new(invocation, row) };
        match &self.0 {
            To::Events => ended().emit(),
            To::Lines { writer, least } if Level::INFO <= *least => writer.call(ended()),
            To::Nobody | To::Lines { .. } => {}
        }
    }

    /// Lines that were lost because nobody read them.
    pub fn lost(&self) -> u64 {
        match &self.0 {
            To::Lines { writer, .. } => writer.lost(),
            To::Nobody | To::Events => 0,
        }
    }

    /// Returns when everything is written, or after a second if nobody reads it.
    pub async fn flush(&self) {
        if let To::Lines { writer, .. } = &self.0 {
            writer.flush().await;
        }
    }
}

#[cfg(test)]
mod tests;
