//! Converts PostgreSQL's dates and times from the binary form to ISO 8601. Values that ISO 8601
//! cannot express (infinity, years before year 1) are written as PostgreSQL writes them, so that it
//! can read them again.

use jiff::Span;
use jiff::civil::date;

/// The days of 400 years, after which the calendar repeats.
const ERA: i64 = 146_097;
const SECOND: i64 = 1_000_000;
const DAY: i64 = 86_400 * SECOND;

/// A `date`: days since 2000-01-01.
pub(super) fn format_date(days: i32) -> String {
    match days {
        i32::MAX => "infinity".into(),
        i32::MIN => "-infinity".into(),
        days => format_with_era(i64::from(days), ""),
    }
}

/// A `timestamp`: microseconds since 2000-01-01. `zone` is appended.
pub(super) fn format_timestamp(micros: i64, zone: &str) -> String {
    match micros {
        i64::MAX => "infinity".into(),
        i64::MIN => "-infinity".into(),
        micros => format_with_era(
            micros.div_euclid(DAY),
            &format!("T{}{zone}", format_time(micros.rem_euclid(DAY))),
        ),
    }
}

/// A `time`: microseconds since midnight, up to 24:00:00.
pub(super) fn format_time(micros: i64) -> String {
    let seconds = micros / SECOND;
    format!(
        "{:02}:{:02}:{:02}{}",
        seconds / 3600,
        seconds / 60 % 60,
        seconds % 60,
        format_fraction(micros % SECOND)
    )
}

/// The offset of a `timetz`, in seconds to the west.
pub(super) fn format_offset(west: i32) -> String {
    let (sign, seconds) = (if west > 0 { '-' } else { '+' }, west.unsigned_abs());
    let second_part = if seconds % 60 == 0 {
        String::new()
    } else {
        format!(":{:02}", seconds % 60)
    };
    format!(
        "{sign}{:02}:{:02}{second_part}",
        seconds / 3600,
        seconds / 60 % 60
    )
}

/// An `interval`. Each part has its own sign, as in PostgreSQL's `intervalstyle = iso_8601`.
pub(super) fn format_interval(micros: i64, days: i32, months: i32) -> String {
    match (micros, days, months) {
        (i64::MAX, i32::MAX, i32::MAX) => return "infinity".into(),
        (i64::MIN, i32::MIN, i32::MIN) => return "-infinity".into(),
        (0, 0, 0) => return "PT0S".into(),
        _ => {}
    }
    let part = |count: i64, unit: char| {
        if count == 0 {
            String::new()
        } else {
            format!("{count}{unit}")
        }
    };
    let date = [
        part((months / 12).into(), 'Y'),
        part((months % 12).into(), 'M'),
        part(days.into(), 'D'),
    ]
    .concat();
    let (seconds, rest) = (micros / SECOND % 60, micros % SECOND);
    let sign = if seconds == 0 && rest < 0 { "-" } else { "" };
    let seconds = match (seconds, rest) {
        (0, 0) => String::new(),
        (seconds, rest) => format!("{sign}{seconds}{}S", format_fraction(rest.abs())),
    };
    let time = [
        part(micros / (3600 * SECOND), 'H'),
        part(micros / (60 * SECOND) % 60, 'M'),
        seconds,
    ]
    .concat();
    if time.is_empty() {
        format!("P{date}")
    } else {
        format!("P{date}T{time}")
    }
}

fn format_fraction(micros: i64) -> String {
    if micros == 0 {
        return String::new();
    }
    format!(".{micros:06}").trim_end_matches('0').to_owned()
}

/// A day, followed by `rest`. Years before year 1 are counted backwards and marked `BC`.
fn format_with_era(days: i64, rest: &str) -> String {
    let (year, month, day) = civil_date(days);
    if year > 0 {
        format!("{year:04}-{month:02}-{day:02}{rest}")
    } else {
        format!("{:04}-{month:02}-{day:02}{rest} BC", 1 - year)
    }
}

/// Year, month and day of a day that is counted from 2000-01-01, in the proleptic Gregorian calendar.
/// PostgreSQL has more years than jiff.
fn civil_date(days: i64) -> (i64, i8, i8) {
    let (era, of_era) = (days.div_euclid(ERA), days.rem_euclid(ERA));
    let date = date(2000, 1, 1).saturating_add(Span::new().days(of_era));
    (i64::from(date.year()) + era * 400, date.month(), date.day())
}

#[cfg(test)]
mod tests {
    use jiff::civil::Date;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn dates_and_times_are_iso_8601() {
        assert_eq!(format_date(0), "2000-01-01");
        assert_eq!(format_date(-1), "1999-12-31");
        assert_eq!(format_timestamp(-1, ""), "1999-12-31T23:59:59.999999");
        assert_eq!(format_timestamp(1_500_000, "Z"), "2000-01-01T00:00:01.5Z");
        assert_eq!(format_timestamp(i64::MAX, "Z"), "infinity");
        assert_eq!(format_time(DAY), "24:00:00");
        assert_eq!(
            (
                format_offset(-19_800),
                format_offset(18_000),
                format_offset(0)
            ),
            ("+05:30".into(), "-05:00".into(), "+00:00".into())
        );
    }

    #[test]
    fn intervals_are_iso_8601() {
        for (micros, days, months, want) in [
            (0, 0, 0, "PT0S"),
            (0, 0, 14, "P1Y2M"),
            (0, -3, -14, "P-1Y-2M-3D"),
            (
                4 * 3600 * SECOND + 5 * 60 * SECOND + 6_700_000,
                3,
                0,
                "P3DT4H5M6.7S",
            ),
            (-500_000, 1, 0, "P1DT-0.5S"),
            (-3_661_000_001, 0, 0, "PT-1H-1M-1.000001S"),
        ] {
            assert_eq!(format_interval(micros, days, months), want);
        }
    }

    proptest! {
        #[test]
        fn civil_date_matches_the_calendar_library(days in -4_382_544i64..2_921_939) {
            let day = Date::constant(2000, 1, 1) + Span::new().days(days);
            let (year, month, of_month) = civil_date(days);
            prop_assert_eq!((year, month, of_month), (day.year().into(), day.month(), day.day()));
        }
    }
}
