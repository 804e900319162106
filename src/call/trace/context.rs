//! The trace of a call, as the client sent it: W3C Trace Context.

/// Length of `VERSION-TRACE_ID-PARENT_ID-FLAGS` in version 00. Each later version starts with the
/// same fields (section 3.2.2).
const TRACEPARENT_LEN: usize = 55;
/// Position of the trace id.
const TRACE_ID: std::ops::Range<usize> = 3..35;
/// Position of the parent id.
const PARENT_ID: std::ops::Range<usize> = 36..52;
/// Position of the flags.
const FLAGS: std::ops::Range<usize> = 53..55;
/// Maximum length of a `tracestate` that is passed on: the length that every service should at
/// least support (section 3.3.1.5).
const MAX_TRACESTATE_LEN: usize = 512;

/// A valid `traceparent` with its `tracestate` (<https://www.w3.org/TR/trace-context/>). Without
/// telemetry, both are passed on unchanged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceContext {
    traceparent: Box<str>,
    tracestate: Option<Box<str>>,
}

/// The parts of a trace context.
pub(crate) struct Ids {
    pub(crate) trace_id: u128,
    pub(crate) span_id: u64,
    pub(crate) is_sampled: bool,
    pub(crate) has_random_trace_id: bool,
}

impl TraceContext {
    /// Reads all `traceparent` and `tracestate` headers of a request. The parts of `tracestate`
    /// form one list. `None` if there is no valid `traceparent`; an invalid one counts as absent
    /// (section 4.3). A `tracestate` means nothing without a `traceparent`, and is dropped if it
    /// cannot be passed on.
    pub fn from_headers<'a>(
        traceparents: impl IntoIterator<Item = &'a [u8]>,
        tracestates: impl IntoIterator<Item = &'a [u8]>,
    ) -> Option<Self> {
        let mut all = traceparents.into_iter();
        let (Some(header), None) = (all.next(), all.next()) else {
            return None;
        };
        Some(Self {
            traceparent: parse_traceparent(header)?,
            tracestate: parse_tracestate(tracestates),
        })
    }

    /// The `traceparent`: 55 characters of version 00.
    pub fn traceparent(&self) -> &str {
        &self.traceparent
    }

    /// The `tracestate`: visible ASCII and blanks, at most 512 bytes.
    pub fn tracestate(&self) -> Option<&str> {
        self.tracestate.as_deref()
    }

    /// The context of a span of this service, below the context that the caller sent.
    pub(crate) fn from_ids(ids: &Ids, caller: Option<&Self>) -> Self {
        let flags = u8::from(ids.is_sampled) | (u8::from(ids.has_random_trace_id) << 1);
        let (trace, span) = (ids.trace_id, ids.span_id);
        Self {
            traceparent: format!("00-{trace:032x}-{span:016x}-{flags:02x}").into(),
            tracestate: caller.and_then(|caller| caller.tracestate.clone()),
        }
    }

    /// The trace id and the parent id as numbers.
    pub fn ids(&self) -> (u128, u64) {
        let part = |range| self.traceparent.get(range).unwrap_or_default();
        (
            u128::from_str_radix(part(TRACE_ID), 16).unwrap_or_default(),
            u64::from_str_radix(part(PARENT_ID), 16).unwrap_or_default(),
        )
    }

    /// Whether the caller records its span.
    pub fn is_sampled(&self) -> bool {
        self.flags() & 1 == 1
    }

    /// Whether the trace id is random, so that a sampler may use its digits.
    pub fn has_random_trace_id(&self) -> bool {
        self.flags() & 2 == 2
    }

    fn flags(&self) -> u8 {
        let flags = self.traceparent.get(FLAGS).unwrap_or_default();
        u8::from_str_radix(flags, 16).unwrap_or_default()
    }

    /// The trace id: 32 lower-case hexadecimal digits.
    pub fn trace_id(&self) -> &str {
        self.traceparent.get(TRACE_ID).unwrap_or_default()
    }
}

fn parse_traceparent(header: &[u8]) -> Option<Box<str>> {
    let prefix = std::str::from_utf8(header.get(..TRACEPARENT_LEN)?).ok()?;
    let is_hex = |part: &str| {
        part.bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    let is_id = |part: &str| is_hex(part) && part.bytes().any(|byte| byte != b'0');
    let (version, flags) = (prefix.get(..2)?, prefix.get(53..)?);
    let dashes = [2, 35, 52].iter().all(|&at| header[at] == b'-');
    let ids = is_id(prefix.get(TRACE_ID)?) && is_id(prefix.get(PARENT_ID)?);
    if !(dashes && ids && is_hex(version) && is_hex(flags)) || version == "ff" {
        return None;
    }
    match (version, header.get(TRACEPARENT_LEN)) {
        ("00", None) => Some(prefix.into()),
        ("00", _) => None,
        // A later version is passed on as version 00, with the flags that this version defines:
        // sampled, random.
        (_, None | Some(b'-')) => {
            let flags = u8::from_str_radix(flags, 16).ok()? & 0b11;
            Some(format!("00{}{flags:02x}", prefix.get(2..53)?).into())
        }
        _ => None,
    }
}

fn parse_tracestate<'a>(header: impl IntoIterator<Item = &'a [u8]>) -> Option<Box<str>> {
    let mut list = String::new();
    for part in header {
        let part = std::str::from_utf8(part).ok()?.trim_matches([' ', '\t']);
        if !part.bytes().all(|byte| matches!(byte, b'\t' | b' '..=b'~')) {
            return None;
        }
        if !list.is_empty() && !part.is_empty() {
            list.push(',');
        }
        list.push_str(part);
        if list.len() > MAX_TRACESTATE_LEN {
            return None;
        }
    }
    (!list.is_empty()).then(|| list.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn read(parents: &[&str], states: &[&str]) -> Option<TraceContext> {
        TraceContext::from_headers(
            parents.iter().map(|text| text.as_bytes()),
            states.iter().map(|text| text.as_bytes()),
        )
    }

    fn sent_on(parent: &str) -> Option<String> {
        read(&[parent], &[]).map(|trace| trace.traceparent().to_owned())
    }

    #[test]
    fn valid_traceparent_is_passed_unchanged() {
        for good in [
            GOOD,
            &GOOD.replace("-01", "-00"),
            &GOOD.replace("-01", "-ff"),
        ] {
            assert_eq!(sent_on(good).as_deref(), Some(good));
        }
        assert_eq!(
            read(&[GOOD], &[]).unwrap().trace_id(),
            "4bf92f3577b34da6a3ce929d0e0e4736"
        );
    }

    #[test]
    fn later_traceparent_versions_become_version_00() {
        let later = |version: &str, rest: &str| format!("{version}{}{rest}", &GOOD[2..]);
        assert_eq!(sent_on(&later("cc", "")).as_deref(), Some(GOOD));
        assert_eq!(
            sent_on(&later("01", "-what-the-future-will-be-like")).as_deref(),
            Some(GOOD)
        );
        assert_eq!(sent_on(&later("01", "-")).as_deref(), Some(GOOD));
        let flags = GOOD.replace("-01", "-fd").replace("00-4b", "01-4b");
        assert_eq!(
            sent_on(&flags).as_deref(),
            Some(GOOD),
            "unknown flags are not promised"
        );
        for bad in [
            later("01", ".x"),
            later("01", "0"),
            later("ff", ""),
            later("ff", "-x"),
            later("CC", ""),
        ] {
            assert_eq!(sent_on(&bad), None, "{bad}");
        }
    }

    #[test]
    fn invalid_traceparent_counts_as_absent() {
        let zero_trace = GOOD.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32));
        let zero_parent = GOOD.replace("00f067aa0ba902b7", &"0".repeat(16));
        for bad in [
            "",
            "00",
            "00-",
            &GOOD[..54],
            &format!("{GOOD}-"),
            &format!("{GOOD}-what-the-future"),
            &format!("{GOOD}0"),
            &format!(" {GOOD}"),
            &GOOD.to_uppercase(),
            &GOOD.replace('-', "_"),
            &GOOD.replace("4bf9", "4bg9"),
            &GOOD.replace("-01", "-0x"),
            &GOOD.replace("00-4b", "0x-4b"),
            &GOOD.replace("4bf9", "é39"),
            &GOOD.replace("-01", "-é"),
            &zero_trace,
            &zero_parent,
        ] {
            assert_eq!(sent_on(bad), None, "{bad}");
        }
        assert_eq!(TraceContext::from_headers([&[0xff; 55][..]], []), None);
        assert_eq!(read(&[GOOD, GOOD], &[]), None, "there is one");
        assert_eq!(read(&[], &["a=1"]), None);
    }

    #[test]
    fn tracestate_is_passed_whole_or_dropped() {
        let state = |header: &[&str]| {
            read(&[GOOD], header)
                .unwrap()
                .tracestate()
                .map(str::to_owned)
        };
        assert_eq!(
            state(&["rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"]).as_deref(),
            Some("rojo=00f067aa0ba902b7,congo=t61rcWkgMzE")
        );
        assert_eq!(
            state(&["a=1", "", " b=2 "]).as_deref(),
            Some("a=1,b=2"),
            "several headers are one list"
        );
        let longest = format!("a={}", "x".repeat(510));
        assert_eq!(state(&[&longest]), Some(longest.clone()));
        for dropped in [
            &[&*format!("{longest}x")][..],
            &[&longest, "b=2"],
            &["a=ü"],
            &["a=1\r\nb: 2"],
            &["a=1", "\u{7f}"],
            &[""],
            &[],
        ] {
            assert_eq!(state(dropped), None, "{dropped:?}");
        }
    }
}
