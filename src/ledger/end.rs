//! Reads the end of a call back from its row.

use std::sync::Arc;

use serde_json::Value;

use super::{Row, State};
use crate::call::{
    Answer, Digest, ERROR_RESULT_SUMMARY, Failure, INTERRUPTED_SUMMARY, Meta, ToolResult,
};

/// How a call ended.
#[derive(Debug)]
pub enum End {
    /// The call still runs, or it was interrupted and its outcome is unknown.
    Open,
    /// The tool returned a result.
    Answered {
        /// The tool's result.
        result: Arc<ToolResult>,
        /// The `meta` of the answer.
        meta: Meta,
    },
    /// The tool returned a result, of which the ledger keeps only this digest.
    DigestOnly(Digest),
    /// The call failed.
    Failed(Failure),
}

/// The text in a row is not what the service writes.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("the row of this call cannot be read")]
pub struct UnreadableRow;

impl Row {
    /// How the call ended. `origin_result` is the result of the call that answered this one.
    ///
    /// # Errors
    /// When the stored text cannot be parsed. The cause is logged here.
    pub fn decode_end(&self, origin_result: Option<Arc<str>>) -> Result<End, UnreadableRow> {
        let unreadable = |error: serde_json::Error| {
            // The message of the error may quote the text, so only its class and position are
            // logged.
            let (fault, column) = (error.classify(), error.column());
            tracing::error!(id = %self.id, ?fault, column, "a stored result cannot be read");
            UnreadableRow
        };
        let Some(text) = self.result.clone().or(origin_result) else {
            return Ok(End::Open);
        };
        if self.kind.is_some() {
            return serde_json::from_str(&text)
                .map(End::Failed)
                .map_err(unreadable);
        }
        if let Some(digest) = Digest::from_column(&text) {
            return Ok(End::DigestOnly(digest));
        }
        let result = serde_json::from_str(&text).map_err(unreadable)?;
        let meta = self
            .meta
            .as_deref()
            .map(serde_json::from_str)
            .transpose()
            .map_err(unreadable)?;
        Ok(End::Answered {
            result,
            meta: meta.unwrap_or_default(),
        })
    }

    /// The answer of this call with that result.
    pub fn to_answer(&self, result: Arc<ToolResult>, meta: Meta) -> Answer {
        Answer {
            invocation: self.id,
            tool_use_id: self.tool_use_id.clone(),
            result,
            meta,
            replayed: false,
            waiting: false,
        }
    }

    /// One sentence of the service on why the call failed or was refused; `None` if it did neither.
    /// A call that was interrupted could not write one.
    pub fn summary(&self) -> Option<&str> {
        let interrupted =
            (self.state == State::Unknown && self.kind.is_none()).then_some(INTERRUPTED_SUMMARY);
        self.detail.as_deref().or(interrupted)
    }

    /// The same for the log, which never has a text of the tool.
    pub fn logged_detail(&self) -> Option<Arc<str>> {
        match self.is_error_result() {
            true => Some(ERROR_RESULT_SUMMARY.into()),
            false => self.detail.clone(),
        }
    }

    /// The text of an error: the detail of a failure, or the first text of an error result. `None`
    /// for a call that succeeded, that still runs, or of which only a digest is kept.
    pub fn error_text(&self) -> Option<String> {
        if matches!(self.state, State::Succeeded | State::Reserved) {
            return None;
        }
        let result: Value = serde_json::from_str(self.result.as_deref()?).ok()?;
        let text = result
            .get("detail")
            .or_else(|| result.pointer("/content/0/text"))?;
        text.as_str().map(str::to_owned)
    }

    /// Whether the tool returned an error result (`is_error`).
    pub fn is_error_result(&self) -> bool {
        self.kind.is_none() && self.state == State::Failed
    }
}

#[cfg(test)]
mod tests {
    use super::super::contract::{ended_row, now, row};
    use super::*;
    use crate::call::ErrorKind;

    #[test]
    fn error_result_has_no_kind() {
        let started = row("t", "a", now());
        let end = |state, kind| Row {
            kind,
            ..(*ended_row(&started, state)).clone()
        };
        assert!(end(State::Failed, None).is_error_result());
        assert!(!end(State::Failed, Some(ErrorKind::UpstreamFailed)).is_error_result());
        assert!(!end(State::Succeeded, None).is_error_result());
    }
}
