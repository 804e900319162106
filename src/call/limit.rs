//! Usage limits.

use jiff::tz::TimeZone;
use jiff::{Span, Timestamp, Unit};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The period in which a usage limit counts. Windows are fixed and start at UTC boundaries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[derive(strum::IntoStaticStr, strum::EnumString)]
#[strum(serialize_all = "snake_case")]
pub enum Per {
    /// Sixty seconds.
    Minute,
    /// Sixty minutes.
    Hour,
    /// A UTC day.
    Day,
    /// A UTC calendar month.
    Month,
    /// One `run_id` of one caller. A guard against loops: the caller chooses the id.
    Run,
    /// No end, until an admin resets the count.
    Lifetime,
}

impl Per {
    /// The name used in manifests and answers.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Start of the window that holds `now`, in Unix milliseconds. `run` and `lifetime` have one
    /// window, which starts at 0.
    pub fn window_start(self, now: Timestamp) -> i64 {
        let unit = match self {
            Self::Minute => Unit::Minute,
            Self::Hour => Unit::Hour,
            Self::Day => Unit::Day,
            Self::Month => Unit::Month,
            Self::Run | Self::Lifetime => return 0,
        };
        let utc = now.to_zoned(TimeZone::UTC);
        let start = match unit {
            Unit::Month => utc.first_of_month().and_then(|day| day.start_of_day()),
            _ => utc.round(
                jiff::ZonedRound::new()
                    .smallest(unit)
                    .mode(jiff::RoundMode::Trunc),
            ),
        };
        start
            .map(|z| z.timestamp().as_millisecond())
            .unwrap_or_default()
    }

    /// When the window that starts at `start` ends; `None` for `run` and `lifetime`.
    pub fn resets_at(self, start: i64) -> Option<Timestamp> {
        let span = match self {
            Self::Minute => Span::new().minutes(1),
            Self::Hour => Span::new().hours(1),
            Self::Day => Span::new().days(1),
            Self::Month => Span::new().months(1),
            Self::Run | Self::Lifetime => return None,
        };
        let start = Timestamp::from_millisecond(start)
            .ok()?
            .to_zoned(TimeZone::UTC);
        start.checked_add(span).ok().map(|end| end.timestamp())
    }
}

/// Whose calls a limit counts.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, ToSchema, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum LimitScope {
    /// The calls of all callers together.
    #[default]
    Tool,
    /// The calls of each caller separately.
    Caller,
}

/// Whose limit it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum LimitOwner {
    /// The limit stands in the tool's policy, and counts calls of this tool.
    Tool,
    /// The limit stands with the caller, and counts the caller's calls of all tools.
    Caller,
}

/// At most `calls` calls per window.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Limit {
    /// Number of calls in one window.
    #[schemars(extend("examples" = [100]))]
    pub calls: u64,
    /// The window. Windows are fixed and start at UTC boundaries.
    #[schemars(extend("examples" = ["day"]))]
    pub per: Per,
    /// Whose calls are counted together.
    #[serde(default)]
    #[schemars(extend("examples" = ["caller"]))]
    pub scope: LimitScope,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_start_and_end_at_utc_boundaries() {
        let now: Timestamp = "2026-02-28T23:59:30.5Z".parse().unwrap();
        for (per, start, end) in [
            (Per::Minute, "2026-02-28T23:59:00Z", "2026-03-01T00:00:00Z"),
            (Per::Hour, "2026-02-28T23:00:00Z", "2026-03-01T00:00:00Z"),
            (Per::Day, "2026-02-28T00:00:00Z", "2026-03-01T00:00:00Z"),
            (Per::Month, "2026-02-01T00:00:00Z", "2026-03-01T00:00:00Z"),
        ] {
            let at = per.window_start(now);
            assert_eq!(Timestamp::from_millisecond(at).unwrap().to_string(), start);
            assert_eq!(per.resets_at(at).unwrap().to_string(), end);
        }
        assert_eq!(
            (Per::Lifetime.window_start(now), Per::Run.resets_at(0)),
            (0, None)
        );
    }
}
