//! Defines which part of a long result an answer shows, and how an answer describes the rest.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::call::error::{Coercion, Violation};
use crate::call::json::{JsonObject, type_name};

/// The requested part of a long result. It affects only the answer: the tool runs and its result is
/// stored as usual.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Page {
    /// `full` for everything, page by page; anything else for the first items, or beginning and
    /// end.
    #[schema(value_type = Option<String>, required = false)]
    pub detail: Detail,
    /// Items of a list, or characters of a text, to skip before the first one shown. Only with
    /// `detail: full`.
    #[schema(value_type = Option<u64>, required = false, maximum = 18446744073709551615_u64)]
    pub offset: usize,
    /// Items of a list, or characters of a text, to show: 1 to 100000.
    #[schema(required = false, minimum = 1, maximum = 100_000)]
    pub limit: Option<usize>,
}

impl Page {
    /// All of a result, however long.
    pub const WHOLE: Self = Self {
        detail: Detail::Full,
        offset: 0,
        limit: Some(usize::MAX),
    };
}

/// Which side requests further pages of a tool's long results.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, ToSchema, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
#[derive(strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Paging {
    /// The client, with `page`.
    #[default]
    Caller,
    /// The model, too. The schema that a model sees has `detail_level`, `offset` and `limit`.
    Model,
    /// The model, and every answer is one of several pages: for tools that read existing data.
    #[serde(rename(serialize = "model"), skip_deserializing)]
    #[schema(ignore)]
    PagedReader,
}

impl Paging {
    /// The name used in manifests and answers.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// The arguments by which a model requested a part of a result.
#[derive(Debug, Default, PartialEq)]
pub struct PageArguments {
    /// The arguments as received, for the record.
    pub raw: JsonObject,
    /// The requested part.
    pub page: Page,
    /// Strings that were converted to numbers.
    pub coercions: Vec<Coercion>,
    /// Violations in these arguments.
    pub violations: Vec<Violation>,
}

/// How much of a long result is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Detail {
    /// A preview: the first items of a list, or beginning and end of a text.
    #[default]
    Exploring,
    /// Everything, page by page.
    Full,
}

/// Maximum of `limit`.
const MAX_LIMIT: u64 = 100_000;

impl Page {
    /// Reads `{"detail": "full", "offset": 0, "limit": 50}`. `null` requests no page.
    ///
    /// # Errors
    /// What is wrong, and what would be valid.
    pub fn from_json(value: Value) -> Result<Option<Self>, String> {
        let fields = match value {
            Value::Null => return Ok(None),
            Value::Object(fields) => fields,
            other => {
                return Err(format!(
                    "page is an object, {{\"detail\": \"full\", \"offset\": 0}}, not {}",
                    type_name(&other)
                ));
            }
        };
        let mut page = Self::default();
        for (field, value) in fields {
            match (field.as_str(), value) {
                ("detail" | "offset" | "limit", Value::Null) => {}
                // Any text other than `full` means the preview (the contract's rule), so a caller's
                // own values do no harm.
                ("detail", Value::String(word)) => {
                    page.detail = if word == "full" {
                        Detail::Full
                    } else {
                        Detail::Exploring
                    };
                }
                ("detail", _) => {
                    return Err("page.detail is a text: \"full\", or \"exploring\"".into());
                }
                ("offset", value) => {
                    let offset =
                        Self::parse_integer(&value).and_then(|offset| usize::try_from(offset).ok());
                    page.offset = offset.ok_or("page.offset is a whole number from 0")?;
                }
                ("limit", value) => {
                    let limit =
                        Self::parse_integer(&value).filter(|limit| (1..=MAX_LIMIT).contains(limit));
                    let limit = limit.and_then(|limit| usize::try_from(limit).ok());
                    page.limit = Some(limit.ok_or_else(|| {
                        format!("page.limit is a whole number from 1 to {MAX_LIMIT}")
                    })?);
                }
                (other, _) => {
                    return Err(format!(
                        "unknown field `{other}` in page: there are detail, offset and limit"
                    ));
                }
            }
        }
        if page.offset > 0 && page.detail == Detail::Exploring {
            return Err(
                "page.offset goes with \"detail\": \"full\"; without it the first items are shown"
                    .into(),
            );
        }
        Ok(Some(page))
    }

    /// Whether the page starts after the beginning of the result. Then it is a part of a result
    /// that exists already.
    pub fn is_further(&self) -> bool {
        self.detail == Detail::Full && self.offset > 0
    }

    /// An integer in any notation: in JSON Schema, `50.0` is an integer (2020-12, section 6.1.1).
    pub(crate) fn parse_integer(value: &Value) -> Option<u64> {
        // Above 2^53 a float cannot represent every integer.
        const MOST: f64 = 9_007_199_254_740_992.0;
        let float = || {
            value
                .as_f64()
                .filter(|number| number.fract() == 0.0 && (0.0..=MOST).contains(number))
        };
        value
            .as_u64()
            .or_else(|| float().map(|number| number as u64))
    }
}

/// What the lengths of a result are counted in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema, strum::Display)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Unit {
    /// Items of a list.
    Items,
    /// Characters (Unicode scalar values) of a text.
    Characters,
}

/// The part of a result that is not shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Overflow {
    /// Items or characters in this answer.
    pub shown: usize,
    /// All of them; null if the number is unknown, because the tool itself returned only a part.
    #[schema(required)]
    pub total: Option<usize>,
    /// What is counted.
    pub unit: Unit,
    /// How to get the rest.
    pub hint: String,
    /// Offset of the next page; null on the last page, and if the call requested no pages.
    #[schema(required)]
    pub next_offset: Option<usize>,
    /// What a model learns about the rest. Not part of an answer's `meta`.
    #[serde(skip)]
    #[schema(ignore)]
    pub for_model: RestHint,
    /// Items or characters that the tool returned. Not part of an answer's `meta`: the total is
    /// that number, or unknown.
    #[serde(skip)]
    #[schema(ignore)]
    pub returned: usize,
}

/// How a model gets the rest of a result.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum RestHint {
    /// Not at all: the model is asked to narrow its call.
    #[default]
    Narrow,
    /// The ledger keeps the result, so a tool that reads recorded results can continue at the
    /// offset.
    Recorded {
        /// Number of items or characters to skip.
        offset: usize,
        /// The tool's own hint on how to get less, if it gave one.
        hint: Option<String>,
    },
    /// The result stays in the service, and has this shape.
    Reference(String),
    /// As this text says.
    Text(String),
    /// Nothing is left.
    LastPage,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn page_is_parsed_as_in_the_contract() {
        let full = |offset, limit| Page {
            detail: Detail::Full,
            offset,
            limit,
        };
        for (input, page) in [
            (
                json!({"detail": "full", "offset": 0, "limit": 50}),
                full(0, Some(50)),
            ),
            (json!({"detail": "full", "offset": 100}), full(100, None)),
            (
                json!({"detail": "full", "offset": 2.0, "limit": 5e1}),
                full(2, Some(50)),
            ),
            (
                json!({"detail": "brief", "limit": 7}),
                Page {
                    limit: Some(7),
                    ..Page::default()
                },
            ),
            (
                json!({"detail": null, "offset": null, "limit": null}),
                Page::default(),
            ),
            (json!({}), Page::default()),
        ] {
            assert_eq!(Page::from_json(input.clone()), Ok(Some(page)), "{input}");
        }
        assert_eq!(Page::from_json(Value::Null), Ok(None));
    }

    #[test]
    fn invalid_page_errors_state_what_is_valid() {
        for (input, expected) in [
            (json!([0, 50]), "page is an object"),
            (json!({"detail": true}), "page.detail is a text"),
            (json!({"offset": 50}), "goes with \"detail\": \"full\""),
            (
                json!({"detail": "full", "offset": -1}),
                "page.offset is a whole number from 0",
            ),
            (
                json!({"detail": "full", "offset": 1.5}),
                "page.offset is a whole number from 0",
            ),
            (json!({"detail": "full", "limit": 0}), "from 1 to 100000"),
            (
                json!({"detail": "full", "limit": 100_001}),
                "from 1 to 100000",
            ),
            (json!({"page": 2}), "there are detail, offset and limit"),
        ] {
            let error = Page::from_json(input.clone()).unwrap_err();
            assert!(error.contains(expected), "{input}: {error}");
        }
    }
}
