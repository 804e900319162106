//! Decides which tools of sources get the names that they want.
//!
//! Each name belongs to one tool. A tool that is served does not lose its name because another server starts to list a
//! tool of that name. A server's tool is also left out if its name differs from another tool's name only in spelling.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::call::{Kind, Origin, ToolName};
use crate::catalog::{BuildEnv, Catalog, Entry, Unlisted};
use crate::names::{normal, unprefixed};
use crate::tools::Tool;

/// The tools of one source.
pub struct SourceTools {
    /// The source's name in the manifest.
    pub source: Arc<str>,
    /// The prefix of its tools' names.
    pub prefix: String,
    /// Lists of tools, the most wanted first. The first list that fits into the catalog is served. Of a group that is
    /// not `whole`, the first list always fits.
    pub choices: Vec<Vec<Tool>>,
    /// Tools that are served if no choice fits. Each of them is served if its own name is free.
    pub otherwise: Vec<Tool>,
    /// Whether a choice fits only if all of its tools get their names. Otherwise single tools are left out.
    pub whole: bool,
    /// Names that its tools have now. They keep these names.
    pub has: Vec<ToolName>,
    /// Names that the operator gave to its tools, in the manifest or by approval.
    pub known: Vec<ToolName>,
    /// The answer for its other names, while no choice is served.
    pub unlisted: Option<Unlisted>,
}

/// The outcome for one group.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Placement {
    /// Index of the choice that is served.
    pub choice: Option<usize>,
    /// Why each earlier choice does not fit.
    pub refused: Vec<String>,
    /// Tools of the served choice that did not get their names.
    pub left_out: Vec<RejectedTool>,
}

/// A tool that is not served, because another tool has its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RejectedTool {
    /// The name under which it would be served.
    pub tool: ToolName,
    /// The reason, for the operator.
    pub why: String,
}

/// The names that are taken or claimed while a catalog is built.
pub(crate) struct NameAllocator {
    /// The source of each name in the new catalog that belongs to a source.
    owners: HashMap<ToolName, Arc<str>>,
    /// The source that may use each name first: the source that has it now, else the source to which the operator gave
    /// it.
    claims: HashMap<ToolName, Arc<str>>,
    /// The prefix of each server, with the server's name.
    prefixes: Vec<(String, Arc<str>)>,
    /// For each normal form, the one server's tool that keeps its name. A name that the operator gave takes precedence
    /// over a name that is served now.
    spelled: HashMap<String, ToolName>,
    /// Registered tools that are served, by the normal forms of their names.
    registered: HashMap<String, ToolName>,
    /// Quarantined tools that the operator does not know, with the index of their group. They get only names that
    /// remain free.
    last: Vec<(usize, Arc<str>, Tool)>,
}

impl NameAllocator {
    /// Prepares the placement of these groups. `before` is the catalog that is replaced.
    pub(crate) fn new(groups: &[SourceTools], registered: &[Tool], before: &Catalog) -> Self {
        let mut claims = HashMap::new();
        for names in [|group: &SourceTools| group.has.clone(), |group: &SourceTools| group.known.clone()] {
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
        // A name that its server does not list any more must not block the same name of another tool.
        let listed = servers().filter_map(|group| group.choices.first()).flatten();
        let listed: HashSet<&ToolName> = listed.map(|tool| &tool.definition.name).collect();
        let mut spelled = HashMap::new();
        for names in [|group: &SourceTools| group.known.clone(), |group: &SourceTools| group.has.clone()] {
            for name in servers().flat_map(names).filter(|name| listed.contains(name)) {
                spelled.entry(normal(name.as_str())).or_insert(name);
            }
        }
        Self { owners: HashMap::new(), claims, prefixes, spelled, registered, last: Vec::new() }
    }

    /// Places all groups: the operator's own sources first, then the servers, whose tools another party defines.
    pub(crate) fn seat(
        &mut self,
        groups: Vec<SourceTools>,
        next: &mut Catalog,
        bench: &BuildEnv<'_>,
    ) -> Vec<Placement> {
        let mut order: Vec<(usize, SourceTools)> = groups.into_iter().enumerate().collect();
        order.sort_by_key(|(_, group)| !group.whole);
        let mut seated: Vec<(usize, Placement)> =
            order.into_iter().map(|(at, group)| (at, self.seat_one(at, group, next, bench))).collect();
        seated.sort_by_key(|(at, _)| *at);
        seated.into_iter().map(|(_, seated)| seated).collect()
    }

    /// Adds the first choice of a group that fits to the catalog, else its fallback. `at` is the index of the group.
    fn seat_one(&mut self, at: usize, group: SourceTools, next: &mut Catalog, bench: &BuildEnv<'_>) -> Placement {
        let SourceTools { source, choices, otherwise, whole, known, unlisted, .. } = group;
        let mut refused = Vec::new();
        for (choice, tools) in choices.into_iter().enumerate() {
            if whole {
                match self.together(tools, &source, next, bench) {
                    Ok(()) => return Placement { choice: Some(choice), refused, left_out: Vec::new() },
                    Err(why) => refused.push(why),
                }
                continue;
            }
            // A server: its first choice is always served, without the tools that do not get their names. Quarantined
            // tools that the operator does not know wait in `last`, so that they take no name from a tool that can be
            // called.
            let known: HashSet<ToolName> = known.into_iter().collect();
            let is_last = |tool: &Tool| tool.stopped && !known.contains(&tool.definition.name);
            let (last, tools): (Vec<Tool>, Vec<Tool>) = tools.into_iter().partition(is_last);
            self.last.extend(last.into_iter().map(|tool| (at, source.clone(), tool)));
            let left_out = tools.into_iter().filter_map(|tool| {
                // A name that the operator gave takes precedence over a registered tool. Any other name yields to it.
                let yields = !known.contains(&tool.definition.name);
                self.apart(tool, &source, yields, next, bench)
            });
            return Placement { choice: Some(choice), refused, left_out: left_out.collect() };
        }
        unlisted.into_iter().for_each(|source| next.expect(source));
        for tool in otherwise {
            let entry = next.build(tool, bench);
            if let Ok(entry) = entry.inspect_err(|error| tracing::debug!(%error, "nothing stands for a tool"))
                && self.taken(&entry, &source, !whole, next).is_none()
            {
                self.owners.extend(entry.names().map(|name| (name.clone(), source.clone())));
                // The names are free, and the definition was checked when it was declared. So this does not fail.
                let _ = next.insert(entry);
            }
        }
        Placement { choice: None, refused, left_out: Vec::new() }
    }

    /// Places the quarantined tools of `last`. This runs after all other tools, registered ones included, have their
    /// names.
    pub(crate) fn seat_last(&mut self, seated: &mut [Placement], next: &mut Catalog, bench: &BuildEnv<'_>) {
        for (at, source, tool) in std::mem::take(&mut self.last) {
            if let Some(seated) = seated.get_mut(at) {
                seated.left_out.extend(self.apart(tool, &source, true, next, bench));
            }
        }
    }

    /// Adds one tool to the catalog, or returns why it is left out. `yields`: the tool also yields to a served
    /// registered tool, and to a server with a longer prefix, if its name looks like theirs.
    fn apart(
        &mut self,
        tool: Tool,
        source: &Arc<str>,
        yields: bool,
        next: &mut Catalog,
        bench: &BuildEnv<'_>,
    ) -> Option<RejectedTool> {
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
        placed.err().map(|why| RejectedTool { why: format!("the tool `{name}` is left out: {why}"), tool: name })
    }

    /// Adds all of these tools to the catalog, or none of them and returns the reason.
    fn together(
        &mut self,
        tools: Vec<Tool>,
        source: &Arc<str>,
        catalog: &mut Catalog,
        bench: &BuildEnv<'_>,
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

    /// Returns an error text if one of the names is taken. `foreign`: a claim of another source counts, too.
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

    /// Returns which tool has, or will have, another spelling of one of these names.
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

    /// Refuses a name that starts with another server's longer prefix. A reader would take the tool for that server's.
    fn of_another(&self, name: &ToolName, source: &Arc<str>) -> Option<String> {
        let own = self.prefixes.iter().find(|(_, server)| server == source).map_or(0, |(prefix, _)| prefix.len());
        let begins = |(prefix, server): &&(String, Arc<str>)| {
            server != source && prefix.len() > own && name.as_str().starts_with(prefix)
        };
        let (_, server) = self.prefixes.iter().find(begins)?;
        Some(format!("`{name}` would be taken for a tool of the server `{server}`"))
    }

    /// Returns the registered tool with the same name or another spelling of it. A call could mean either tool.
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

/// Advice for the operator against a clash of a source's tool with another tool.
pub(crate) fn way_out(kind: Kind) -> &'static str {
    match kind {
        Kind::Mcp => "give the server another name, or exclude the tool",
        _ => "give the source a prefix",
    }
}
