//! Prints the answer of a server, or its refusal.

use reqwest::StatusCode;
use serde_json::Value;

use super::Failure;
use super::client::describe_problem;
use super::output::print_json;

/// The body of a successful answer. A refusal is a sentence for people, and the whole problem for
/// programs.
pub(super) fn successful(
    (status, answer): (StatusCode, Value),
    is_for_people: bool,
) -> Result<Value, Failure> {
    if status.is_success() {
        return Ok(answer);
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

/// Prints a successful answer: with `print` for people, and as JSON for programs.
pub(super) fn print_answer(
    answer: (StatusCode, Value),
    is_for_people: bool,
    print: impl FnOnce(&Value),
) -> Result<(), Failure> {
    let answer = successful(answer, is_for_people)?;
    match is_for_people {
        true => print(&answer),
        false => print_json(&answer),
    }
    Ok(())
}
