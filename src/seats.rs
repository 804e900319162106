//! Which of the tools that sources bring get the names they want. A name has one tool, and nobody loses one to what another
//! server says that it has now. A server's tool is also left out where its name differs from another tool's in spelling only.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::call::{Kind, Origin, ToolName};
use crate::catalog::{Bench, Catalog, Entry, Unlisted};
use crate::names::{normal, unprefixed};
use crate::tools::Tool;

/// Tools of one source.
pub struct Group {
    /// The source's name.
    pub source: Arc<str>,
    /// What its tools' names begin with.
    pub prefix: String,
    /// The first of these that has a place is served.
    pub choices: Vec<Vec<Tool>>,
    /// Served when none has: each by itself, if its name is free.
    pub otherwise: Vec<Tool>,
    /// A choice has a place only if all of its tools have one. Else one that has none is left out, and the choice is served.
    pub whole: bool,
    /// Names that are its tools' now, and stay so.
    pub has: Vec<ToolName>,
    /// Names that are its tools' by the operator's word.
    pub known: Vec<ToolName>,
    /// What is said of other names of its, when none of the choices is served.
    pub unlisted: Option<Unlisted>,
}

/// What became of a group.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Seated {
    /// Which of its choices is served.
    pub choice: Option<usize>,
    /// Why each one before was not.
    pub refused: Vec<String>,
    /// Tools of the one that is served that have no place.
    pub left_out: Vec<LeftOut>,
}

/// A tool whose name is another's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    /// The name under which it would be served.
    pub tool: ToolName,
    /// Why it is not.
    pub why: String,
}

/// See the module.
pub(crate) struct Seats {
    /// Whose the names in the catalog are that are of sources.
    owners: HashMap<ToolName, Arc<str>>,
    /// Whose a name is before anybody else gets it: who has it now, then who has it by the operator's word.
    claims: HashMap<ToolName, Arc<str>>,
    /// What the names of each server's tools begin with.
    prefixes: Vec<(String, Arc<str>)>,
    /// The one server's tool that keeps its name, of those whose names differ in spelling only: what the operator names goes
    /// before what is served now.
    spelled: HashMap<String, ToolName>,
    /// Registered tools that are served, by all that is taken for their names.
    registered: HashMap<String, ToolName>,
    /// Tools that nobody may call, of these groups: they get what nobody else wants.
    last: Vec<(usize, Arc<str>, Tool)>,
}

impl Seats {
    /// Before any of these groups is seated. `before` is the catalog that is replaced.
    pub(crate) fn new(groups: &[Group], registered: &[Tool], before: &Catalog) -> Self {
        let mut claims = HashMap::new();
        for names in [|group: &Group| group.has.clone(), |group: &Group| group.known.clone()] {
            for group in groups {
                for name in names(group) {
                    claims.entry(name).or_insert_with(|| group.source.clone());
                }
            }
        }
        let is_served = |tool: &&Tool| before.get(tool.name()).is_some_and(|entry| entry.origin == Origin::Registered);
        let names = |tool: &Tool| -> Vec<(String, ToolName)> {
            let own = &tool.definition.name;
            let all = std::iter::once(own).chain(&tool.definition.aliases).map(ToolName::as_str);
            all.flat_map(|name| [Some(name), unprefixed(name)])
                .flatten()
                .map(|name| (normal(name), own.clone()))
                .collect()
        };
        let registered = registered.iter().filter(is_served).flat_map(names).collect();
        let servers = || groups.iter().filter(|group| !group.whole);
        let prefixes = servers().map(|group| (group.prefix.clone(), group.source.clone())).collect();
        // A name that its server does not list any more keeps no other from being served.
        let listed = servers().filter_map(|group| group.choices.first()).flatten();
        let listed: HashSet<&ToolName> = listed.map(|tool| &tool.definition.name).collect();
        let mut spelled = HashMap::new();
        for names in [|group: &Group| group.known.clone(), |group: &Group| group.has.clone()] {
            for name in servers().flat_map(names).filter(|name| listed.contains(name)) {
                spelled.entry(normal(name.as_str())).or_insert(name);
            }
        }
        Self { owners: HashMap::new(), claims, prefixes, spelled, registered, last: Vec::new() }
    }

    /// Gives each group its place, the operator's own before those of which somebody else says what they bring.
    pub(crate) fn seat(&mut self, groups: Vec<Group>, next: &mut Catalog, bench: &Bench<'_>) -> Vec<Seated> {
        let mut order: Vec<(usize, Group)> = groups.into_iter().enumerate().collect();
        order.sort_by_key(|(_, group)| !group.whole);
        let mut seated: Vec<(usize, Seated)> =
            order.into_iter().map(|(at, group)| (at, self.seat_one(at, group, next, bench))).collect();
        seated.sort_by_key(|(at, _)| *at);
        seated.into_iter().map(|(_, seated)| seated).collect()
    }

    /// Puts the first of a group's choices into the catalog that has a place there, else what stands for them. `at`: which
    /// of the groups it is.
    fn seat_one(&mut self, at: usize, group: Group, next: &mut Catalog, bench: &Bench<'_>) -> Seated {
        let Group { source, choices, otherwise, whole, known, unlisted, .. } = group;
        let mut refused = Vec::new();
        for (choice, tools) in choices.into_iter().enumerate() {
            if whole {
                match self.together(tools, &source, next, bench) {
                    Ok(()) => return Seated { choice: Some(choice), refused, left_out: Vec::new() },
                    Err(why) => refused.push(why),
                }
                continue;
            }
            let known: HashSet<ToolName> = known.into_iter().collect();
            let is_last = |tool: &Tool| tool.stopped && !known.contains(&tool.definition.name);
            let (last, tools): (Vec<Tool>, Vec<Tool>) = tools.into_iter().partition(is_last);
            self.last.extend(last.into_iter().map(|tool| (at, source.clone(), tool)));
            let left_out = tools.into_iter().filter_map(|tool| {
                // The operator's word comes before what was registered.
                let yields = !known.contains(&tool.definition.name);
                self.apart(tool, &source, yields, next, bench)
            });
            return Seated { choice: Some(choice), refused, left_out: left_out.collect() };
        }
        unlisted.into_iter().for_each(|source| next.expect(source));
        for tool in otherwise {
            let entry = next.build(tool, bench);
            if let Ok(entry) = entry.inspect_err(|error| tracing::debug!(%error, "nothing stands for a tool"))
                && self.taken(&entry, &source, !whole, next).is_none()
            {
                self.owners.extend(entry.names().map(|name| (name.clone(), source.clone())));
                // Its names are free, and its own were looked at when they were declared.
                let _ = next.insert(entry);
            }
        }
        Seated { choice: None, refused, left_out: Vec::new() }
    }

    /// Tools that nobody may call, where names are left when all others have theirs.
    pub(crate) fn seat_last(&mut self, seated: &mut [Seated], next: &mut Catalog, bench: &Bench<'_>) {
        for (at, source, tool) in std::mem::take(&mut self.last) {
            if let Some(seated) = seated.get_mut(at) {
                seated.left_out.extend(self.apart(tool, &source, true, next, bench));
            }
        }
    }

    /// Puts one tool into the catalog, or says why it has no place. `yields`: to registered tools that are served, too.
    fn apart(
        &mut self,
        tool: Tool,
        source: &Arc<str>,
        yields: bool,
        next: &mut Catalog,
        bench: &Bench<'_>,
    ) -> Option<LeftOut> {
        let name = tool.definition.name.clone();
        let placed = next.build(tool, bench).map_err(|error| error.to_string()).and_then(|entry| {
            let yielded =
                yields.then(|| self.registered_like(&entry).or_else(|| self.of_another(&name, source))).flatten();
            let why = yielded.or_else(|| self.taken(&entry, source, true, next));
            if let Some(why) = why.or_else(|| self.spelled_like(&entry, next)) {
                return Err(format!("{why}; {}", way_out(entry.kind)));
            }
            let names: Vec<ToolName> = entry.names().cloned().collect();
            next.insert(entry).map_err(|error| error.to_string())?;
            self.owners.extend(names.into_iter().map(|name| (name, source.clone())));
            Ok(())
        });
        placed.err().map(|why| LeftOut { why: format!("the tool `{name}` is left out: {why}"), tool: name })
    }

    /// Puts all of these into the catalog, or none and says why.
    fn together(
        &mut self,
        tools: Vec<Tool>,
        source: &Arc<str>,
        catalog: &mut Catalog,
        bench: &Bench<'_>,
    ) -> Result<(), String> {
        let (mut next, mut names) = (catalog.clone(), Vec::new());
        for tool in tools {
            let entry = next.build(tool, bench).map_err(|error| error.to_string())?;
            if let Some(why) = self.taken(&entry, source, false, catalog) {
                return Err(format!("its tool `{}`: {why}; {}", entry.definition.name, way_out(entry.kind)));
            }
            names.extend(entry.names().map(|name| (name.clone(), source.clone())));
            next.insert(entry).map_err(|error| error.to_string())?;
        }
        self.owners.extend(names);
        *catalog = next;
        Ok(())
    }

    /// Whose one of a tool's names is already; `foreign`: or will be.
    fn taken(&self, entry: &Entry, source: &Arc<str>, foreign: bool, next: &Catalog) -> Option<String> {
        entry.names().find_map(|name| {
            let of_source = |source: &Arc<str>| format!("`{name}` is a tool of source `{source}` already");
            if let Some(holder) = next.get(name.as_str()) {
                return Some(match (self.owners.get(name), holder.origin) {
                    (Some(source), _) => of_source(source),
                    (None, Origin::Program) => format!("`{name}` is a tool of the program already"),
                    (None, Origin::Registered) => format!("`{name}` is a tool that is registered already"),
                    (None, Origin::Manifest) => format!("`{name}` is a tool of the manifest already"),
                });
            }
            self.claims.get(name).filter(|owner| foreign && *owner != source).map(of_source)
        })
    }

    /// Which tool has another spelling of one of these names, or will have it.
    fn spelled_like(&self, entry: &Entry, next: &Catalog) -> Option<String> {
        let own = &entry.definition.name;
        entry.names().find_map(|name| {
            let there = next.spelled_like(name, own).map(|other| &other.definition.name);
            let kept =
                || self.spelled.get(&normal(name.as_str())).filter(|kept| entry.names().all(|name| name != *kept));
            let like = there.or_else(kept)?;
            Some(format!("`{name}` is another spelling of `{like}`, so a model's spelling could mean either"))
        })
    }

    /// Another server's prefix is longer and this name begins with it: whoever sees the name takes it for that server's.
    fn of_another(&self, name: &ToolName, source: &Arc<str>) -> Option<String> {
        let own = self.prefixes.iter().find(|(_, server)| server == source).map_or(0, |(prefix, _)| prefix.len());
        let begins = |(prefix, server): &&(String, Arc<str>)| {
            server != source && prefix.len() > own && name.as_str().starts_with(prefix)
        };
        let (_, server) = self.prefixes.iter().find(begins)?;
        Some(format!("`{name}` would be taken for a tool of the server `{server}`"))
    }

    /// Which registered tool this one would be taken for, or take the calls of.
    fn registered_like(&self, entry: &Entry) -> Option<String> {
        entry.names().find_map(|name| {
            let like = self.registered.get(&normal(name.as_str()))?;
            Some(match like == name {
                true => format!("`{name}` is a tool that is registered already"),
                false => format!("`{name}` is another spelling of `{like}`, a tool that is registered already"),
            })
        })
    }
}

/// What helps against a clash of a source's tool with another.
pub(crate) fn way_out(kind: Kind) -> &'static str {
    match kind {
        Kind::Mcp => "give the server another name, or exclude the tool",
        _ => "give the source a prefix",
    }
}
