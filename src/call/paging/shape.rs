//! The shape of a value, in words: what a model learns of a result that it does not see.

use serde_json::Value;

/// Fields that are named.
const MAX_FIELDS: usize = 30;
const MAX_FIELD_CHARS: usize = 60;
/// Items whose fields are looked at.
const SAMPLE: usize = 20;

/// For example `list of 2,340 objects: id, name`.
pub fn describe_shape(value: &Value) -> String {
    match value {
        Value::Array(items) => {
            let count = group_digits(items.len());
            let sample = &items[..items.len().min(SAMPLE)];
            let kind = match sample {
                [] => return "an empty list".into(),
                items if items.iter().all(Value::is_object) => "objects",
                items if items.iter().all(Value::is_string) => "texts",
                items if items.iter().all(Value::is_number) => "numbers",
                items if items.iter().all(Value::is_array) => "lists",
                _ => "values",
            };
            let mut names: Vec<&str> = Vec::new();
            for name in sample
                .iter()
                .filter_map(Value::as_object)
                .flat_map(|item| item.keys())
            {
                if !names.contains(&name.as_str()) {
                    names.push(name);
                }
            }
            let fields = join(names.into_iter().map(str::to_owned).collect());
            format!("list of {count} {kind}{fields}")
        }
        Value::Object(fields) => {
            let field = |(name, value): (&String, &Value)| match value {
                Value::Array(items) => format!("{name} (list of {})", group_digits(items.len())),
                Value::Object(_) => format!("{name} (object)"),
                _ => name.clone(),
            };
            format!("object{}", join(fields.iter().map(field).collect()))
        }
        Value::String(_) => "text".into(),
        Value::Number(_) | Value::Bool(_) | Value::Null => "single value".into(),
    }
}

/// `: a, b, …`, or nothing.
fn join(mut names: Vec<String>) -> String {
    let is_cut = names.len() > MAX_FIELDS;
    names.truncate(MAX_FIELDS);
    for name in &mut names {
        if let Some((end, _)) = name.char_indices().nth(MAX_FIELD_CHARS) {
            name.truncate(end);
        }
    }
    match names.is_empty() {
        true => String::new(),
        false => format!(": {}{}", names.join(", "), if is_cut { ", …" } else { "" }),
    }
}

/// The number with a comma before each group of three digits.
fn group_digits(number: usize) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn shape_names_kind_number_and_fields() {
        let rows: Value = (0..2340).map(|id| json!({"id": id, "name": "x"})).collect();
        assert_eq!(describe_shape(&rows), "list of 2,340 objects: id, name");
        assert_eq!(
            describe_shape(&json!({"orders": rows, "next": null, "page": {}})),
            "object: orders (list of 2,340), next, page (object)"
        );
        for (value, words) in [
            (json!([]), "an empty list"),
            (json!([1, 2]), "list of 2 numbers"),
            (json!([1, "x"]), "list of 2 values"),
            (json!("x"), "text"),
            (json!({}), "object"),
        ] {
            assert_eq!(describe_shape(&value), words);
        }
        let many: Value = (0..1000)
            .map(|n| (format!("f{n}"), json!(1)))
            .collect::<serde_json::Map<_, _>>()
            .into();
        assert!(describe_shape(&many).ends_with("f29, …"));
    }
}
