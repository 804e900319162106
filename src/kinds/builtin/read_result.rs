//! `read_result`: further pages of a long result. It runs no tool.

use std::sync::Arc;

use async_trait::async_trait;

use serde_json::{Value, json};

use super::arguments::text_argument;
use crate::call::{
    Effect, Idempotency, InvocationId, JsonObject, OwnResult, OwnResultError, OwnResults, Paging,
    ToolContext, ToolError, ToolResult, describe_shape,
};
use crate::expression::compile_item_condition;
use crate::kinds::{Placeholder, Runner, RunnerTraits, Tool, ToolOutcome, ValueFault, Values};
use crate::runtime::blocking;

const DESCRIPTION: &str = "Reads on in the result of an earlier tool call, page by page and without running that tool again. Use it \
     when an answer says that only a part is shown: it names the invocation_id and the offset to go on from. Ask for less with \
     path, where and select.";
/// The longest list that `where` and `select` go through.
const MAX_ITEMS: usize = 100_000;
/// The most fields that are selected, in one item and in all together.
const MAX_FIELDS: usize = 30;
const MAX_VALUES: usize = 500_000;

/// The tool, registered as `name`.
pub(super) fn tool(name: &str) -> Tool {
    let text = |description: &str| json!({"type": "string", "description": description});
    let schema = json!({
        "type": "object",
        "properties": {
            "invocation_id": text("The invocation_id from the answer whose further pages you want"),
            "path": text("The part to read, as a JSON Pointer, e.g. /orders or /orders/0/lines"),
            "where": text("Only items of the list for which this holds, by their fields, e.g. total > 10 and status == 'open'"),
            "select": {
                "type": "array", "items": {"type": "string"}, "maxItems": MAX_FIELDS,
                "description": "Only these fields of each item, e.g. [\"id\", \"name\"]",
            },
        },
        "required": ["invocation_id"],
        "additionalProperties": false,
    });
    Tool::new(name, DESCRIPTION)
        .input_schema(schema)
        .effect(Effect::Read)
        // A repeated reading does no harm. An answer stored under an idempotency key would copy the
        // result once more.
        .idempotency(Idempotency::Off)
        .paging(Paging::PagedReader)
        .with_runner(Arc::new(ReadResult))
}

struct ReadResult;

#[async_trait]
impl Runner for ReadResult {
    async fn call(&self, arguments: Arc<JsonObject>, context: ToolContext) -> ToolOutcome {
        let Some(id) = parse_invocation_id(&arguments) else {
            return Err(ToolError::ErrorResult(explain_not_read(
                OwnResultError::Unknown,
            )));
        };
        let Some(results) = context.service::<Arc<dyn OwnResults>>().cloned() else {
            return Err(ToolError::unavailable(
                "this service has no results on record",
            ));
        };
        match results.read_result(&context, id).await {
            Ok(OwnResult { origin, result }) => {
                let part = Part::read(&arguments).map_err(ToolError::ErrorResult)?;
                if let Some(part) = part {
                    let value = result_value(result).map_err(ToolError::ErrorResult)?;
                    // Thousands of items take milliseconds, which other calls must not wait for.
                    let chosen = blocking::run_blocking(move || part.choose(value)).await;
                    let chosen =
                        chosen.ok_or_else(|| ToolError::unavailable("the service is stopping"))?;
                    return chosen.map(ToolResult::json).map_err(ToolError::ErrorResult);
                }
                context.set_origin(origin);
                // The result may have been the final answer of the earlier call. Here it is not,
                // and its hint no longer applies.
                Ok(ToolResult {
                    result_as_answer: None,
                    hint: None,
                    ..result
                })
            }
            Err(OwnResultError::Unavailable) => Err(ToolError::unavailable(
                "the results on record cannot be read",
            )),
            Err(reason) => Err(ToolError::ErrorResult(explain_not_read(reason))),
        }
    }

    fn value_faults(&self, values: Values<'_>) -> Vec<ValueFault> {
        if parse_invocation_id(values.arguments).is_some() {
            return Vec::new();
        }
        let message = "`invocation_id` must be the id that an answer names.";
        vec![Placeholder::Argument("invocation_id".into()).fault("format", message)]
    }

    fn traits(&self) -> RunnerTraits {
        RunnerTraits {
            has_one_target: false,
            is_cacheable: false,
            reads_results: true,
            ..RunnerTraits::default()
        }
    }
}

/// The part of a result that a call asks for.
struct Part {
    path: String,
    condition: Option<String>,
    fields: Vec<String>,
}

impl Part {
    /// `None`: the whole result.
    fn read(arguments: &JsonObject) -> Result<Option<Self>, String> {
        let condition = text_argument(arguments, "where").trim();
        let fields = arguments.get("select").and_then(Value::as_array);
        let fields = fields.into_iter().flatten().filter_map(Value::as_str);
        let part = Self {
            path: text_argument(arguments, "path").trim().to_owned(),
            condition: (!condition.is_empty()).then(|| condition.to_owned()),
            fields: fields.map(str::to_owned).collect(),
        };
        if !part.path.is_empty() && !part.path.starts_with('/') {
            return Err("`path` is a JSON Pointer: it begins with `/`, e.g. /orders/0".into());
        }
        let is_whole = part.path.is_empty() && part.condition.is_none() && part.fields.is_empty();
        Ok((!is_whole).then_some(part))
    }

    fn choose(&self, value: Value) -> Result<Value, String> {
        let found = value.pointer(&self.path).ok_or_else(|| {
            format!(
                "there is nothing at `{}`: the result is {}",
                self.path,
                describe_shape(&value)
            )
        })?;
        if self.condition.is_none() && self.fields.is_empty() {
            return Ok(found.clone());
        }
        let items = only_list(found).ok_or_else(|| {
            format!(
                "`where` and `select` need a list, and this is {}: name the list with `path`",
                describe_shape(found)
            )
        })?;
        if items.len() > MAX_ITEMS {
            return Err(format!(
                "the list has {} items, and at most {MAX_ITEMS} can be searched",
                items.len()
            ));
        }
        let condition = self
            .condition
            .as_deref()
            .map(compile_item_condition)
            .transpose();
        let condition = condition.map_err(|message| format!("`where`: {message}"))?;
        let mut chosen: Vec<&Value> = items.iter().collect();
        if let Some(holds) = condition {
            let (mut applies, mut why) = (items.is_empty(), String::new());
            chosen.retain(|item| match holds(item) {
                Ok(matches) => {
                    applies = true;
                    matches
                }
                Err(reason) => {
                    why = reason;
                    false
                }
            });
            if !applies {
                let shape = describe_shape(&items[0]);
                return Err(format!(
                    "`where` fits no item ({why}); the first is {shape}"
                ));
            }
        }
        let is_absent =
            |field: &&String| chosen.iter().all(|item| self.field(item, field).is_none());
        if let Some(field) = self
            .fields
            .iter()
            .find(is_absent)
            .filter(|_| !chosen.is_empty())
        {
            let shape = describe_shape(found);
            return Err(format!(
                "`select`: no item has `{field}`; the result is {shape}"
            ));
        }
        if chosen.len() * self.fields.len() > MAX_VALUES {
            return Err(format!(
                "{} items with {} fields are too many: narrow them with `where`",
                chosen.len(),
                self.fields.len()
            ));
        }
        Ok(chosen.into_iter().map(|item| self.select(item)).collect())
    }

    fn field<'a>(&self, item: &'a Value, field: &str) -> Option<&'a Value> {
        match field.starts_with('/') {
            true => item.pointer(field),
            false => item.get(field),
        }
    }

    /// The item with the selected fields only. A field may be a JSON Pointer.
    fn select(&self, item: &Value) -> Value {
        if self.fields.is_empty() || !item.is_object() {
            return item.clone();
        }
        let value = |field: &String| self.field(item, field).cloned().unwrap_or_default();
        let fields = self.fields.iter();
        fields.map(|field| (field.clone(), value(field))).collect()
    }
}

/// The list, or the only list in an object.
fn only_list(value: &Value) -> Option<&[Value]> {
    match value {
        Value::Array(items) => Some(items),
        Value::Object(fields) => {
            let mut lists = fields.values().filter_map(Value::as_array);
            let first = lists.next();
            first.filter(|_| lists.next().is_none()).map(Vec::as_slice)
        }
        _ => None,
    }
}

/// The data of a result. Its text may be JSON.
fn result_value(result: ToolResult) -> Result<Value, String> {
    match result.structured_content {
        Some(value) => Ok(value),
        None => serde_json::from_str(&result.as_text()).map_err(|_| {
            "the result is a text: read it with `offset` and `limit`, without path, where and select".to_owned()
        }),
    }
}

fn parse_invocation_id(arguments: &JsonObject) -> Option<InvocationId> {
    let id = text_argument(arguments, "invocation_id");
    id.trim().parse().ok()
}

/// Why there is no result, and what to do.
fn explain_not_read(reason: OwnResultError) -> String {
    match reason {
        OwnResultError::Unknown => {
            "no recorded call of yours has this invocation_id: make the call whose result you need"
        }
        OwnResultError::Denied => "the tool of that call is not allowed for this request",
        OwnResultError::InProgress => "that call has not ended: ask again later",
        OwnResultError::Failed => "that call failed, so there is no result: make it again if you need one",
        OwnResultError::NotRetained => {
            "the result of that call is not kept: make the call again if you need it, and ask for less at once"
        }
        OwnResultError::Unavailable => "the results on record cannot be read",
    }
    .into()
}
