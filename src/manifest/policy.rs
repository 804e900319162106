//! The policies of tools: from their entries, the defaults, and patterns of names; and the checks
//! of a policy.

use std::collections::BTreeMap;

use serde_json::Value;
use wildmatch::WildMatch;

use super::decode::Entry;
use super::inputs::Inputs;
use super::references::{PUBLIC_MESSAGE, SECRET_MARKS};
use super::sections::{ApprovalEntry, ConcurrencyEntry, PolicyEntry, Retry};
use crate::access::tool_pattern::is_glob;
use crate::call::{
    ApprovalPolicy, CachePolicy, CacheScope, CacheWhen, CallCondition, Concurrency, DenyRule,
    Effect, Kind, Policy, RetryPolicy,
};
use crate::expression;
use crate::schema::local_target;
use crate::text::suggest;

/// The maximum number of references that are followed in a chain.
const MAX_REFERENCE_CHAIN: usize = 8;

/// The policies of the tools of a source. Precedence: the exact name, then the last pattern that
/// matches, then the source's `defaults`, then the manifest's.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PolicyRules {
    /// The entries of single tools, by the source's own name of the tool.
    pub(super) exact: BTreeMap<String, PolicyEntry>,
    /// The entries of patterns, in the order of the file.
    pub(super) patterns: Vec<PolicyPattern>,
    /// `defaults` of the source.
    pub(super) source: PolicyEntry,
    /// `defaults` of the manifest.
    pub(super) manifest: PolicyEntry,
}

/// The entry of a pattern of names.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct PolicyPattern {
    pub(super) text: String,
    names: WildMatch,
    pub(super) entry: PolicyEntry,
}

impl PolicyPattern {
    /// `names` is the pattern of names, which may differ from the written text.
    pub(super) fn new(text: &str, names: &str, entry: PolicyEntry) -> Self {
        Self {
            text: text.to_owned(),
            names: WildMatch::new(names),
            entry,
        }
    }
}

impl PolicyRules {
    /// The policy of a tool. `derived_effect` is the effect that the source itself knows.
    pub fn policy_for(&self, own_name: &str, kind: Kind, derived_effect: Option<Effect>) -> Policy {
        let mut entry = self.entry_for(own_name);
        // The effect decides which defaults apply, so it has to be known first.
        entry.effect = entry.effect.or(self.manifest.effect).or(derived_effect);
        let mut policy = Policy::default();
        // A condition that does not compile was reported when the manifest was read.
        complete_policy(kind, &mut policy, &entry, &self.manifest, |text| {
            expression::compile_predicate(text).ok()
        });
        policy
    }

    /// The entry of a tool: its own, completed key by key by the matching patterns, the last one
    /// first, and by the source's defaults. So a pattern never drops an approval or a limit of
    /// another one.
    pub(super) fn entry_for(&self, own_name: &str) -> PolicyEntry {
        let own = self.exact.get(own_name).cloned().unwrap_or_default();
        let patterns = self.patterns.iter().rev();
        patterns
            .filter(|pattern| pattern.names.matches(own_name))
            .fold(own, |entry, pattern| entry.or(Some(&pattern.entry)))
            .or(Some(&self.source))
    }

    /// Warnings about entries and conditions without effect: keys, and messages. `tools` are the
    /// names and input schemas of the source's tools.
    pub fn idle_entries(
        &self,
        tools: &[(&str, &Value)],
        left_out: &[String],
    ) -> Vec<(Vec<String>, String)> {
        let named = self.exact.iter();
        let named = named.map(|(name, entry)| (name, WildMatch::new(name), entry));
        let patterns = self.patterns.iter();
        let patterns =
            patterns.map(|pattern| (&pattern.text, pattern.names.clone(), &pattern.entry));
        let mut idle = Vec::new();
        for (text, names, entry) in named.chain(patterns) {
            let listed = tools.iter().filter(|(name, _)| names.matches(name));
            let schemas: Vec<&Value> = listed.map(|(_, schema)| *schema).collect();
            let is_left_out = left_out.iter().any(|name| names.matches(name));
            let what = match (is_left_out, is_glob(text)) {
                _ if !schemas.is_empty() => {
                    let unknown = unknown_arguments(entry, &schemas).into_iter();
                    idle.extend(unknown.map(|(keys, why)| (below(&["tools", text], keys), why)));
                    continue;
                }
                (true, false) => "the source's tool is left out, so this entry",
                (true, true) => "this pattern matches only tools that are left out, so it",
                (false, true) => "this pattern matches no tool of the source, so it",
                // A name that the source does not have is no warning.
                (false, false) => continue,
            };
            let message = format!("{what} has no effect");
            idle.push((below(&["tools", text], Vec::new()), message));
        }
        let schemas: Vec<&Value> = tools.iter().map(|(_, schema)| *schema).collect();
        let unknown = unknown_arguments(&self.source, &schemas).into_iter();
        idle.extend(unknown.map(|(keys, why)| (below(&["defaults"], keys), why)));
        idle
    }
}

fn below(keys: &[&str], rest: Vec<String>) -> Vec<String> {
    let keys = keys.iter().map(|key| (*key).to_owned());
    keys.chain(rest).collect()
}

impl PolicyEntry {
    /// This entry, completed by another one.
    pub(super) fn or(self, other: Option<&Self>) -> Self {
        let Some(other) = other else { return self };
        let concurrency = match (self.concurrency, other.concurrency) {
            (Some(own), Some(other)) => Some(ConcurrencyEntry {
                max: own.max.or(other.max),
                queue: own.queue.or(other.queue),
                wait: own.wait.or(other.wait),
                per_caller: own.per_caller.or(other.per_caller),
            }),
            (own, other) => own.or(other),
        };
        Self {
            effect: self.effect.or(other.effect),
            timeout: self.timeout.or(other.timeout),
            deadline: self.deadline.or(other.deadline),
            retry: self.retry.or(other.retry),
            limits: self.limits.or_else(|| other.limits.clone()),
            cache: self.cache.or_else(|| other.cache.clone()),
            approval: self.approval.or_else(|| other.approval.clone()),
            deny_when: self.deny_when.or_else(|| other.deny_when.clone()),
            concurrency,
            on_disconnect: self.on_disconnect.or(other.on_disconnect),
            idempotency: self.idempotency.or(other.idempotency),
            repeatable: self.repeatable.or(other.repeatable),
            strict: self.strict.or(other.strict),
            output_check: self.output_check.or(other.output_check),
            enabled: self.enabled.or(other.enabled),
            capture: self.capture.or(other.capture),
        }
    }
}

/// Completes the policy, and checks the entry. The entry takes precedence over the tool's own
/// policy, and that over the manifest's defaults. `is_effect_final` is false if another entry or the
/// source may decide the effect. Then it is unknown here which keys have no effect.
pub(super) fn apply_policy(
    kind: Kind,
    policy: &mut Policy,
    settings: &PolicyEntry,
    inputs: &Inputs<'_>,
    is_effect_final: bool,
    entry: Entry<'_>,
) {
    complete_policy(kind, policy, settings, inputs.defaults, |text| {
        compile_cache_condition(text, entry)
    });
    check_policy(policy, settings, entry);
    check_call_conditions(settings, inputs, entry);
    if is_effect_final || settings.effect.is_some() {
        warn_ineffective_keys(policy, settings, entry);
    }
}

/// Reports impossible policies.
fn check_policy(policy: &Policy, settings: &PolicyEntry, entry: Entry<'_>) {
    let concurrency = policy.concurrency;
    if policy.timeout.is_zero() {
        entry.error(&["timeout"], "a timeout of zero lets no call run");
    }
    if policy.deadline.is_some_and(|deadline| deadline.is_zero()) {
        entry.error(&["deadline"], "a deadline of zero lets no call run");
    }
    if concurrency.max == 0 {
        entry.error(
            &["concurrency", "max"],
            "at least one call must be able to run",
        );
    }
    if concurrency.per_caller == Some(0) {
        let message = "at least one call of each caller must be able to run";
        entry.error(&["concurrency", "per_caller"], message);
    }
    if concurrency.max > tokio::sync::Semaphore::MAX_PERMITS {
        let message = "more calls than this machine could ever hold";
        entry.error(&["concurrency", "max"], message);
    }
    if settings.retry.is_some_and(|retry| retry.attempts == 0) {
        let message = "attempts includes the first attempt: 1 means no retry";
        entry.error(&["retry", "attempts"], message);
    }
}

/// Warns of keys that the effect makes useless.
fn warn_ineffective_keys(policy: &Policy, settings: &PolicyEntry, entry: Entry<'_>) {
    let retries = settings.retry.is_some_and(|retry| retry.attempts > 1);
    if retries && policy.effect == Effect::Write {
        let message = "has no effect: a tool with effect: write is never retried; write effect: read or idempotent";
        entry.warning(&["retry"], message);
    }
    if settings.cache.is_some() && policy.effect != Effect::Read {
        let message = "has no effect: only results of a tool with effect: read are cached";
        entry.warning(&["cache"], message);
    }
}

/// Reports a policy that shares results among callers, though each call sends its caller's own
/// credentials.
pub(super) fn refuse_shared_cache(settings: &PolicyEntry, entry: Entry<'_>) {
    let cache = settings.cache.as_ref();
    if cache.is_some_and(|cache| cache.scope == CacheScope::Shared) {
        let message = "each call sends its caller's own credentials, so its result is for this caller only: write \
                       `scope: caller`, or leave the key out";
        entry.error(&["cache", "scope"], message);
    }
}

/// Completes a policy. The entry takes precedence over the policy so far, and that over the
/// defaults.
fn complete_policy(
    kind: Kind,
    policy: &mut Policy,
    entry: &PolicyEntry,
    defaults: &PolicyEntry,
    compile_when: impl FnOnce(&str) -> Option<CacheWhen>,
) {
    let plain = Policy::default();
    let mut defaults = defaults.clone();
    // What the tool itself decides is no matter of the defaults.
    defaults.effect.take_if(|_| policy.effect != plain.effect);
    defaults
        .timeout
        .take_if(|_| policy.timeout != plain.timeout);
    defaults.deadline.take_if(|_| policy.deadline.is_some());
    defaults.retry.take_if(|_| policy.retry != plain.retry);
    defaults.limits.take_if(|_| !policy.limits.is_empty());
    defaults.repeatable.take_if(|_| policy.repeatable);
    let is_own = policy.concurrency != plain.concurrency;
    defaults.concurrency.take_if(|_| is_own);
    defaults.on_disconnect = policy.on_disconnect.or(defaults.on_disconnect);
    defaults.output_check = policy.output_check.or(defaults.output_check);
    defaults.capture = policy.capture.or(defaults.capture);
    let effect = entry.effect.or(defaults.effect).unwrap_or(policy.effect);
    // A native tool decides itself whether its results can be cached: those of a clock cannot.
    let may_default = effect == Effect::Read && kind != Kind::Native;
    defaults.cache.take_if(|_| !may_default);
    let settings = entry.clone().or(Some(&defaults));

    policy.effect = effect;
    policy.timeout = settings.timeout.map_or(policy.timeout, |time| time.0);
    policy.deadline = settings.deadline.map(|time| time.0).or(policy.deadline);
    if let Some(Retry { attempts }) = settings.retry {
        policy.retry = RetryPolicy { attempts };
    }
    if let Some(limits) = settings.limits {
        policy.limits = limits;
    }
    if let Some(entry) = settings.concurrency {
        let now = policy.concurrency;
        policy.concurrency = Concurrency {
            max: entry.max.unwrap_or(now.max),
            queue: entry.queue.unwrap_or(now.queue),
            wait: entry.wait.map_or(now.wait, |time| time.0),
            per_caller: entry.per_caller.or(now.per_caller),
        };
    }
    if let Some(approval) = &settings.approval {
        policy.approval = approval_policy(approval);
    }
    if let Some(rules) = &settings.deny_when {
        let rule = |rule: &super::sections::DenyEntry| DenyRule {
            when: call_condition(&rule.when),
            say: rule.say.as_str().into(),
        };
        policy.deny_when = rules.iter().map(rule).collect();
    }
    policy.on_disconnect = settings.on_disconnect;
    policy.idempotency = settings.idempotency.unwrap_or(policy.idempotency);
    policy.repeatable = settings.repeatable.unwrap_or(policy.repeatable);
    policy.strict = settings.strict.unwrap_or(policy.strict);
    policy.output_check = settings.output_check;
    policy.enabled = settings.enabled.unwrap_or(policy.enabled);
    policy.capture = settings.capture;
    if let Some(cache) = settings.cache {
        policy.cache = Some(CachePolicy {
            ttl: cache.ttl.0,
            scope: cache.scope,
            context: cache.context,
        });
        // A condition of the tool's own applies unless the manifest has another.
        let when = cache.when.as_deref().and_then(compile_when);
        policy.cache_when = when.or(policy.cache_when.take());
    }
}

fn approval_policy(entry: &ApprovalEntry) -> Option<ApprovalPolicy> {
    let plain = ApprovalPolicy::default();
    entry.is_on.then(|| ApprovalPolicy {
        when: entry.when.as_deref().map(call_condition),
        by: entry.by.iter().map(|name| name.as_str().into()).collect(),
        wait: entry.wait.map_or(plain.wait, |time| time.0),
        expires: entry.expires.map_or(plain.expires, |time| time.0),
        message: entry.message.as_deref().map(Into::into),
    })
}

/// A condition on calls. An invalid text is reported when the manifest is read; until then, and for
/// a source that was checked earlier, it holds for every call.
fn call_condition(text: &str) -> CallCondition {
    expression::compile_call_condition(text)
        .unwrap_or_else(|message| CallCondition::new(text, move |_| Err(message.clone())))
}

/// Reports conditions of `approval` and `deny_when` that cannot be used, and unknown callers in them
/// and in `approval.by`.
pub(super) fn check_call_conditions(settings: &PolicyEntry, inputs: &Inputs<'_>, entry: Entry<'_>) {
    // The settings of a source's tool include those of patterns, which are reported there.
    let is_own = |key: &str| entry.get(key).is_some();
    let check_caller = |keys: &[&str], name: &str| {
        if let Some(message) = unknown_caller(name, inputs) {
            entry.warning(keys, message);
        }
    };
    for (keys, text) in call_conditions(settings).filter(|(keys, _)| is_own(&keys[0])) {
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        let compiled = without_secrets(text)
            .and_then(|text| expression::compile_call_condition(text).map(drop));
        if let Err(message) = compiled {
            entry.error(&keys, message);
        }
        for name in expression::condition_names(text).callers {
            check_caller(&keys, &name);
        }
    }
    let approval = settings.approval.as_ref().filter(|_| is_own("approval"));
    for (at, name) in approval.iter().flat_map(|one| &one.by).enumerate() {
        check_caller(&["approval", "by", &at.to_string()], name);
    }
    let expires = approval.and_then(|approval| approval.expires);
    if expires.is_some_and(|expires| expires.0.is_zero()) {
        let message = "with an expiry of zero, no call can be approved";
        entry.error(&["approval", "expires"], message);
    }
}

/// Why there is no such caller.
fn unknown_caller(name: &str, inputs: &Inputs<'_>) -> Option<String> {
    let known: Vec<&str> = inputs.callers.iter().map(|one| &*one.name).collect();
    let there = match known.is_empty() {
        true => "without `callers:`, every caller is `anonymous`".to_owned(),
        false => format!("there are {}", known.join(", ")),
    };
    let is_known = known.contains(&name) || name == "anonymous";
    (!is_known).then(|| format!("there is no caller `{name}`; {there}"))
}

/// The conditions on calls, with their keys.
fn call_conditions(settings: &PolicyEntry) -> impl Iterator<Item = (Vec<String>, &str)> {
    let approval = settings.approval.as_ref();
    let when = approval.and_then(|approval| approval.when.as_deref());
    let rules = settings.deny_when.iter().flatten().enumerate();
    let rules = rules.map(|(at, rule)| {
        let keys = ["deny_when", &at.to_string(), "when"].map(str::to_owned);
        (keys.to_vec(), rule.when.as_str())
    });
    when.map(|when| (["approval", "when"].map(str::to_owned).to_vec(), when))
        .into_iter()
        .chain(rules)
}

/// The arguments that conditions name and that none of the tools ever gets: keys, and messages. An
/// object that allows further properties lacks none.
pub(super) fn unknown_arguments(
    settings: &PolicyEntry,
    input_schemas: &[&Value],
) -> Vec<(Vec<String>, String)> {
    let what = match input_schemas.len() {
        1 => "the tool has no",
        _ => "none of the tools has a",
    };
    let mut unknown = Vec::new();
    for (keys, text) in call_conditions(settings) {
        for path in expression::condition_names(text).arguments {
            let missing = input_schemas.iter();
            let missing: Option<Vec<_>> = missing
                .map(|schema| missing_argument(schema, &path))
                .collect();
            let deepest = missing
                .into_iter()
                .flatten()
                .max_by_key(|(depth, _)| *depth);
            let Some((depth, known)) = deepest else {
                continue;
            };
            let full = |name: &str| [&path[..depth], &[name.to_owned()]].concat().join(".");
            let name = path[depth].as_str();
            let near = suggest::closest_name(name, known, suggest::MIN_HINT_RATIO);
            let near = near.map(|near| format!(", did you mean `{}`?", full(near)));
            let near = near.unwrap_or_default();
            let finding = (
                keys.clone(),
                format!("{what} parameter `{}`{near}", full(name)),
            );
            if !unknown.contains(&finding) {
                unknown.push(finding);
            }
        }
    }
    unknown
}

/// The position in the path of the first name that a closed object or a scalar lacks, and the names
/// that the object has.
fn missing_argument<'s>(root: &'s Value, path: &[String]) -> Option<(usize, Vec<&'s str>)> {
    let mut schema = root;
    for (depth, name) in path.iter().enumerate() {
        let targets = std::iter::successors(Some(schema), |schema| target(root, schema));
        schema = targets.take(MAX_REFERENCE_CHAIN).last().unwrap_or(schema);
        let properties = schema.get("properties").and_then(Value::as_object);
        let Some(property) = properties.and_then(|map| map.get(name)) else {
            let is_scalar = schema.get("type").and_then(Value::as_str);
            let is_scalar = is_scalar.is_some_and(|of| !matches!(of, "object" | "array"));
            let is_closed = is_scalar
                || schema.get("additionalProperties") == Some(&Value::Bool(false))
                    && schema.get("patternProperties").is_none();
            let known = properties.into_iter().flat_map(|map| map.keys());
            return is_closed.then(|| (depth, known.map(String::as_str).collect()));
        };
        schema = property;
    }
    None
}

/// The schema in place of one that only leads on: the target of a reference, or the one form
/// beside `null`.
fn target<'s>(root: &'s Value, schema: &'s Value) -> Option<&'s Value> {
    let forms = schema.get("anyOf").and_then(Value::as_array);
    let forms = forms.into_iter().flatten();
    let mut forms = forms.filter(|form| form.get("type").is_none_or(|of| of != "null"));
    let only = forms.next().filter(|_| forms.next().is_none());
    local_target(root, schema).or(only)
}

/// Compiles `cache.when` of the entry.
pub(super) fn compile_cache_condition(text: &str, entry: Entry<'_>) -> Option<CacheWhen> {
    without_secrets(text)
        .and_then(expression::compile_predicate)
        .map_err(|message| entry.error(&["cache", "when"], message))
        .ok()
}

/// The text of a condition, if it refers to no secret: callers can see it.
fn without_secrets(text: &str) -> Result<&str, String> {
    match SECRET_MARKS.iter().any(|mark| text.contains(mark)) {
        true => Err(PUBLIC_MESSAGE.into()),
        false => Ok(text),
    }
}
