//! Prints the answer of a server, or its refusal.

use reqwest::StatusCode;
use serde_json::Value;

use super::Failure;
use super::client::describe_problem;
use super::output::print_json;

/// Prints a successful answer with `print`. A refusal is a sentence for people, and the whole
/// problem for programs.
pub(super) fn print_answer(
    (status, answer): (StatusCode, Value),
    is_for_people: bool,
    print: impl FnOnce(&Value),
) -> Result<(), Failure> {
    if status.is_success() {
        print(&answer);
        return Ok(());
    }
    if is_for_people {
        return Err(Failure::Failed(format!(
            "toolcrib: {}",
            describe_problem(status, &answer)
        )));
    }
    print_json(&answer);
    Err(Failure::NegativeResult)
}
