//! Media types, such as `application/json; charset=utf-8` (RFC 9110, 8.3.1).

pub use toolcrib_dialect::media_type_essence;

/// Whether an essence is JSON, or a format that is written in JSON (RFC 6839, 3.1).
pub fn is_json_essence(essence: &str) -> bool {
    let (_, subtype) = essence.split_once('/').unwrap_or_default();
    let subtype = subtype.to_ascii_lowercase();
    subtype == "json" || subtype.ends_with("+json")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn essence_has_no_parameters() {
        for (written, essence, is_json) in [
            ("Application/JSON; charset=utf-8", "Application/JSON", true),
            ("application/problem+json", "application/problem+json", true),
            (" text/plain ", "text/plain", false),
            ("json", "json", false),
        ] {
            assert_eq!(
                (media_type_essence(written), is_json_essence(essence)),
                (essence, is_json)
            );
        }
    }
}
