//! Decides the state of a call that has ended, and makes its answer and its row.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use super::Outcome;
use crate::call::{
    Answer, CacheStatus, CallError, Charged, DigestKey, ERROR_RESULT_SUMMARY, Effect, Failure,
    Fingerprint, Invocation, InvocationId, KEY_RETENTION, Meta, ModelUsage, error_text_beginning,
};
use crate::ledger::{Row, State};
use crate::schema::Schema;
use crate::secrets::Redactor;
use crate::text::sanitize;

/// Which part of a call's arguments is recorded.
pub struct CaptureRules {
    /// Knows which arguments are `writeOnly` and must not be recorded.
    pub schema: Arc<Schema>,
    /// Key of the digests that replace arguments and results. `None` if the tool records them in
    /// full.
    pub digest_key: Option<DigestKey>,
    /// Takes secrets of the manifest out of arguments.
    pub redactor: Arc<Redactor>,
}

/// What decides the end of a tool's calls.
pub(super) struct EndRules {
    pub(super) effect: Effect,
    pub(super) capture_rules: CaptureRules,
}

/// A call at its end.
pub(super) struct EndedCall {
    pub(super) row: Arc<Row>,
    pub(super) answer: Result<Answer, CallError>,
    /// What an agent used.
    pub(super) model: Option<ModelUsage>,
    /// Whether the call has a row already, which this one ends.
    pub(super) reserved: bool,
    /// Units to give back, because no code of the tool ran.
    pub(super) refunds: Vec<Charged>,
    pub(super) tool_ran: bool,
}

impl EndRules {
    /// Makes the answer and the row of a call.
    pub(super) fn describe(
        &self,
        invocation: &Invocation,
        mut outcome: Outcome,
        attempts: u32,
        duration: Duration,
        fingerprint: Option<Fingerprint>,
    ) -> EndedCall {
        // `run` has cleaned the output of the tool. A refusal may quote what the caller sent.
        if let Err(error) = &mut outcome {
            self.capture_rules.redactor.redact_error(error);
        }
        let charge = mem::take(&mut *invocation.report.charge.lock());
        let (mut meta, origin) = self.take_meta(invocation, attempts, duration, &charge.charged);
        if let (Ok(result), CacheStatus::Hit | CacheStatus::Joined) = (&outcome, meta.cache) {
            meta.warnings.extend(result.warnings.iter().cloned());
        }
        let state = match final_state(&outcome, self.effect, attempts) {
            // The last attempt did not start the tool, but an earlier one has run it.
            State::Refused if invocation.report.attempt.lock().has_run() => State::Failed,
            state => state,
        };
        // Without an attempt, or after a refusal, no code of the tool ran.
        let tool_ran = attempts > 0 && state != State::Refused;
        // With several attempts, an earlier attempt may have had more effect than the last one.
        let not_delivered =
            attempts == 1 && outcome.as_ref().is_err_and(CallError::is_not_delivered);
        let keeps_key = !not_delivered
            && charge.reserved
            && fingerprint.is_some()
            && tool_ran
            && claims_key(state, self.effect);
        let detail = self.detail_of(&outcome);
        let outcome = match outcome {
            Err(error) if keeps_key => Err(self.stored_failure(invocation.id, &error)),
            outcome => outcome,
        };
        // A repetition with the same key is answered from the row of this call. So a reserved row
        // must hold the result itself, not a reference to the call that the cached result comes
        // from.
        let origin = origin.filter(|_| !charge.reserved);
        let mut row = self.build_row(invocation, &outcome, state, &meta, origin);
        row.detail = detail.map(Into::into);
        if charge.reserved {
            let end = invocation
                .timing
                .started_at
                .checked_add(duration.saturating_add(KEY_RETENTION))
                .unwrap_or(Row::FOREVER);
            row = row.with_claim(fingerprint.as_ref(), keeps_key.then_some(end));
        }
        EndedCall {
            row: Arc::new(row),
            model: meta.model,
            reserved: charge.reserved,
            refunds: if tool_ran { Vec::new() } else { charge.charged },
            tool_ran,
            answer: outcome.map(|result| Answer {
                invocation: invocation.id,
                tool_use_id: invocation.correlation.tool_use_id.clone(),
                result,
                meta,
                replayed: false,
                waiting: false,
            }),
        }
    }

    /// Takes the metadata of the answer out of the report, and the call from which its result comes.
    fn take_meta(
        &self,
        invocation: &Invocation,
        attempts: u32,
        duration: Duration,
        charged: &[Charged],
    ) -> (Meta, Option<InvocationId>) {
        let cache = mem::take(&mut *invocation.report.cache.lock());
        let tool = mem::take(&mut *invocation.report.tool.lock());
        let fitting = mem::take(&mut *invocation.report.fitting.lock());
        let mut warnings = mem::take(&mut invocation.report.entry.lock().warnings);
        warnings.extend(fitting.warnings);
        warnings.extend(tool.warnings);
        // A warning may quote what the caller sent.
        for warning in &mut warnings {
            sanitize::clean_in_place(warning);
            self.capture_rules.redactor.redact_string(warning);
        }
        let meta = Meta {
            cache: cache.status,
            attempts,
            duration_ms: (duration.as_secs_f64() * 1e6).round() / 1e3,
            usage: charged.iter().map(Charged::to_usage).collect(),
            coercions: fitting.coercions,
            result_digest: None,
            model: tool.model,
            overflow: None,
            warnings,
        };
        (meta, cache.origin.or(tool.origin))
    }

    /// Why the call failed, in one line.
    fn detail_of(&self, outcome: &Outcome) -> Option<String> {
        match outcome {
            Ok(result) if result.is_error => Some(match self.capture_rules.digest_key {
                Some(_) => ERROR_RESULT_SUMMARY.to_owned(),
                None => error_text_beginning(&result.as_text()),
            }),
            Ok(_) => None,
            Err(error) => Some(error.summary()),
        }
    }

    /// A failure that is stored under the call's idempotency key. It is not retryable, because each
    /// call with that key gets the same failure.
    fn stored_failure(&self, invocation: InvocationId, error: &CallError) -> CallError {
        let failure = Failure {
            retryable: false,
            retry_after_ms: None,
            ..Failure::from_error(error, self.effect)
        };
        CallError::StoredFailure {
            failure: Box::new(failure),
            invocation,
            replayed: false,
        }
    }

    fn build_row(
        &self,
        invocation: &Invocation,
        outcome: &Outcome,
        state: State,
        meta: &Meta,
        origin: Option<InvocationId>,
    ) -> Row {
        let mut row = Row::from_invocation(invocation, self.effect, state);
        row.cache = meta.cache;
        row.attempts = meta.attempts;
        row.duration_us = Some((meta.duration_ms * 1e3) as i64);
        // The metadata holds coercions and warnings, which may quote arguments that
        // `capture: digest` keeps out of the record. For a refusal, they may be as long as the
        // arguments.
        let keeps_meta = self.capture_rules.digest_key.is_none() && state != State::Refused;
        row.meta = keeps_meta.then(|| to_json_text(meta)).flatten();
        match outcome {
            Ok(_) if origin.is_some() => row.origin = origin,
            Ok(result) => {
                row.result = match &self.capture_rules.digest_key {
                    None => to_json_text(&**result),
                    Some(key) => Some(key.digest(&**result).to_column().into()),
                };
            }
            Err(error) => {
                let failure = Failure::from_error(error, self.effect);
                let failure = self
                    .capture_rules
                    .digest_key
                    .iter()
                    .fold(failure, |failure, key| failure.with_digest(key));
                row.kind = Some(failure.kind);
                if error
                    .related_invocation()
                    .is_some_and(|other| other != invocation.id)
                {
                    // The error names another call that holds the key. A search for the key must
                    // find that call, not this row.
                    row.idempotency_key = None;
                }
                let failure = if state == State::Refused {
                    failure.shortened()
                } else {
                    failure
                };
                row.result = to_json_text(&failure);
            }
        }
        row
    }
}

fn to_json_text(value: &impl serde::Serialize) -> Option<Arc<str>> {
    serde_json::to_string(value).ok().map(Into::into)
}

/// Whether a call with at least one attempt keeps its idempotency key at its end. A cancelled call
/// that may be repeated does not keep it: the next call with the key then runs, instead of getting
/// the cancellation again.
pub(super) fn claims_key(state: State, effect: Effect) -> bool {
    match state {
        State::Refused | State::Waiting | State::Reserved | State::Running => false,
        State::Cancelled => !effect.may_repeat(),
        State::Succeeded | State::Failed | State::TimedOut | State::Unknown => true,
    }
}

/// The state of the call at its end. A write that had an attempt may have had an effect if it was
/// then cancelled, timed out, or lost its process. Its state is `Unknown`.
pub(super) fn final_state(outcome: &Outcome, effect: Effect, attempts: u32) -> State {
    let in_doubt = effect == Effect::Write && attempts > 0;
    match outcome {
        Ok(result) if result.is_error => State::Failed,
        Ok(_) => State::Succeeded,
        Err(error) if error.is_refusal() => State::Refused,
        Err(CallError::DeadlineExceeded { .. } | CallError::AttemptTimedOut { .. }) if in_doubt => {
            State::Unknown
        }
        Err(CallError::DeadlineExceeded { .. } | CallError::AttemptTimedOut { .. }) => {
            State::TimedOut
        }
        Err(CallError::Cancelled { .. } | CallError::ToolUnavailable { started: true, .. })
            if in_doubt =>
        {
            State::Unknown
        }
        Err(CallError::Cancelled { .. }) => State::Cancelled,
        Err(_) => State::Failed,
    }
}
