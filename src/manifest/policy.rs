//! Completes the policy of a tool from its entry and the manifest's defaults, and checks it.

use super::decode::Findings;
use super::node::Node;
use super::sections::PolicyEntry;
use super::tool::ToolReader;
use crate::call::{CachePolicy, CacheWhen, Concurrency, Effect, Kind, Policy, RetryPolicy};
use crate::expression;

impl ToolReader<'_> {
    /// Completes the policy. The entry takes precedence over the tool's own policy, and that over the manifest's
    /// defaults.
    pub(super) fn apply_policy(
        &mut self,
        kind: Kind,
        policy: &mut Policy,
        entry: &PolicyEntry,
        node: &Node,
        entry_path: &str,
    ) {
        let (plain, defaults) = (Policy::default(), self.defaults);
        policy.effect =
            entry.effect.or(defaults.effect.filter(|_| policy.effect == plain.effect)).unwrap_or(policy.effect);
        let default = defaults.timeout.filter(|_| policy.timeout == plain.timeout);
        policy.timeout = entry.timeout.or(default).map_or(policy.timeout, |time| time.0);
        let default = defaults.deadline.filter(|_| policy.deadline.is_none());
        policy.deadline = entry.deadline.or(default).map(|time| time.0).or(policy.deadline);
        let default = defaults.retry.filter(|_| policy.retry == plain.retry);
        policy.retry = entry.retry.or(default).map_or(policy.retry, |r| RetryPolicy { attempts: r.attempts });
        let default = defaults.limits.clone().filter(|_| policy.limits.is_empty());
        policy.limits = entry.limits.clone().or(default).unwrap_or_else(|| std::mem::take(&mut policy.limits));
        for entry in [defaults.concurrency.filter(|_| policy.concurrency == plain.concurrency), entry.concurrency] {
            let Some(entry) = entry else { continue };
            let now = policy.concurrency;
            policy.concurrency = Concurrency {
                max: entry.max.unwrap_or(now.max),
                queue: entry.queue.unwrap_or(now.queue),
                wait: entry.wait.map_or(now.wait, |time| time.0),
                per_caller: entry.per_caller.or(now.per_caller),
            };
        }
        policy.on_disconnect = entry.on_disconnect.or(policy.on_disconnect).or(defaults.on_disconnect);
        policy.idempotency = entry.idempotency.or(defaults.idempotency).unwrap_or(policy.idempotency);
        policy.repeatable = entry.repeatable.unwrap_or(policy.repeatable || defaults.repeatable.unwrap_or_default());
        policy.strict = entry.strict.or(defaults.strict).unwrap_or(policy.strict);
        policy.enabled = entry.enabled.or(defaults.enabled).unwrap_or(policy.enabled);
        // A native tool decides itself whether its results can be cached: those of a clock cannot.
        let may_default = policy.effect == Effect::Read && kind != Kind::Native;
        if let Some(cache) = entry.cache.as_ref().or(defaults.cache.as_ref().filter(|_| may_default)) {
            let (ttl, scope, context) = (cache.ttl.0, cache.scope, cache.context.clone());
            policy.cache = Some(CachePolicy { ttl, scope, context });
            // A condition of the tool's own applies unless the manifest has another.
            let when =
                cache.when.as_deref().and_then(|text| compile_cache_condition(text, node, entry_path, self.findings));
            policy.cache_when = when.or(policy.cache_when.take());
        }
        policy.capture = entry.capture.or(policy.capture).or(defaults.capture);
        self.check_policy(policy, entry, node, entry_path);
    }

    /// Reports impossible policies as errors, and policies without effect as warnings.
    fn check_policy(&mut self, policy: &Policy, entry: &PolicyEntry, node: &Node, entry_path: &str) {
        let key = |name: &str| vec![name.to_owned()];
        if policy.timeout.is_zero() {
            self.findings.error(node, &key("timeout"), entry_path, "a timeout of zero lets no call run");
        }
        if policy.deadline.is_some_and(|deadline| deadline.is_zero()) {
            self.findings.error(node, &key("deadline"), entry_path, "a deadline of zero lets no call run");
        }
        if policy.concurrency.max == 0 {
            let path = vec!["concurrency".into(), "max".into()];
            self.findings.error(node, &path, entry_path, "at least one call must be able to run");
        }
        if policy.concurrency.per_caller == Some(0) {
            let path = vec!["concurrency".into(), "per_caller".into()];
            self.findings.error(node, &path, entry_path, "at least one call of each caller must be able to run");
        }
        if policy.concurrency.max > tokio::sync::Semaphore::MAX_PERMITS {
            let path = vec!["concurrency".into(), "max".into()];
            self.findings.error(node, &path, entry_path, "more calls than this machine could ever hold");
        }
        if entry.retry.is_some_and(|retry| retry.attempts == 0) {
            let path = vec!["retry".into(), "attempts".into()];
            self.findings.error(node, &path, entry_path, "attempts includes the first attempt: 1 means no retry");
        }
        let write = policy.effect == Effect::Write;
        if entry.retry.is_some_and(|retry| retry.attempts > 1) && write {
            let message = "has no effect: a tool with effect: write is never retried; write effect: read or idempotent";
            self.findings.warning(node, &key("retry"), entry_path, message);
        }
        if entry.cache.is_some() && policy.effect != Effect::Read {
            let message = "has no effect: only results of a tool with effect: read are cached";
            self.findings.warning(node, &key("cache"), entry_path, message);
        }
    }
}

/// Compiles `cache.when` of the entry `node`.
pub(super) fn compile_cache_condition(
    text: &str,
    node: &Node,
    entry_path: &str,
    findings: &mut Findings,
) -> Option<CacheWhen> {
    let path = ["cache".to_owned(), "when".to_owned()];
    if ["${env:", "${file:"].iter().any(|mark| text.contains(mark)) {
        findings.error(node, &path, entry_path, "callers can see this, so a reference to a secret is not allowed here");
        return None;
    }
    expression::compile_predicate(text).map_err(|message| findings.error(node, &path, entry_path, message)).ok()
}
