//! A question of a running tool, as callers see it.

use serde::Serialize;
use serde_json::Value;

use crate::call::Question;

/// A question of a running tool.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct QuestionView {
    /// Name of the question, unique within the call.
    pub name: String,
    /// Name of the tool that asks: the called tool, or one that it calls.
    pub tool: String,
    /// The text for a person.
    pub message: String,
    /// JSON Schema of the answer's `content`: an object with simple properties.
    #[schema(value_type = Object)]
    pub schema: Value,
}

impl From<&Question> for QuestionView {
    fn from(question: &Question) -> Self {
        Self {
            name: question.name.to_string(),
            tool: question.tool.to_string(),
            message: question.message.clone(),
            schema: question.schema.clone(),
        }
    }
}
