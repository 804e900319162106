//! Decides which calls are recorded.

use std::sync::Arc;

use opentelemetry::trace::{SpanKind, TraceId};
use opentelemetry_sdk::trace::{
    IdGenerator, RandomIdGenerator, Sampler, SamplingDecision, ShouldSample,
};

use crate::call::{CallSpan, CallTrace, Correlation};

/// The rule of sampling: a part of the traces, by their ids, as all samplers of OpenTelemetry
/// choose it. Services with the same part choose the same traces.
#[derive(Debug, Clone)]
pub(super) struct Sampling {
    root: Sampler,
    /// Whether the decision of the caller applies, if it sent one.
    is_parent_based: bool,
}

impl Sampling {
    /// The caller's decision, or this part of the traces.
    pub(super) fn parent_based_ratio(part: f64) -> Self {
        Self {
            is_parent_based: true,
            ..Self::ratio(part)
        }
    }

    /// This part of the traces, whatever the callers decided.
    pub(super) fn ratio(part: f64) -> Self {
        let root = match part {
            part if part >= 1.0 => Sampler::AlwaysOn,
            part if part <= 0.0 => Sampler::AlwaysOff,
            part => Sampler::TraceIdRatioBased(part),
        };
        Self {
            root,
            is_parent_based: false,
        }
    }

    /// Decides about a call. `correlation` gets its span, or the decision that it has none.
    pub(super) fn trace_call(&self, correlation: &mut Correlation) {
        let caller = correlation.trace.as_deref();
        if self.is_parent_based && caller.is_some_and(|caller| !caller.is_sampled()) {
            return;
        }
        let (trace_id, parent_id) = match caller.map(|caller| caller.ids()) {
            Some((trace_id, parent_id)) => (trace_id, Some(parent_id)),
            None => (new_trace_id(), None),
        };
        let follows_caller = self.is_parent_based && parent_id.is_some();
        correlation.span = if follows_caller || self.chooses(trace_id) {
            let mcp = correlation.mcp.take();
            let span = CallSpan::new(trace_id, new_span_id(), parent_id, mcp);
            CallTrace::Recorded(Arc::new(span))
        } else {
            CallTrace::NotSampled(trace_id)
        };
    }

    fn chooses(&self, trace_id: u128) -> bool {
        let trace_id = TraceId::from(trace_id);
        let result = self
            .root
            .should_sample(None, trace_id, "", &SpanKind::Internal, &[], &[]);
        result.decision == SamplingDecision::RecordAndSample
    }
}

fn new_trace_id() -> u128 {
    u128::from_be_bytes(RandomIdGenerator::default().new_trace_id().to_bytes())
}

fn new_span_id() -> u64 {
    u64::from_be_bytes(RandomIdGenerator::default().new_span_id().to_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::TraceContext;

    fn decide(sampling: &Sampling, caller: Option<&str>) -> CallTrace {
        let caller = caller.map(str::as_bytes);
        let mut correlation = Correlation {
            trace: TraceContext::from_headers(caller, []).map(Arc::new),
            ..Correlation::default()
        };
        sampling.trace_call(&mut correlation);
        correlation.span
    }

    const SAMPLED: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    const NOT_SAMPLED: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";

    #[test]
    fn caller_decides_in_a_parent_based_rule() {
        for part in [0.0, 0.3, 1.0] {
            let rule = Sampling::parent_based_ratio(part);
            let span = decide(&rule, Some(SAMPLED));
            let span = span.recorded().unwrap();
            assert_eq!(span.parent_id, Some(0x00f0_67aa_0ba9_02b7));
            assert_eq!(span.trace_id, 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736);
            let unchanged = decide(&rule, Some(NOT_SAMPLED));
            assert!(matches!(unchanged, CallTrace::Unchanged));
        }
        let all = Sampling::ratio(1.0);
        assert!(decide(&all, Some(NOT_SAMPLED)).recorded().is_some());
        let none = decide(&Sampling::ratio(0.0), Some(SAMPLED));
        assert!(matches!(none, CallTrace::NotSampled(_)));
    }

    #[test]
    fn part_of_the_traces_is_recorded() {
        let rule = Sampling::parent_based_ratio(0.25);
        let recorded = (0..10_000)
            .filter(|_| decide(&rule, None).recorded().is_some())
            .count();
        // Ten standard deviations.
        assert!((2067..2933).contains(&recorded), "{recorded}");
    }
}
