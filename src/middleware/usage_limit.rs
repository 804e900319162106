//! Calls that count: the row and its units are committed before the tool runs.
//!
//! Below the cache, so that a cached answer is free; above the deadline, so that dropping what runs never drops the
//! settling. It reserves; the record layer settles, since only there the call has ended. Reads without a limit pass.

use std::collections::HashMap;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt;
use tower::{Layer, Service};

use super::CallFuture;
use super::record::row_of;
use crate::call::{
    CallError, Charge, Charged, Clock, Effect, Invocation, Limit, LimitScope, Per, ToolName, ToolResult,
};
use crate::ledger::{Ledger, ReserveError, State};

/// What one tool's calls are charged to.
#[derive(Clone)]
pub struct Tariff {
    tool: ToolName,
    limits: Vec<Limit>,
    caller_limits: Arc<HashMap<Arc<str>, Vec<Limit>>>,
}

impl Tariff {
    /// The tool's own limits, and those that callers have over all tools. Of two limits that count the same thing the
    /// lower one holds.
    pub fn new(tool: &ToolName, limits: &[Limit], caller_limits: Arc<HashMap<Arc<str>, Vec<Limit>>>) -> Self {
        let mut kept: Vec<Limit> = Vec::new();
        for limit in limits {
            match kept.iter_mut().find(|other| (other.per, other.scope) == (limit.per, limit.scope)) {
                Some(other) => other.calls = other.calls.min(limit.calls),
                None => kept.push(limit.clone()),
            }
        }
        Self { tool: tool.clone(), limits: kept, caller_limits }
    }

    /// Whether any call may be charged.
    pub fn is_empty(&self) -> bool {
        self.limits.is_empty() && self.caller_limits.is_empty()
    }

    /// One unit for each limit that counts a call of this caller in this run.
    pub fn charges(&self, caller: &Arc<str>, run: Option<&str>) -> Vec<Charge> {
        let of_tool = self.limits.iter().map(|limit| (self.tool.as_str(), limit));
        let of_caller = self.caller_limits.get(caller).into_iter().flatten().map(|limit| ("", limit));
        let charge = |(tool, limit): (&str, &Limit)| {
            let per_caller = tool.is_empty() || limit.scope == LimitScope::Caller || limit.per == Per::Run;
            Charge {
                tool: tool.to_owned(),
                caller: if per_caller { caller.to_string() } else { String::new() },
                run: if limit.per == Per::Run { run.unwrap_or_default().to_owned() } else { String::new() },
                per: limit.per,
                limit: limit.calls,
                scope: if tool.is_empty() { LimitScope::Caller } else { limit.scope },
            }
        };
        of_tool.chain(of_caller).map(charge).collect()
    }
}

/// See the module.
#[derive(Clone)]
pub struct UsageLimitLayer(Arc<Shared>);

struct Shared {
    ledger: Arc<dyn Ledger>,
    tariff: Arc<Tariff>,
    effect: Effect,
    clock: Clock,
}

impl UsageLimitLayer {
    /// Charges by this tariff; `None` for a tool whose calls are never charged and have no effect.
    pub fn new(ledger: &Arc<dyn Ledger>, tariff: &Arc<Tariff>, effect: Effect, clock: &Clock) -> Option<Self> {
        let counts = effect != Effect::Read || !tariff.is_empty();
        counts.then(|| {
            let (ledger, tariff, clock) = (ledger.clone(), tariff.clone(), clock.clone());
            Self(Arc::new(Shared { ledger, tariff, effect, clock }))
        })
    }
}

impl<S> Layer<S> for UsageLimitLayer {
    type Service = UsageLimit<S>;

    fn layer(&self, inner: S) -> UsageLimit<S> {
        UsageLimit { inner, shared: self.0.clone() }
    }
}

/// See the module.
#[derive(Clone)]
pub struct UsageLimit<S> {
    inner: S,
    shared: Arc<Shared>,
}

impl<S> Service<Invocation> for UsageLimit<S>
where
    S: Service<Invocation, Response = Arc<ToolResult>, Error = CallError> + Clone + Send + 'static,
    S::Future: Send + 'static,
{
    type Response = Arc<ToolResult>;
    type Error = CallError;
    type Future = CallFuture;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, invocation: Invocation) -> CallFuture {
        let charges = self.shared.tariff.charges(&invocation.caller.name, invocation.run_id.as_deref());
        if charges.is_empty() && self.shared.effect == Effect::Read {
            return self.inner.call(invocation).boxed();
        }
        let ready = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, ready);
        let shared = self.shared.clone();
        async move {
            shared.reserve(&invocation, charges).await?;
            if invocation.cancel.is_cancelled() {
                return Err(CallError::Cancelled);
            }
            inner.call(invocation).await
        }
        .boxed()
    }
}

impl Shared {
    async fn reserve(&self, invocation: &Invocation, charges: Vec<Charge>) -> Result<(), CallError> {
        let _whole = invocation.notes.reserving.lock().await;
        let row = row_of(invocation, self.effect, State::Reserved);
        match self.ledger.reserve(row, charges).await {
            Ok(reservation) => {
                let mut notes = invocation.notes.lock();
                (notes.reserved, notes.charged) = (true, reservation.charged);
                Ok(())
            }
            Err(ReserveError::LimitReached(full)) => Err(self.refusal(&full)),
            Err(ReserveError::Ledger(error)) => Err(CallError::LedgerUnavailable(error.to_string())),
        }
    }

    fn refusal(&self, full: &Charged) -> CallError {
        let resets_at = full.charge.per.resets_at(full.window_start);
        let wait = resets_at.map(|at| at.as_millisecond() - self.clock.now().as_millisecond());
        CallError::UsageLimitReached {
            limit: full.charge.limit,
            per: full.charge.per,
            resets_at,
            retry_after: wait.map(|millis| Duration::from_millis(u64::try_from(millis).unwrap_or(0))),
        }
    }
}
