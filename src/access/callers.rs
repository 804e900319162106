//! The callers, identified by keys. Only hashes of the keys are kept.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sha2::{Digest, Sha256};

use crate::access::tool_pattern::{ToolPattern, any_denies, any_grants};
use crate::access::toolset::Toolset;
use crate::call::{Caller, CallerCredentials, Limit};
use crate::text::changes::Changes;

/// One caller as declared in the manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallerSettings {
    /// The name of the caller.
    pub name: String,
    /// SHA-256 of its key. Keys are long and random, so a slow hash would only cost time.
    pub key_sha256: [u8; 32],
    /// Tools that it may use: names in any spelling, aliases, patterns with `*`. `None`: all tools.
    pub allow: Option<Vec<String>>,
    /// Tools that it may not use, named in the same ways. It takes precedence over `allow`.
    pub deny: Vec<String>,
    /// The toolset that bounds its tools, besides `allow` and `deny`.
    pub toolset: Option<String>,
    /// Limits on all its calls together.
    pub limits: Vec<Limit>,
    /// May use the operator's routes.
    pub admin: bool,
    /// May read `/metrics`. An admin always may.
    pub metrics: bool,
    /// Its credentials for other services.
    pub credentials: CallerCredentials,
}

/// SHA-256 of a key.
pub fn hash_key(key: &str) -> [u8; 32] {
    Sha256::digest(key.as_bytes()).into()
}

/// All callers. Without any, every client is `anonymous` and trusted. The service then listens on
/// loopback only.
#[derive(Default)]
pub struct Callers {
    all: Vec<CallerEntry>,
    /// By the hash of the key, which the map hashes again with a seed of its own. So the time of a
    /// lookup does not depend on how similar a key is to a valid key.
    by_key: HashMap<[u8; 32], (Arc<Caller>, AtomicBool)>,
    /// Where each caller is in `all`.
    places: Arc<HashMap<Arc<str>, usize>>,
    /// The toolsets by name.
    toolsets: BTreeMap<Arc<str>, Toolset>,
}

#[derive(PartialEq)]
struct CallerEntry {
    caller: Arc<Caller>,
    key_sha256: [u8; 32],
    allow: Option<Vec<ToolPattern>>,
    deny: Vec<ToolPattern>,
    toolset: Option<String>,
    limits: Vec<Limit>,
    metrics: bool,
}

impl Callers {
    /// The callers with these settings.
    pub fn new(settings: Vec<CallerSettings>) -> Self {
        let known = settings.into_iter().map(|one| CallerEntry {
            allow: one.allow.as_deref().map(ToolPattern::parse_list),
            deny: ToolPattern::parse_list(&one.deny),
            toolset: one.toolset,
            caller: Arc::new(Caller {
                credentials: one.credentials,
                ..Caller::new(one.name, one.admin)
            }),
            key_sha256: one.key_sha256,
            limits: one.limits,
            metrics: one.metrics,
        });
        let all: Vec<CallerEntry> = known.collect();
        let named = all.iter().map(|known| known.caller.name.clone());
        Self {
            by_key: all
                .iter()
                .map(|known| {
                    (
                        known.key_sha256,
                        (known.caller.clone(), AtomicBool::new(false)),
                    )
                })
                .collect(),
            places: Arc::new(named.zip(0..).collect()),
            all,
            toolsets: BTreeMap::new(),
        }
    }

    /// The same callers, with these toolsets.
    #[must_use]
    pub fn with_toolsets(self, toolsets: BTreeMap<Arc<str>, Toolset>) -> Self {
        Self { toolsets, ..self }
    }

    /// The names of all toolsets, sorted.
    pub fn toolset_names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.toolsets.keys()
    }

    /// Whether there are no keys. Every client is then trusted.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// All callers.
    pub fn iter(&self) -> impl Iterator<Item = &Caller> {
        self.all.iter().map(|known| &*known.caller)
    }

    /// Whether this caller may read `/metrics`, which contains the names of all tools.
    pub fn can_read_metrics(&self, caller: &Caller) -> bool {
        caller.admin
            || self
                .all
                .iter()
                .any(|known| known.metrics && known.caller.name == caller.name)
    }

    /// The caller with this key. An empty key is never valid. When the key is used for the first time since
    /// the callers were read, the first eight digits of its SHA-256 come with it.
    pub fn authenticate(&self, key: &str) -> Option<(Arc<Caller>, Option<String>)> {
        if key.is_empty() {
            return None;
        }
        let hash = hash_key(key);
        let (caller, is_used) = self.by_key.get(&hash)?;
        let is_first = !is_used.load(Ordering::Relaxed) && !is_used.swap(true, Ordering::Relaxed);
        let fingerprint = is_first.then(|| hex::encode(&hash[..4]));
        Some((caller.clone(), fingerprint))
    }

    /// The callers that may use a tool, and the toolsets that have it. It is computed once, when
    /// the tool is registered. `exists` returns whether a tool has exactly a given name.
    ///
    /// A tool that finds tools is in every toolset, and in every `allow` that is not empty: it only
    /// gives access to what the caller may use.
    pub fn grants_for(&self, tool: GrantedTool<'_>, exists: impl Fn(&str) -> bool) -> Grants {
        let sets = self.toolsets.iter();
        let sets =
            sets.filter(|(_, set)| tool.finds_tools || set.has(tool.names, tool.tags, &exists));
        let toolsets: Vec<Arc<str>> = sets.map(|(name, _)| name.clone()).collect();
        let names = || tool.names.iter().copied();
        let verdict = |known: &CallerEntry| {
            let (allow, toolset) = (known.allow.as_ref(), known.toolset.as_deref());
            let finds = |allow: &[ToolPattern]| tool.finds_tools && !allow.is_empty();
            allow.is_none_or(|allow| finds(allow) || any_grants(allow, names(), &exists))
                && toolset.is_none_or(|own| toolsets.iter().any(|name| **name == *own))
                && !any_denies(&known.deny, names(), &exists)
        };
        Grants {
            places: self.places.clone(),
            may: self.all.iter().map(verdict).collect(),
            toolsets,
        }
    }

    /// The differences from the callers before.
    pub fn changes_since<'a>(&'a self, before: &'a Self) -> Changes {
        let named =
            |callers: &'a Self| callers.all.iter().map(|known| (&*known.caller.name, known));
        Changes::between(named(before), named(self), |one, other| one == other)
    }

    /// Limits on all calls of each caller together.
    pub fn limits(&self) -> HashMap<Arc<str>, Vec<Limit>> {
        let limited = self.all.iter().filter(|known| !known.limits.is_empty());
        limited
            .map(|known| (known.caller.name.clone(), known.limits.clone()))
            .collect()
    }
}

/// A tool, as grants need it.
#[derive(Debug, Clone, Copy, Default)]
pub struct GrantedTool<'a> {
    /// Its name and its aliases.
    pub names: &'a [&'a str],
    /// Its tags.
    pub tags: &'a [String],
    /// Whether it finds or calls other tools by name.
    pub finds_tools: bool,
}

/// Which callers may use one tool, and which toolsets have it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Grants {
    /// Where each caller is in `may`. All tools share it: there may be thousands of both.
    places: Arc<HashMap<Arc<str>, usize>>,
    may: Vec<bool>,
    /// The toolsets that have the tool.
    toolsets: Vec<Arc<str>>,
}

impl Grants {
    /// Whether this caller may use the tool. `anonymous` may: either no keys exist, or the call
    /// comes from the command line. A caller that was removed after its request was accepted may
    /// not.
    pub fn allows(&self, caller: &Caller) -> bool {
        match self.places.get(&caller.name) {
            Some(&place) => self.may.get(place).copied().unwrap_or_default(),
            None => &*caller.name == Caller::ANONYMOUS,
        }
    }

    /// Whether a toolset has the tool.
    pub fn is_in(&self, toolset: &str) -> bool {
        self.toolsets.iter().any(|name| **name == *toolset)
    }

    /// Whether each caller that may use the other tool may also use this tool. Both are of the same
    /// callers.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        let mut both = self.may.iter().zip(&other.may);
        both.all(|(may, other_may)| *may || !other_may)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(name: &str, key: &str, allow: &[&str], deny: &[&str]) -> CallerSettings {
        let texts = |list: &[&str]| list.iter().map(|&text| text.to_owned()).collect();
        CallerSettings {
            name: name.into(),
            key_sha256: hash_key(key),
            allow: (!allow.is_empty()).then(|| texts(allow)),
            deny: texts(deny),
            toolset: None,
            limits: Vec::new(),
            admin: false,
            metrics: false,
            credentials: CallerCredentials::default(),
        }
    }

    fn named<'a>(names: &'a [&'a str]) -> GrantedTool<'a> {
        GrantedTool {
            names,
            ..GrantedTool::default()
        }
    }

    #[test]
    fn keys_identify_callers_and_deny_wins() {
        let callers = Callers::new(vec![
            settings("a", "key-a", &["get_*", "search"], &["get_secret"]),
            settings("b", "key-b", &[], &["delete_*"]),
        ]);
        assert!(callers.authenticate("key-x").is_none());
        let (a, b) = (
            callers.authenticate("key-a").unwrap().0,
            callers.authenticate("key-b").unwrap().0,
        );
        let may = |caller: &Caller, tool: &str| {
            callers.grants_for(named(&[tool]), |_| false).allows(caller)
        };
        assert!(may(&a, "get_weather") && may(&a, "search") && may(&b, "get_secret"));
        let nothing = CallerSettings {
            allow: Some(Vec::new()),
            ..settings("c", "key-c", &[], &[])
        };
        let callers = Callers::new(vec![nothing]);
        assert!(
            !callers
                .grants_for(named(&["search"]), |_| false)
                .allows(&callers.authenticate("key-c").unwrap().0),
            "an empty list allows nothing"
        );
        let gone = Caller::new("gone", true);
        assert!(!may(&gone, "search") && may(&Caller::anonymous(), "search"));
        assert!(!may(&a, "get_secret") && !may(&a, "searching") && !may(&b, "delete_rows"));
    }

    #[test]
    fn grants_consider_aliases() {
        let callers = Callers::new(vec![
            settings("denied", "key-a", &[], &["mailer"]),
            settings(
                "denied-otherwise",
                "key-b",
                &[],
                &["functions.Send-Mail", "x"],
            ),
            settings("denied-by-pattern", "key-c", &[], &["Mail*"]),
            settings("allowed", "key-d", &["Mailer"], &[]),
            settings("allowed-elsewhere", "key-e", &["calculator"], &[]),
        ]);
        let grants = callers.grants_for(named(&["send_mail", "mailer"]), |_| false);
        let may: Vec<&str> = callers
            .iter()
            .filter(|caller| grants.allows(caller))
            .map(|caller| &*caller.name)
            .collect();
        assert_eq!(may, ["allowed"]);
    }

    #[test]
    fn toolset_bounds_its_caller() {
        let texts = |list: &[&str]| list.iter().map(|&text| text.to_owned()).collect();
        let set = |tools, tags, exclude| {
            let (tools, exclude): (Vec<String>, Vec<String>) = (texts(tools), texts(exclude));
            Toolset::new(&tools, texts(tags), &exclude)
        };
        let sets = [
            (
                "support",
                set(&["orders_*"], &["faq"], &["orders_delete", "Secret-FAQ"]),
            ),
            ("empty", Toolset::default()),
        ];
        let bound = CallerSettings {
            toolset: Some("support".into()),
            ..settings("bound", "key-a", &[], &["orders_list"])
        };
        let sets = sets.map(|(name, set)| (Arc::from(name), set));
        let callers = Callers::new(vec![bound, settings("free", "key-b", &[], &[])])
            .with_toolsets(sets.into());
        let caller = callers.authenticate("key-a").unwrap().0;
        for (names, tags, is_in, may) in [
            (&["orders_get"][..], &[][..], true, true),
            (&["orders_list"], &[], true, false),
            (&["orders_delete"], &["faq"], false, false),
            (&["x", "orders_x"], &[], true, true),
            (&["opening_hours"], &["faq"], true, true),
            (&["secret_faq"], &["faq"], false, false),
            (&["weather"], &["other"], false, false),
        ] {
            let tags: Vec<String> = texts(tags);
            let tool = GrantedTool {
                tags: &tags,
                ..named(names)
            };
            let grants = callers.grants_for(tool, |_| false);
            let found = (grants.is_in("support"), grants.allows(&caller));
            assert_eq!(found, (is_in, may), "{names:?}");
            assert!(!grants.is_in("empty") && grants.allows(&Caller::new("free", false)));
        }
    }

    #[test]
    fn limits_and_changes_name_their_callers() {
        let limit = Limit {
            scope: crate::call::LimitScope::Caller,
            per: crate::call::Per::Day,
            calls: 3,
        };
        let limited = CallerSettings {
            limits: vec![limit.clone()],
            ..settings("limited", "key-a", &[], &[])
        };
        let callers = Callers::new(vec![limited, settings("free", "key-b", &[], &[])]);
        assert!(!callers.is_empty() && Callers::default().is_empty());
        assert_eq!(
            callers.limits(),
            HashMap::from([(Arc::from("limited"), vec![limit])])
        );
        let later = Callers::new(vec![
            settings("limited", "key-a", &[], &[]),
            settings("free", "key-b", &[], &[]),
            settings("new", "key-c", &[], &[]),
        ]);
        let changes = later.changes_since(&callers);
        assert_eq!(
            (changes.added, changes.changed, changes.removed),
            (vec!["new".into()], vec!["limited".into()], vec![])
        );
    }

    #[test]
    fn empty_keys_match_no_caller() {
        let callers = Callers::new(vec![settings("a", "", &[], &[])]);
        assert!(callers.authenticate("").is_none());
    }
}
