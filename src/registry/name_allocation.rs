//! Decides which tools of sources get the names that they want.
//!
//! Each name belongs to one tool. A tool that is served does not lose its name because another
//! server starts to list a tool of that name. A server's tool is also left out if its name differs
//! from another tool's name only in spelling.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::call::{Kind, Origin, ToolName};
use crate::catalog::{BuildEnv, Catalog, Entry, UnlistedSource};
use crate::text::names::{normalize_name, strip_known_prefix};
use crate::tools::Tool;

/// The tools of one source.
pub struct SourceTools {
    /// The source's name in the manifest.
    pub source: Arc<str>,
    /// The prefix of its tools' names.
    pub prefix: String,
    /// Lists of tools, the most wanted first. The first list that fits into the catalog is served.
    /// Of a group that is not `all_or_nothing`, the first list always fits.
    pub choices: Vec<Vec<Tool>>,
    /// Tools that are served if no choice fits. Each of them is served if its own name is free.
    pub fallback: Vec<Tool>,
    /// Whether a choice fits only if all of its tools get their names. Otherwise single tools are
    /// left out.
    pub all_or_nothing: bool,
    /// Names that its tools have now. They keep these names.
    pub current_names: Vec<ToolName>,
    /// Names that the operator gave to its tools, in the manifest or by approval.
    pub assigned_names: Vec<ToolName>,
    /// The answer for its other names, while no choice is served.
    pub unlisted: Option<UnlistedSource>,
}

/// The outcome for one group.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Placement {
    /// Index of the choice that is served.
    pub choice: Option<usize>,
    /// Why each earlier choice does not fit.
    pub rejections: Vec<String>,
    /// Tools of the served choice that did not get their names.
    pub rejected_tools: Vec<RejectedTool>,
}

/// A tool that is not served, because another tool has its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RejectedTool {
    /// The name under which it would be served.
    pub tool: ToolName,
    /// The reason, for the operator.
    pub reason: String,
}

/// The names that are taken or claimed while a catalog is built.
pub(crate) struct NameAllocator {
    /// The source of each name in the new catalog that belongs to a source.
    owners: HashMap<ToolName, Arc<str>>,
    /// The source that may use each name first: the source that has it now, else the source to
    /// which the operator gave it.
    claims: HashMap<ToolName, Arc<str>>,
    /// The prefix of each server, with the server's name.
    prefixes: Vec<(String, Arc<str>)>,
    /// For each normal form, the one server's tool that keeps its name. A name that the operator
    /// gave takes precedence over a name that is served now.
    spelling_owners: HashMap<String, ToolName>,
    /// Registered tools that are served, by the normal forms of their names.
    registered: HashMap<String, ToolName>,
    /// Quarantined tools that the operator does not know, with the index of their group. They get
    /// only names that remain free.
    deferred: Vec<(usize, Arc<str>, Tool)>,
}

impl NameAllocator {
    /// Prepares the placement of these groups. `before` is the catalog that is replaced.
    pub(crate) fn new(groups: &[SourceTools], registered: &[Tool], before: &Catalog) -> Self {
        let mut claims = HashMap::new();
        for names in [
            |group: &SourceTools| group.current_names.clone(),
            |group: &SourceTools| group.assigned_names.clone(),
        ] {
            for group in groups {
                for name in names(group) {
                    claims.entry(name).or_insert_with(|| group.source.clone());
                }
            }
        }
        let is_served = |tool: &&Tool| {
            before
                .get(tool.name())
                .is_some_and(|entry| entry.origin == Origin::Registered)
        };
        let names = |tool: &Tool| -> Vec<(String, ToolName)> {
            let own = &tool.definition.name;
            let all = std::iter::once(own)
                .chain(&tool.definition.aliases)
                .map(ToolName::as_str);
            all.flat_map(|name| [Some(name), strip_known_prefix(name)])
                .flatten()
                .map(|name| (normalize_name(name), own.clone()))
                .collect()
        };
        let registered = registered
            .iter()
            .filter(is_served)
            .flat_map(names)
            .collect();
        let servers = || groups.iter().filter(|group| !group.all_or_nothing);
        let prefixes = servers()
            .map(|group| (group.prefix.clone(), group.source.clone()))
            .collect();
        // A name that its server does not list any more must not block the same name of another
        // tool.
        let listed = servers()
            .filter_map(|group| group.choices.first())
            .flatten();
        let listed: HashSet<&ToolName> = listed.map(|tool| &tool.definition.name).collect();
        let mut spelling_owners = HashMap::new();
        for names in [
            |group: &SourceTools| group.assigned_names.clone(),
            |group: &SourceTools| group.current_names.clone(),
        ] {
            for name in servers()
                .flat_map(names)
                .filter(|name| listed.contains(name))
            {
                spelling_owners
                    .entry(normalize_name(name.as_str()))
                    .or_insert(name);
            }
        }
        Self {
            owners: HashMap::new(),
            claims,
            prefixes,
            spelling_owners,
            registered,
            deferred: Vec::new(),
        }
    }

    /// Places all groups: the operator's own sources first, then the servers, whose tools another
    /// party defines.
    pub(crate) fn place_all(
        &mut self,
        groups: Vec<SourceTools>,
        next: &mut Catalog,
        env: &BuildEnv<'_>,
    ) -> Vec<Placement> {
        let mut order: Vec<(usize, SourceTools)> = groups.into_iter().enumerate().collect();
        order.sort_by_key(|(_, group)| !group.all_or_nothing);
        let mut placements: Vec<(usize, Placement)> = order
            .into_iter()
            .map(|(at, group)| (at, self.place_source(at, group, next, env)))
            .collect();
        placements.sort_by_key(|(at, _)| *at);
        placements
            .into_iter()
            .map(|(_, placement)| placement)
            .collect()
    }

    /// Adds the first choice of a group that fits to the catalog, else its fallback. `at` is the
    /// index of the group.
    fn place_source(
        &mut self,
        at: usize,
        group: SourceTools,
        next: &mut Catalog,
        env: &BuildEnv<'_>,
    ) -> Placement {
        let SourceTools {
            source,
            choices,
            fallback,
            all_or_nothing,
            assigned_names,
            unlisted,
            ..
        } = group;
        let mut rejections = Vec::new();
        for (choice, tools) in choices.into_iter().enumerate() {
            if all_or_nothing {
                match self.place_all_or_none(tools, &source, next, env) {
                    Ok(()) => {
                        return Placement {
                            choice: Some(choice),
                            rejections,
                            rejected_tools: Vec::new(),
                        };
                    }
                    Err(reason) => rejections.push(reason),
                }
                continue;
            }
            // A server: its first choice is always served, without the tools that do not get their
            // names. Quarantined tools that the operator does not know wait in `deferred`, so that
            // they take no name from a tool that can be called.
            let assigned_names: HashSet<ToolName> = assigned_names.into_iter().collect();
            let is_last =
                |tool: &Tool| tool.quarantined && !assigned_names.contains(&tool.definition.name);
            let (deferred, tools): (Vec<Tool>, Vec<Tool>) = tools.into_iter().partition(is_last);
            self.deferred
                .extend(deferred.into_iter().map(|tool| (at, source.clone(), tool)));
            let rejected_tools = tools.into_iter().filter_map(|tool| {
                // A name that the operator gave takes precedence over a registered tool. Any other
                // name yields to it.
                let yields = !assigned_names.contains(&tool.definition.name);
                self.place_tool(tool, &source, yields, next, env)
            });
            return Placement {
                choice: Some(choice),
                rejections,
                rejected_tools: rejected_tools.collect(),
            };
        }
        unlisted
            .into_iter()
            .for_each(|source| next.add_unlisted_source(source));
        for tool in fallback {
            let entry = next.build(tool, env);
            if let Ok(entry) = entry
                .inspect_err(|error| tracing::debug!(%error, "a fallback tool cannot be built"))
                && self
                    .find_name_conflict(&entry, &source, !all_or_nothing, next)
                    .is_none()
            {
                self.owners
                    .extend(entry.names().map(|name| (name.clone(), source.clone())));
                // The names are free, and the definition was checked when it was declared. So this
                // does not fail.
                let _ = next.insert(entry);
            }
        }
        Placement {
            choice: None,
            rejections,
            rejected_tools: Vec::new(),
        }
    }

    /// Places the quarantined tools of `deferred`. This runs after all other tools, registered ones
    /// included, have their names.
    pub(crate) fn place_deferred(
        &mut self,
        placements: &mut [Placement],
        next: &mut Catalog,
        env: &BuildEnv<'_>,
    ) {
        for (at, source, tool) in std::mem::take(&mut self.deferred) {
            if let Some(placement) = placements.get_mut(at) {
                placement
                    .rejected_tools
                    .extend(self.place_tool(tool, &source, true, next, env));
            }
        }
    }

    /// Adds one tool to the catalog, or returns why it is left out. `yields`: the tool also yields
    /// to a served registered tool, and to a server with a longer prefix, if its name looks like
    /// theirs.
    fn place_tool(
        &mut self,
        tool: Tool,
        source: &Arc<str>,
        yields: bool,
        next: &mut Catalog,
        env: &BuildEnv<'_>,
    ) -> Option<RejectedTool> {
        let name = tool.definition.name.clone();
        let placed = next
            .build(tool, env)
            .map_err(|error| error.to_string())
            .and_then(|entry| {
                let yielded = yields
                    .then(|| {
                        self.find_registered_conflict(&entry)
                            .or_else(|| self.find_prefix_conflict(&name, source))
                    })
                    .flatten();
                let reason =
                    yielded.or_else(|| self.find_name_conflict(&entry, source, true, next));
                if let Some(reason) = reason.or_else(|| self.find_spelling_conflict(&entry, next)) {
                    return Err(format!("{reason}; {}", conflict_advice(entry.kind)));
                }
                let names: Vec<ToolName> = entry.names().cloned().collect();
                next.insert(entry).map_err(|error| error.to_string())?;
                self.owners
                    .extend(names.into_iter().map(|name| (name, source.clone())));
                Ok(())
            });
        placed.err().map(|reason| RejectedTool {
            reason: format!("the tool `{name}` is left out: {reason}"),
            tool: name,
        })
    }

    /// Adds all of these tools to the catalog, or none of them and returns the reason.
    fn place_all_or_none(
        &mut self,
        tools: Vec<Tool>,
        source: &Arc<str>,
        catalog: &mut Catalog,
        env: &BuildEnv<'_>,
    ) -> Result<(), String> {
        let (mut next, mut names) = (catalog.clone(), Vec::new());
        for tool in tools {
            let entry = next.build(tool, env).map_err(|error| error.to_string())?;
            if let Some(reason) = self.find_name_conflict(&entry, source, false, catalog) {
                return Err(format!(
                    "its tool `{}`: {reason}; {}",
                    entry.definition.name,
                    conflict_advice(entry.kind)
                ));
            }
            names.extend(entry.names().map(|name| (name.clone(), source.clone())));
            next.insert(entry).map_err(|error| error.to_string())?;
        }
        self.owners.extend(names);
        *catalog = next;
        Ok(())
    }

    /// Returns an error text if one of the names is taken. `foreign`: a claim of another source
    /// counts, too.
    fn find_name_conflict(
        &self,
        entry: &Entry,
        source: &Arc<str>,
        foreign: bool,
        next: &Catalog,
    ) -> Option<String> {
        entry.names().find_map(|name| {
            let of_source =
                |source: &Arc<str>| format!("`{name}` is a tool of source `{source}` already");
            if let Some(holder) = next.get(name.as_str()) {
                return Some(match (self.owners.get(name), holder.origin) {
                    (Some(source), _) => of_source(source),
                    (None, Origin::Program) => format!("`{name}` is a tool of the program already"),
                    (None, Origin::Registered) => {
                        format!("`{name}` is a tool that is registered already")
                    }
                    (None, Origin::Manifest) => {
                        format!("`{name}` is a tool of the manifest already")
                    }
                });
            }
            self.claims
                .get(name)
                .filter(|owner| foreign && *owner != source)
                .map(of_source)
        })
    }

    /// Returns which tool has, or will have, another spelling of one of these names.
    fn find_spelling_conflict(&self, entry: &Entry, next: &Catalog) -> Option<String> {
        let own = &entry.definition.name;
        entry.names().find_map(|name| {
            let catalog_tool = next.find_spelling_conflict(name, own).map(|other| &other.definition.name);
            let reserved_name = || {
                self.spelling_owners
                    .get(&normalize_name(name.as_str()))
                    .filter(|reserved| entry.names().all(|name| name != *reserved))
            };
            let other_tool = catalog_tool.or_else(reserved_name)?;
            Some(format!("`{name}` is another spelling of `{other_tool}`, so a model's spelling could mean either"))
        })
    }

    /// Refuses a name that starts with another server's longer prefix. A reader would take the tool
    /// for that server's.
    fn find_prefix_conflict(&self, name: &ToolName, source: &Arc<str>) -> Option<String> {
        let own = self
            .prefixes
            .iter()
            .find(|(_, server)| server == source)
            .map_or(0, |(prefix, _)| prefix.len());
        let begins = |(prefix, server): &&(String, Arc<str>)| {
            server != source && prefix.len() > own && name.as_str().starts_with(prefix)
        };
        let (_, server) = self.prefixes.iter().find(begins)?;
        Some(format!(
            "`{name}` would be taken for a tool of the server `{server}`"
        ))
    }

    /// Returns the registered tool with the same name or another spelling of it. A call could mean
    /// either tool.
    fn find_registered_conflict(&self, entry: &Entry) -> Option<String> {
        entry.names().find_map(|name| {
            let other_tool = self.registered.get(&normalize_name(name.as_str()))?;
            Some(match other_tool == name {
                true => format!("`{name}` is a tool that is registered already"),
                false => format!("`{name}` is another spelling of `{other_tool}`, a tool that is registered already"),
            })
        })
    }
}

/// Advice for the operator against a clash of a source's tool with another tool.
pub(crate) fn conflict_advice(kind: Kind) -> &'static str {
    match kind {
        Kind::Mcp => "give the server another name, or exclude the tool",
        _ => "give the source a prefix",
    }
}
