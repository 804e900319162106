//! Checks answers to the questions of tools.

use std::sync::Arc;

use serde_json::Value;

use super::compiled::Schema;
use super::owner::SchemaOwner;
use crate::call::{Question, QuestionAnswer, Violation};

/// Checks the content of an answer against the schema of its question.
///
/// # Errors
/// The violations.
pub fn check_answer(question: &Question, answer: &QuestionAnswer) -> Result<(), Vec<Violation>> {
    let QuestionAnswer::Accept { content } = answer else {
        return Ok(());
    };
    let violation = |message: String| {
        vec![Violation {
            keyword: "schema".into(),
            message,
            ..Violation::default()
        }]
    };
    let schema = Schema::compile(Arc::new(question.schema.clone()), SchemaOwner::Own);
    let schema =
        schema.map_err(|fault| violation(format!("the tool's form is faulty: {fault}")))?;
    match schema.violations(&Value::Object(content.clone())) {
        violations if violations.is_empty() => Ok(()),
        violations => Err(violations),
    }
}
