//! What the fuzz targets need of this folder.

use uuid::Uuid;

use super::announce;
use crate::ledger::AnsweredCall;

/// The calls in a notification of another replica.
pub fn parse_answered(text: &str) -> Option<Vec<AnsweredCall>> {
    announce::parse_answered(text, Uuid::nil())
}

/// The text of such a notification.
pub fn format_answered(calls: &[AnsweredCall]) -> String {
    announce::format_text(Uuid::max(), calls)
}
