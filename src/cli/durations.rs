//! Times in the tables: short, with the unit that fits. And times in options.

use jiff::Timestamp;

use super::Failure;
use crate::call::units::parse_time;

/// The time or the span before `now` that an option such as `--since` names.
pub(super) fn parse_time_option(
    option: &str,
    text: Option<&str>,
    now: Timestamp,
) -> Result<Option<Timestamp>, Failure> {
    let time = text.map(|text| parse_time(option, text, now)).transpose();
    time.map_err(|message| Failure::Usage(format!("--{message}")))
}

/// A duration in milliseconds, such as `0.4 ms`, `12 ms`, `3.5 s` or `2m 05s`.
pub(super) fn format_millis(millis: f64) -> String {
    match millis {
        small if small < 9.95 => format!("{small:.1} ms"),
        medium if medium < 999.5 => format!("{medium:.0} ms"),
        large if large < 59_950.0 => format!("{:.1} s", large / 1000.0),
        minutes => {
            let seconds = (minutes / 1000.0).round() as u64;
            format!("{}m {:02}s", seconds / 60, seconds % 60)
        }
    }
}

/// The time since `start`, in its largest unit: `12s`, `3m`, `2h` or `5d`.
pub(super) fn format_age(start: Timestamp, now: Timestamp) -> String {
    let seconds = (now.as_second() - start.as_second()).max(0);
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_fitting_units() {
        let shown =
            [0.04, 0.44, 9.96, 250.0, 999.6, 3_460.0, 59_960.0, 125_000.0].map(format_millis);
        assert_eq!(
            shown,
            [
                "0.0 ms", "0.4 ms", "10 ms", "250 ms", "1.0 s", "3.5 s", "1m 00s", "2m 05s"
            ]
        );
    }

    #[test]
    fn ages_have_one_unit() {
        let now = Timestamp::from_second(1_000_000).unwrap();
        let shown = [-5, 0, 59, 60, 3599, 7200, 86_400 * 3]
            .map(|ago| format_age(Timestamp::from_second(1_000_000 - ago).unwrap(), now));
        assert_eq!(shown, ["0s", "0s", "59s", "1m", "59m", "2h", "3d"]);
    }
}
