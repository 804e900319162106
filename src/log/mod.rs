//! The log: one line for each call, and the thread that writes the log. A line shows caller, tool
//! and outcome, never arguments or results. The thread also writes all other lines of the program.
//!
//! Calls do not wait for the log. The end of a call is put into a bounded queue as plain data. The
//! thread formats and writes everything that has collected at once. If nothing reads the output,
//! calls continue and lines are lost. Their number is reported later in a separate line and in the
//! metrics. Programs that embed the crate get tracing events by default.

#[cfg(test)]
pub(crate) mod captured_log;
mod ended_call;
mod forward;
mod line;
mod writer;

use std::sync::Arc;

use tracing::Level;
use tracing::level_filters::LevelFilter;

pub(crate) use ended_call::EndedCall;
pub use ended_call::TARGET;
pub use forward::{FieldValue, ForwardLayer, LineSink, LoggedLine};
pub use line::Format;
pub use writer::LogWriter;

use crate::call::Invocation;
use crate::ledger::Row;

/// The destination of the log line of each call. Clones share it.
#[derive(Clone)]
pub struct CallLog(Destination);

#[derive(Clone)]
enum Destination {
    Discard,
    /// Emitted as tracing events.
    Events,
    Lines {
        writer: LogWriter,
        /// The least important level that is written.
        min_level: LevelFilter,
    },
}

impl CallLog {
    /// Writes no lines.
    pub fn off() -> Self {
        Self(Destination::Discard)
    }

    /// Emits a tracing event for each call, under [`TARGET`].
    pub fn events() -> Self {
        Self(Destination::Events)
    }

    /// Writes lines of text. Calls below `min_level` are left out.
    pub fn lines(writer: LogWriter, min_level: LevelFilter) -> Self {
        Self(Destination::Lines { writer, min_level })
    }

    /// The level up to which the program's subscriber accepts these lines.
    pub fn enabled_level() -> LevelFilter {
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
    pub fn log_ended(&self, invocation: &Invocation, row: &Row) {
        match &self.0 {
            Destination::Discard => {}
            Destination::Events => EndedCall::new(invocation, row).emit(),
            Destination::Lines { writer, min_level } => {
                if ended_call::level_for(row.kind) <= *min_level {
                    writer.log_call(EndedCall::new(invocation, row));
                }
            }
        }
    }

    /// Logs that the answer in this row was given again.
    pub fn log_replayed(&self, invocation: &Invocation, row: &Row) {
        let ended = || EndedCall {
            replayed: true,
            ..EndedCall::new(invocation, row)
        };
        match &self.0 {
            Destination::Events => ended().emit(),
            Destination::Lines { writer, min_level } if Level::INFO <= *min_level => {
                writer.log_call(ended());
            }
            Destination::Discard | Destination::Lines { .. } => {}
        }
    }

    /// Passes all lines of the log on to `sink`, too. A log of tracing events is left to the
    /// program that owns the subscriber.
    pub fn forward_to(&self, sink: Arc<dyn LineSink>) {
        if let Destination::Lines { writer, .. } = &self.0 {
            writer.forward_to(sink);
        }
    }

    /// The number of lines that were lost because nothing read the output.
    pub fn lost_lines(&self) -> u64 {
        match &self.0 {
            Destination::Lines { writer, .. } => writer.lost_lines(),
            Destination::Discard | Destination::Events => 0,
        }
    }

    /// Returns when everything is written, or after a second if nothing reads the output.
    pub async fn flush(&self) {
        if let Destination::Lines { writer, .. } = &self.0 {
            writer.flush().await;
        }
    }
}

#[cfg(test)]
mod tests;
