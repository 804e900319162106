//! The formats `date-time` and `time` as ISO 8601 has them, where the offset may be missing. Python
//! writes and reads such times, and publishes them under these formats of JSON Schema.

use jiff::Timestamp;
use jiff::civil::{DateTime, Time};
use serde_json::Value;

/// Whether this is a date with a time, with or without an offset.
pub(super) fn is_date_time(text: &str) -> bool {
    without_utc_mark(text).parse::<DateTime>().is_ok()
}

/// Whether this is a time of day, with or without an offset.
pub(super) fn is_time(text: &str) -> bool {
    without_utc_mark(text).parse::<Time>().is_ok()
}

/// Whether a value is a date with a time, or a time of day, in a zone that only its writer knows.
pub(super) fn lacks_offset(value: &Value) -> bool {
    let Some(text) = value.as_str() else {
        return false;
    };
    let moment = match is_time(text) && !is_date_time(text) {
        true => format!("2000-01-01T{text}"),
        false => text.to_owned(),
    };
    is_date_time(&moment) && moment.contains(':') && moment.parse::<Timestamp>().is_err()
}

/// jiff reads a local time beside an offset, but refuses the mark of UTC.
fn without_utc_mark(text: &str) -> &str {
    text.strip_suffix(['Z', 'z']).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offset_may_be_missing() {
        for good in [
            "2024-05-05T10:00:00",
            "2024-05-05T10:00:00.25",
            "2024-05-05 10:00:00",
            "2024-05-05T10:00:00Z",
            "2024-05-05T10:00:00+02:00",
        ] {
            assert!(is_date_time(good), "{good}");
        }
        for good in ["07:30:00", "07:30", "07:30:00Z", "07:30:00+02:00"] {
            assert!(is_time(good), "{good}");
        }
        for bad in [
            "",
            "soon",
            "2024-13-05T10:00:00",
            "10:00:00",
            "2024-05-05T25:00:00",
        ] {
            assert!(!is_date_time(bad), "{bad}");
        }
        for (text, lacks) in [
            ("2024-05-05T10:00:00", true),
            ("07:30:00", true),
            ("2024-05-05T10:00:00Z", false),
            ("07:30:00+02:00", false),
            ("2024-05-05", false),
            ("soon", false),
            ("1030", false),
        ] {
            assert_eq!(lacks_offset(&text.into()), lacks, "{text}");
        }
        for bad in ["", "noon", "25:00:00"] {
            assert!(!is_time(bad), "{bad}");
        }
    }
}
