//! The parameters with which a model requests a part of a long result. They are shown beside the
//! tool's own parameters and read here. A tool that does not declare them never gets them.

use serde_json::{Value, json};

use super::SchemaFault;
use super::keywords::{local_target, same_value_parts};
use crate::call::json::escape_pointer_token;
use crate::call::{Coercion, Detail, JsonObject, Page, PageArguments, Paging, Violation};

const DETAIL: &str = "detail_level";
const OFFSET: &str = "offset";
const LIMIT: &str = "limit";
/// A value of `detail_level`: the beginning of the result.
const EXPLORING: &str = "exploring";
const FULL: &str = "full";
/// The largest `limit`, as in `page` of a request.
const MAX_LIMIT: u64 = 100_000;
/// The longest text that is read as a number: the digits of the largest number.
const MAX_DIGITS: usize = 20;
/// Levels of references and combinations that are searched for a tool's own parameters.
const MAX_DEPTH: usize = 16;

/// The parameters that are shown for one tool, and which of them are the tool's own.
#[derive(Debug, Clone, Copy)]
pub struct PageFields {
    paging: Paging,
    own_detail: bool,
    own_offset: bool,
    own_limit: bool,
}

impl PageFields {
    /// The parameters for a tool with this input schema. `None` if the model does not request
    /// parts. A parameter of the tool's own is used as the same parameter if it has the same
    /// meaning. `detail_level` must accept exactly the same two values; the others must accept
    /// integers.
    ///
    /// # Errors
    /// The tool has a parameter with the same name and another meaning.
    pub fn for_schema(paging: Paging, schema: &Value) -> Result<Option<Self>, SchemaFault> {
        if paging == Paging::Caller {
            return Ok(None);
        }
        let find = |name: &str| find_property(schema, schema, name, MAX_DEPTH);
        let own = |name: &str, expected_type: &str| match find(name) {
            None => Ok(false),
            Some(property) if may_have_type(schema, property, expected_type, MAX_DEPTH) => Ok(true),
            Some(_) => Err(SchemaFault::new(
                format!("/properties/{}", escape_pointer_token(name)),
                format!(
                    "paging: model adds the parameter `{name}` ({expected_type}), and the tool has one of that name and another type: \
                     rename the tool's own, or leave paging out"
                ),
            )),
        };
        let own_detail = paging != Paging::PagedReader && own(DETAIL, "string")?;
        if own_detail && !find(DETAIL).is_some_and(|one| accepts_detail_levels(schema, one)) {
            return Err(SchemaFault::new(
                format!("/properties/{DETAIL}"),
                format!(
                    "paging: model adds the parameter `{DETAIL}` (exploring or full), and the tool has one of that name with other \
                     values: rename the tool's own, give it `enum: [exploring, full]`, or leave paging out"
                ),
            ));
        }
        Ok(Some(Self {
            paging,
            own_detail,
            own_offset: own(OFFSET, "integer")?,
            own_limit: own(LIMIT, "integer")?,
        }))
    }

    /// Whether the model can request a page after the first one. It cannot if `offset` is the
    /// tool's own parameter.
    pub fn has_offset(&self) -> bool {
        !self.own_offset
    }

    /// Whether the model names the level of detail for a further page. If that is the tool's own
    /// parameter, another value would make another call. The offset alone is then enough.
    pub fn has_detail(&self) -> bool {
        self.paging != Paging::PagedReader && !self.own_detail
    }

    /// Whether the model can choose the size of a page.
    pub fn has_limit(&self) -> bool {
        !self.own_limit
    }

    /// The schema that a model sees.
    pub fn add_to_schema(&self, schema: &Value) -> Value {
        let mut shown = schema.clone();
        let Some(root) = shown.as_object_mut() else {
            return shown;
        };
        let Some(properties) = root
            .entry("properties")
            .or_insert_with(|| json!({}))
            .as_object_mut()
        else {
            return shown;
        };
        let mut add = |name: &str, property: Value| {
            properties.entry(name).or_insert(property);
        };
        if self.has_detail() {
            add(
                DETAIL,
                json!({
                    "type": "string", "enum": [EXPLORING, FULL],
                    "description": "How much to show: exploring, the default, shows the beginning; full shows everything, page by page",
                }),
            );
        }
        if self.has_offset() {
            add(
                OFFSET,
                json!({
                    "type": "integer", "minimum": 0,
                    "description": "Items of a long list, or characters of a long text, to leave out before the page; the answer \
                                    before says where the next page begins",
                }),
            );
        }
        if self.has_limit() {
            let default = if self.paging == Paging::PagedReader {
                "50"
            } else {
                "200, with full 50"
            };
            add(
                LIMIT,
                json!({
                    "type": "integer", "minimum": 1, "maximum": MAX_LIMIT,
                    "description": format!("Most items of a list to show; without it {default}"),
                }),
            );
        }
        shown
    }

    /// Takes the parameters out of a call's arguments, except the tool's own. `None` if the model
    /// did not request a part.
    pub fn extract(&self, arguments: &mut JsonObject, strict: bool) -> Option<PageArguments> {
        let mut request = PageArguments::default();
        let is_reader = self.paging == Paging::PagedReader;
        let detail = match self.has_detail() {
            true => take(arguments, DETAIL, &mut request),
            false => arguments.get(DETAIL).filter(|_| !is_reader).cloned(),
        };
        let has_detail = detail.is_some();
        match detail {
            _ if is_reader => request.page.detail = Detail::Full,
            Some(Value::String(word)) if word == FULL => request.page.detail = Detail::Full,
            // Any other text means the beginning. The end of that part explains how to read on.
            Some(Value::String(_) | Value::Null) | None => {}
            // The tool's own schema checks this value.
            Some(_) if self.own_detail => {}
            Some(_) => request.violations.push(page_violation(
                DETAIL,
                "type",
                "must be \"exploring\" or \"full\"",
            )),
        }
        if self.has_offset()
            && let Some(value) = take(arguments, OFFSET, &mut request)
            && let Some(offset) = read_integer(OFFSET, &value, 0, u64::MAX, strict, &mut request)
        {
            request.page.offset = usize::try_from(offset).unwrap_or(usize::MAX);
            // A model that gives an offset wants the content at that offset. It has seen the
            // beginning already.
            if offset > 0 {
                request.page.detail = Detail::Full;
            }
        }
        if self.has_limit()
            && let Some(value) = take(arguments, LIMIT, &mut request)
        {
            let limit = read_integer(LIMIT, &value, 1, MAX_LIMIT, strict, &mut request);
            request.page.limit = limit.and_then(|limit| usize::try_from(limit).ok());
        }
        (is_reader || has_detail || !request.raw.is_empty()).then_some(request)
    }
}

/// Takes a parameter out of the arguments. It is kept for the record.
fn take(arguments: &mut JsonObject, name: &str, request: &mut PageArguments) -> Option<Value> {
    let value = arguments.shift_remove(name)?;
    request.raw.insert(name.into(), value.clone());
    Some(value)
}

/// Reads an integer between bounds, also from a text. `null` counts as absent.
fn read_integer(
    name: &str,
    value: &Value,
    least: u64,
    most: u64,
    strict: bool,
    request: &mut PageArguments,
) -> Option<u64> {
    let text = value
        .as_str()
        .map(str::trim)
        .filter(|text| !strict && text.len() <= MAX_DIGITS);
    let read = match (value, text) {
        (Value::Null, _) => return None,
        (_, Some(text)) => text.parse().ok(),
        _ => Page::parse_integer(value),
    };
    let bounds = match most {
        u64::MAX => format!("must be a whole number of at least {least}"),
        most => format!("must be a whole number from {least} to {most}"),
    };
    let keyword = match read {
        None => "type",
        Some(number) if number < least => "minimum",
        Some(number) if number > most => "maximum",
        Some(number) => {
            if text.is_some() {
                request.coercions.push(Coercion {
                    pointer: format!("/{name}"),
                    from: "string".to_owned(),
                    to: "integer".to_owned(),
                });
            }
            return Some(number);
        }
    };
    let violation = page_violation(name, keyword, &bounds);
    request.violations.push(violation);
    None
}

fn page_violation(name: &str, keyword: &str, demand: &str) -> Violation {
    Violation {
        pointer: format!("/{name}"),
        keyword: keyword.into(),
        message: format!("`{name}` {demand}."),
        schema_pointer: format!("/properties/{name}/{keyword}"),
    }
}

/// The subschema of this property in an object's schema.
fn find_property<'s>(
    root: &'s Value,
    at: &'s Value,
    name: &str,
    depth: usize,
) -> Option<&'s Value> {
    let depth = depth.checked_sub(1)?;
    if let Some(own) = at.get("properties").and_then(|all| all.get(name)) {
        return Some(own);
    }
    let parts = local_target(root, at).into_iter();
    let mut parts = parts.chain(same_value_parts(at));
    let below = parts.find_map(|part| find_property(root, part, name, depth));
    below.or_else(|| {
        // A parameter that is only listed in `required` accepts any value.
        let names = at.get("required")?.as_array()?;
        let is_listed = names.iter().any(|one| one == name);
        is_listed.then_some(&Value::Bool(true))
    })
}

/// Whether a value of this type may fit a schema, judged by `type` alone.
fn may_have_type(root: &Value, at: &Value, expected_type: &str, depth: usize) -> bool {
    let Some(depth) = depth.checked_sub(1) else {
        return true;
    };
    let fits =
        |kind: &Value| kind == expected_type || (expected_type == "integer" && kind == "number");
    let own = match at.get("type") {
        None => at != &Value::Bool(false),
        Some(Value::Array(kinds)) => kinds.iter().any(fits),
        Some(kind) => fits(kind),
    };
    let may = |part: &Value| may_have_type(root, part, expected_type, depth);
    let any = |word: &str| {
        let branches = at.get(word).and_then(Value::as_array);
        branches.is_none_or(|branches| branches.iter().any(may))
    };
    own && any("anyOf") && any("oneOf") && local_target(root, at).is_none_or(may)
}

/// Whether a schema accepts exactly the two values of `detail_level`, judged by its lists of
/// values.
fn accepts_detail_levels(root: &Value, at: &Value) -> bool {
    let mut words = listed_texts(root, at, MAX_DEPTH).unwrap_or_default();
    words.sort_unstable();
    words.dedup();
    words == [EXPLORING, FULL]
}

/// The texts that a schema lists. `None` if it accepts others too.
fn listed_texts<'s>(root: &'s Value, at: &'s Value, depth: usize) -> Option<Vec<&'s str>> {
    let depth = depth.checked_sub(1)?;
    let listed = at.get("enum").and_then(Value::as_array).map(Vec::as_slice);
    if let Some(values) = listed.or_else(|| at.get("const").map(std::slice::from_ref)) {
        return Some(values.iter().filter_map(Value::as_str).collect());
    }
    if at.get("type").is_some_and(|kind| kind == "null") {
        return Some(Vec::new());
    }
    let all = at.get("allOf").and_then(Value::as_array);
    let parts = local_target(root, at).into_iter();
    let mut parts = parts.chain(all.into_iter().flatten());
    parts
        .find_map(|part| listed_texts(root, part, depth))
        .or_else(|| {
            let branches = ["anyOf", "oneOf"].into_iter();
            let mut branches = branches.filter_map(|word| at.get(word)?.as_array());
            let words = branches
                .next()?
                .iter()
                .map(|one| listed_texts(root, one, depth));
            Some(words.collect::<Option<Vec<_>>>()?.concat())
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(schema: &Value) -> PageFields {
        PageFields::for_schema(Paging::Model, schema)
            .unwrap()
            .unwrap()
    }

    fn extract_from(schema: &Value, arguments: Value) -> (Value, Option<PageArguments>) {
        let Value::Object(mut arguments) = arguments else {
            panic!("no object")
        };
        let request = fields(schema).extract(&mut arguments, false);
        (Value::Object(arguments), request)
    }

    fn plain() -> Value {
        json!({"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"], "additionalProperties": false})
    }

    #[test]
    fn schema_gains_three_parameters() {
        assert!(
            PageFields::for_schema(Paging::Caller, &plain())
                .unwrap()
                .is_none()
        );
        let shown = fields(&plain()).add_to_schema(&plain());
        let names: Vec<&String> = shown["properties"].as_object().unwrap().keys().collect();
        assert_eq!(names, ["q", "detail_level", "offset", "limit"]);
        assert_eq!(
            (&shown["required"], &shown["additionalProperties"]),
            (&json!(["q"]), &json!(false))
        );
        let pages = PageFields::for_schema(Paging::PagedReader, &plain())
            .unwrap()
            .unwrap()
            .add_to_schema(&plain());
        assert_eq!(
            pages["properties"].as_object().unwrap().len(),
            3,
            "no detail_level: {pages}"
        );
        let open = json!({"type": "object"});
        assert_eq!(
            fields(&open).add_to_schema(&open)["properties"]
                .as_object()
                .unwrap()
                .len(),
            3
        );
    }

    #[test]
    fn parameters_of_other_types_conflict() {
        for (name, property) in [
            ("offset", json!({"type": "string"})),
            ("limit", json!({"type": ["boolean", "null"]})),
            ("detail_level", json!({"type": "integer"})),
            (
                "limit",
                json!({"anyOf": [{"type": "string"}, {"type": "null"}]}),
            ),
            ("limit", json!({"$ref": "#/$defs/text"})),
            ("limit", json!(false)),
        ] {
            let defs = json!({"text": {"type": "string"}});
            let direct = json!({"type": "object", "properties": {name: property}, "$defs": defs});
            let inside = json!({
                "type": "object", "$ref": "#/$defs/args",
                "$defs": {"args": {"properties": {name: property}}, "text": {"type": "string"}}
            });
            for schema in [direct, inside] {
                let fault = PageFields::for_schema(Paging::Model, &schema).unwrap_err();
                assert_eq!(fault.pointer, format!("/properties/{name}"));
                assert!(fault.message.contains("another type"), "{}", fault.message);
            }
        }
    }

    #[test]
    fn own_parameters_stay_with_the_tool() {
        for limit in [
            json!({"type": "integer"}),
            json!({"type": ["number", "null"]}),
            json!({"anyOf": [{"type": "integer"}, {"type": "null"}], "default": null}),
            json!({}),
        ] {
            let schema = json!({"type": "object", "properties": {"limit": limit}});
            let (remaining, request) = extract_from(&schema, json!({"limit": 7, "offset": 10}));
            assert_eq!(remaining, json!({"limit": 7}));
            assert_eq!(
                request.unwrap().page,
                Page {
                    detail: Detail::Full,
                    offset: 10,
                    limit: None
                }
            );
            assert_eq!(
                fields(&schema).add_to_schema(&schema)["properties"]["limit"],
                limit
            );
        }
        let words = json!({"type": "string", "enum": ["full", "exploring"]});
        for detail in [
            words.clone(),
            json!({"anyOf": [words, {"type": "null"}], "default": null}),
            json!({"oneOf": [{"const": "exploring"}, {"const": "full"}]}),
            json!({"$ref": "#/$defs/words"}),
            json!({"type": ["string", "null"], "enum": ["exploring", "full", null]}),
        ] {
            let schema = json!({
                "type": "object", "allOf": [{"properties": {"detail_level": detail}}], "$defs": {"words": words}
            });
            let (remaining, request) =
                extract_from(&schema, json!({"detail_level": "full", "limit": 3}));
            assert_eq!(
                remaining,
                json!({"detail_level": "full"}),
                "the tool and the page both see it"
            );
            assert_eq!(
                request.unwrap().page,
                Page {
                    detail: Detail::Full,
                    offset: 0,
                    limit: Some(3)
                }
            );
            assert!(!fields(&schema).has_detail() && fields(&plain()).has_detail());
        }
    }

    #[test]
    fn other_detail_levels_conflict() {
        for detail in [
            json!({"type": "string"}),
            json!({}),
            json!({"type": "string", "enum": ["brief", "full"]}),
            json!({"type": "string", "enum": ["exploring", "full", "FULL"]}),
            json!({"const": "full"}),
            json!({"anyOf": [{"enum": ["exploring", "full"]}, {"type": "string"}]}),
        ] {
            let schema = json!({"type": "object", "properties": {"detail_level": detail}});
            let fault = PageFields::for_schema(Paging::Model, &schema).unwrap_err();
            assert_eq!(fault.pointer, "/properties/detail_level");
            assert!(
                fault.message.contains("with other values: rename"),
                "{}",
                fault.message
            );
            assert!(
                PageFields::for_schema(Paging::PagedReader, &schema).is_ok(),
                "it has no such parameter"
            );
        }
    }

    #[test]
    fn page_arguments_are_read_leniently() {
        let full = |offset, limit| Page {
            detail: Detail::Full,
            offset,
            limit,
        };
        for (arguments, page) in [
            (json!({"q": "x", "detail_level": "full"}), full(0, None)),
            (json!({"q": "x", "offset": 50}), full(50, None)),
            (
                json!({"q": "x", "detail_level": "full", "offset": "100", "limit": 5.0}),
                full(100, Some(5)),
            ),
            (
                json!({"q": "x", "detail_level": "exploring", "limit": 9}),
                Page {
                    limit: Some(9),
                    ..Page::default()
                },
            ),
            (json!({"q": "x", "detail_level": "FULL"}), Page::default()),
            (
                json!({"q": "x", "detail_level": null, "offset": null, "limit": null}),
                Page::default(),
            ),
        ] {
            let (remaining, request) = extract_from(&plain(), arguments.clone());
            let request = request.unwrap();
            assert_eq!(
                (remaining, request.page, &request.violations[..]),
                (json!({"q": "x"}), page, &[][..]),
                "{arguments}"
            );
            let mut written = arguments;
            written.as_object_mut().unwrap().shift_remove("q");
            assert_eq!(Value::Object(request.raw), written);
        }
        assert_eq!(extract_from(&plain(), json!({"q": "x"})).1, None);
    }

    #[test]
    fn violations_name_parameter_and_bounds() {
        for (arguments, expected) in [
            (
                json!({"detail_level": 5}),
                "`detail_level` must be \"exploring\" or \"full\".",
            ),
            (
                json!({"offset": -1}),
                "`offset` must be a whole number of at least 0.",
            ),
            (
                json!({"offset": "ten"}),
                "`offset` must be a whole number of at least 0.",
            ),
            (
                json!({"limit": 0}),
                "`limit` must be a whole number from 1 to 100000.",
            ),
            (
                json!({"limit": "100001"}),
                "`limit` must be a whole number from 1 to 100000.",
            ),
            (
                json!({"limit": [1]}),
                "`limit` must be a whole number from 1 to 100000.",
            ),
        ] {
            let faults = extract_from(&plain(), arguments.clone())
                .1
                .unwrap()
                .violations;
            let messages: Vec<&str> = faults.iter().map(|fault| fault.message.as_str()).collect();
            assert_eq!(messages, [expected], "{arguments}");
        }
        let mut strict = json!({"offset": "10"}).as_object().unwrap().clone();
        assert_eq!(
            fields(&plain())
                .extract(&mut strict, true)
                .unwrap()
                .violations
                .len(),
            1
        );
    }
}
