//! Reads the `Prefer` header (RFC 7240). The service supports `respond-async` and `wait`.

use std::time::Duration;

use axum::http::{HeaderMap, HeaderName, HeaderValue};

/// The response header that names the applied preference.
pub(crate) const PREFERENCE_APPLIED: HeaderName = HeaderName::from_static("preference-applied");
/// The preference for an early answer with a link to the result.
pub(crate) const RESPOND_ASYNC: HeaderValue = HeaderValue::from_static("respond-async");

/// The `Prefer` header of a request, for the OpenAPI document.
#[derive(utoipa::IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "`respond_async` reads the header")]
pub(crate) struct PreferHeader {
    /// `respond-async`: the call is answered 202 and continues. With `wait=10`, only a call that
    /// takes longer than ten seconds. Other preferences are ignored (RFC 7240).
    #[param(rename = "prefer", required = false)]
    prefer: String,
}

/// How long a caller that prefers `respond-async` waits for the result itself. `None`: the caller
/// does not prefer it.
///
/// Unknown and invalid preferences are ignored. If a preference occurs more than once, the first
/// one counts.
pub(crate) fn respond_async(headers: &HeaderMap) -> Option<Duration> {
    let values = headers
        .get_all("prefer")
        .iter()
        .filter_map(|value| value.to_str().ok());
    let (mut is_async, mut wait) = (false, None);
    for preference in values.flat_map(|value| split_unquoted(value, ',')) {
        let preference = split_unquoted(preference, ';').next().unwrap_or_default();
        let (name, value) = preference.split_once('=').unwrap_or((preference, ""));
        match name.trim().to_ascii_lowercase().as_str() {
            "respond-async" => is_async = true,
            "wait" if wait.is_none() => wait = value.trim().trim_matches('"').parse().ok(),
            _ => {}
        }
    }
    is_async.then(|| Duration::from_secs(wait.unwrap_or_default()))
}

/// Splits at separators outside quoted strings.
fn split_unquoted(text: &str, separator: char) -> impl Iterator<Item = &str> {
    let (mut quoted, mut escaped) = (false, false);
    text.split(move |c| {
        let was_escaped = std::mem::take(&mut escaped);
        match c {
            '\\' if quoted => escaped = !was_escaped,
            '"' if !was_escaped => quoted = !quoted,
            _ => {}
        }
        c == separator && !quoted
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait_seconds(values: &[&'static str]) -> Option<u64> {
        let headers = values.iter().map(|value| {
            (
                HeaderName::from_static("prefer"),
                HeaderValue::from_static(value),
            )
        });
        respond_async(&headers.collect()).map(|wait| wait.as_secs())
    }

    #[test]
    fn respond_async_is_found_among_other_preferences() {
        for values in [
            &["respond-async"][..],
            &["Respond-Async;why=so"],
            &["handling=lenient, respond-async"],
            &["return=minimal", "respond-async=\"\""],
            &[r#"foo="a,b;\",", respond-async ; x"#],
        ] {
            assert_eq!(wait_seconds(values), Some(0), "{values:?}");
        }
        for values in [
            &[][..],
            &["wait=5"],
            &["respond-asynchronously"],
            &["foo=\"respond-async\""],
            &["foo=\", respond-async"],
        ] {
            assert_eq!(wait_seconds(values), None, "{values:?}");
        }
    }

    #[test]
    fn invalid_wait_is_ignored() {
        assert_eq!(wait_seconds(&["respond-async, wait=10"]), Some(10));
        assert_eq!(
            wait_seconds(&["WAIT = \"7\" ; x=1", "respond-async"]),
            Some(7)
        );
        assert_eq!(
            wait_seconds(&["respond-async; wait=10"]),
            Some(0),
            "a parameter of another preference"
        );
        assert_eq!(wait_seconds(&["wait=3, respond-async, wait=9"]), Some(3));
        for nonsense in [
            "wait=soon, respond-async",
            "wait=-1, respond-async",
            "wait=99999999999999999999, respond-async",
            "wait, respond-async",
        ] {
            assert_eq!(wait_seconds(&[nonsense]), Some(0), "{nonsense}");
        }
    }
}
