//! Denies calls by rule, and stores calls that a person must approve.
//!
//! This layer is below validation, so a person sees the arguments that the tool would get. It is
//! above the cache: no stored or joined result answers a call that is not approved. The layer
//! `await_decision` waits for the decision, and sends the approved call through the stack again.

use std::sync::Arc;

use jiff::Timestamp;
use serde::Serialize;

use super::request::{ApprovalRequest, publish_approval};
use super::table::{KeptCall, WaitingCalls};
use crate::call::{
    ApprovalPolicy, ApprovalStage, CallError, CallFacts, Clock, DenyRule, Effect, Idempotency,
    Invocation, InvocationId, JsonObject, Policy, StoredCall, ToolName, approval_hash,
};
use crate::ledger::{ApprovalQuery, ApprovalRow, ApprovalState, Ledger};
use crate::secrets::Redactor;
use crate::stack::Outcome;
use crate::stack::interceptor::{Inner, Interceptor, InterceptorLayer};
use crate::stack::validate::ArgumentRules;
use crate::tracking::in_flight::InFlightCalls;

/// Most calls that wait for a person, and most of one caller. Requests that arrive together may
/// exceed that by a few.
const MAX_WAITING: u64 = 10_000;
const MAX_WAITING_OF_CALLER: u64 = 2_000;

/// The layer of tools with `approval` or `deny_when`.
pub struct Approval {
    tool: ToolName,
    definition_hash: String,
    policy: Option<ApprovalPolicy>,
    deny_when: Vec<DenyRule>,
    effect: Effect,
    takes_keys: bool,
    rules: Arc<ArgumentRules>,
    /// Whether arguments must not be stored in full.
    is_memory_only: bool,
    parts: ApprovalParts,
}

/// What the layer needs of the service.
#[derive(Clone)]
pub struct ApprovalParts {
    /// Stores the waiting calls.
    pub ledger: Arc<dyn Ledger>,
    /// The waiting calls of this process.
    pub waiting_calls: WaitingCalls,
    /// Wall-clock time.
    pub clock: Clock,
    /// Removes secrets from what a person sees.
    pub redactor: Arc<Redactor>,
    /// The running calls, and the events of the service.
    pub in_flight_calls: InFlightCalls,
}

impl Approval {
    /// Makes the layer for one tool; `None` if its policy has no rule for it.
    pub fn layer(
        tool: &ToolName,
        policy: &Policy,
        definition_hash: &str,
        rules: &Arc<ArgumentRules>,
        is_memory_only: bool,
        parts: ApprovalParts,
    ) -> Option<InterceptorLayer<Self>> {
        let has_rules = policy.approval.is_some() || !policy.deny_when.is_empty();
        has_rules.then(|| {
            InterceptorLayer::new(Self {
                tool: tool.clone(),
                definition_hash: definition_hash.to_owned(),
                policy: policy.approval.clone(),
                deny_when: policy.deny_when.clone(),
                effect: policy.effect,
                takes_keys: policy.idempotency != Idempotency::Off,
                rules: rules.clone(),
                is_memory_only,
                parts,
            })
        })
    }

    fn now(&self) -> Timestamp {
        self.parts.clock.now()
    }

    /// Refuses a call if too many wait already.
    async fn check_room(&self, caller: &str) -> Result<(), CallError> {
        let counted = self.parts.ledger.count_waiting(caller).await;
        let (own, all) = counted.map_err(|error| CallError::ledger_unavailable(&error))?;
        let of_caller = own >= MAX_WAITING_OF_CALLER;
        if !of_caller && all < MAX_WAITING {
            return Ok(());
        }
        Err(CallError::TooManyWaiting {
            most: if of_caller {
                MAX_WAITING_OF_CALLER
            } else {
                MAX_WAITING
            },
            of_caller,
        })
    }

    /// Stores the call. It does not run now.
    async fn request(
        &self,
        policy: &ApprovalPolicy,
        invocation: &Invocation,
        raw: &JsonObject,
    ) -> Result<(), CallError> {
        self.check_room(&invocation.caller.name).await?;
        let arguments = &*invocation.input.arguments;
        let hash = approval_hash(&self.definition_hash, arguments);
        let shown = self.rules.schema.redact_write_only(arguments).into_owned();
        let shown = self.parts.redactor.redact_arguments(&shown);
        let shown: JsonObject = serde_json::from_str(&shown).unwrap_or_default();
        let context = self
            .parts
            .redactor
            .redact_arguments(&invocation.input.context);
        let context: JsonObject = serde_json::from_str(&context).unwrap_or_default();
        let id = invocation.id;
        let request = ApprovalRequest {
            arguments: (!self.is_memory_only).then(|| shown.clone()),
            // A hash of arguments that must not be stored could be guessed from them.
            context: (!self.is_memory_only && !context.is_empty()).then(|| context.clone()),
            hash: if self.is_memory_only {
                String::new()
            } else {
                hex::encode(hash)
            },
            message: policy.message.clone(),
            run_id: invocation.run.id.clone(),
            tool_use_id: invocation.correlation.tool_use_id.clone(),
            parent: invocation.call_chain.parent.map(|id| id.to_string()),
            effect: self.effect,
        };
        let stored = (!self.is_memory_only).then(|| StoredCall::new(invocation, raw));
        let now = self.now();
        let waiting = &self.parts.waiting_calls;
        let row = ApprovalRow {
            invocation: id,
            tool: self.tool.to_arc(),
            caller: invocation.caller.name.clone(),
            state: ApprovalState::Waiting,
            idempotency_key: invocation.idempotency_key.as_ref().map(|key| key.to_arc()),
            approvers: ApprovalRow::join_approvers(policy.by.iter().map(|name| &**name)),
            request: to_json(&request),
            call: stored.map(|call| to_json(&call)),
            requested_at: now,
            expires_at: now
                .checked_add(policy.expires)
                .unwrap_or(crate::ledger::Row::FOREVER),
            decided_at: None,
            decided_by: None,
            note: None,
            changed_arguments: None,
            runner: waiting.process(&*self.parts.ledger),
            done: false,
            notified: false,
        };
        // Nothing stays in memory if the call is cancelled while it is stored.
        let kept = waiting.forget_on_drop(id);
        if self.is_memory_only {
            let mut stored = Box::new(invocation.clone());
            stored.input.arguments = Arc::new(raw.clone());
            let stored = KeptCall {
                invocation: stored,
                shown,
                shown_context: context,
                hash,
            };
            waiting.keep(id, stored)?;
        }
        let stored = self.parts.ledger.request_approval(row).await;
        match stored {
            Ok(None) => {
                kept.keep();
                tracing::info!(%id, tool = %self.tool, "the call waits for approval");
                let feed = self.parts.in_flight_calls.events();
                publish_approval(feed, &*self.parts.ledger, id).await;
                Ok(())
            }
            Ok(Some(invocation)) => Err(CallError::IdempotencyInProgress { invocation }),
            Err(error) => Err(CallError::ledger_unavailable(&error)),
        }
    }

    /// Refuses a call whose key belongs to a call that waits.
    async fn check_key(&self, invocation: &Invocation) -> Result<(), CallError> {
        let Some(key) = invocation
            .idempotency_key
            .as_ref()
            .filter(|_| self.takes_keys)
        else {
            return Ok(());
        };
        let query = ApprovalQuery {
            tool: Some(self.tool.to_string()),
            visible_to: Some(invocation.caller.name.to_string()),
            idempotency_key: Some(key.to_arc().to_string()),
            limit: 8,
            ..ApprovalQuery::default()
        };
        let held = self.parts.ledger.list_approvals(&query).await;
        let held = held.map_err(|error| CallError::ledger_unavailable(&error))?;
        let is_own = |row: &&ApprovalRow| row.caller == invocation.caller.name;
        let other: Option<InvocationId> = held.iter().find(is_own).map(|row| row.invocation);
        other.map_or(Ok(()), |invocation| {
            Err(CallError::IdempotencyInProgress { invocation })
        })
    }
}

fn to_json(value: &impl Serialize) -> Arc<str> {
    // Serialization cannot fail: all keys are texts.
    serde_json::to_string(value).unwrap_or_default().into()
}

impl Interceptor for Approval {
    async fn call<S: Inner>(self: Arc<Self>, mut inner: S, invocation: Box<Invocation>) -> Outcome {
        let arguments = &*invocation.input.arguments;
        let facts = CallFacts {
            arguments,
            caller: &invocation.caller.name,
            run: invocation.run.id.as_deref(),
        };
        if let Some(rule) = self.deny_when.iter().find(|rule| rule.when.holds(facts)) {
            return Err(CallError::DeniedByRule {
                tool: self.tool.to_string(),
                say: rule.say.to_string(),
            });
        }
        let stage = invocation.approval.clone();
        let (policy, raw) = match (&self.policy, stage.as_deref()) {
            (_, Some(ApprovalStage::Approved(approved))) => {
                if approved.hash != approval_hash(&self.definition_hash, arguments) {
                    return Err(CallError::ApprovalExpired {
                        tool: self.tool.to_string(),
                        reason: "the tool has changed since the approval".into(),
                    });
                }
                return inner.call(invocation).await;
            }
            (Some(policy), Some(ApprovalStage::Requested(raw))) => (policy, raw),
            _ => return inner.call(invocation).await,
        };
        if policy.when.as_ref().is_some_and(|when| !when.holds(facts)) {
            self.check_key(&invocation).await?;
            return inner.call(invocation).await;
        }
        self.request(policy, &invocation, raw).await?;
        invocation.report.set_waits_for_approval();
        Ok(invocation.waiting_answer().result)
    }
}
