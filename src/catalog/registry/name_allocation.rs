//! Decides which tools get the names that they want. Each name belongs to one tool.
//!
//! The tools of program and manifest have their names already. The others get names in the order of
//! [`Rank`]. A tool that is served does not lose its name because a server starts to list a tool of
//! that name.
//!
//! The tools of the operator's own sources are all-or-nothing. The first choice of such a source
//! without a name conflict is served: its new listing, its previous listing, then its fallback. A
//! server, whose tools another party defines, loses single tools instead. Their names must also
//! differ from other names in more than spelling.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::call::{Kind, Origin, ToolName};
use crate::catalog::{BuildEnv, Catalog, Entry, UnlistedSource};
use crate::kinds::Tool;
use crate::text::names::{normalize_name, strip_known_prefix};

/// The tools of one source.
pub struct SourceTools {
    /// The source's name in the manifest.
    pub source: Arc<str>,
    /// The prefix of its tools' names.
    pub prefix: String,
    /// Lists of tools, the most wanted first. The first list that fits into the catalog is served.
    /// Of a server, the first list always fits.
    pub choices: Vec<Vec<Tool>>,
    /// Tools that are served if no choice fits. Each of them is served if its own name is free.
    pub fallback: Vec<Tool>,
    /// Whether a choice fits only if all of its tools get their names. Otherwise the source is a
    /// server: single tools are left out.
    pub all_or_nothing: bool,
    /// Names that its tools have now. They keep these names.
    pub current_names: HashSet<ToolName>,
    /// Names that the operator gave to its tools, in the manifest or by approval.
    pub assigned_names: HashSet<ToolName>,
    /// The answer for its other names, while no choice is served.
    pub unlisted: Option<UnlistedSource>,
}

/// The outcome for one source.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Placement {
    /// Index of the choice that is served.
    pub choice: Option<usize>,
    /// Why each earlier choice does not fit.
    pub rejections: Vec<String>,
    /// Tools of the served choice that did not get their names.
    pub rejected_tools: Vec<RejectedTool>,
}

/// A tool of a source that is not served, because another tool has its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RejectedTool {
    /// The name under which it would be served.
    pub tool: ToolName,
    /// The reason, for the operator.
    pub reason: String,
}

/// A registered tool that is not served, and the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkippedTool {
    /// The tool's name.
    pub name: String,
    /// Why it is not served, as a sentence.
    pub reason: String,
}

/// Which tools got their names.
pub struct Allocation {
    /// The outcome for each source, in the order of the sources.
    pub placements: Vec<Placement>,
    /// Registered tools that are not served.
    pub skipped: Vec<SkippedTool>,
}

/// The order in which tools get names.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    /// Tools of the operator's own sources.
    OwnSource,
    /// Tools of servers with names that the operator gave.
    Assigned,
    /// Registered tools that are served now.
    ServedRegistered,
    /// Tools of servers that are served now.
    Served,
    /// Fallback tools of servers.
    Fallback,
    /// Other tools of servers.
    New,
    /// Other registered tools.
    Registered,
    /// Quarantined tools that the operator does not know. They take no name from a tool that can be
    /// called.
    Quarantined,
}

/// Adds these tools to the catalog `next`, as far as they get their names.
pub(crate) fn allocate_names(
    sources: Vec<SourceTools>,
    registered: Vec<Tool>,
    next: &mut Catalog,
    env: &BuildEnv<'_>,
) -> Allocation {
    let mut allocator = NameAllocator::new(&sources, next, env);
    let mut placements = vec![Placement::default(); sources.len()];
    let mut waiting = Vec::new();
    for (at, mut source) in sources.into_iter().enumerate() {
        if source.all_or_nothing {
            placements[at] = allocator.place_own_source(source);
            continue;
        }
        let name = source.source.clone();
        if source.choices.is_empty() {
            allocator.add_unlisted(source.unlisted);
            let fallback = source.fallback.into_iter();
            waiting.extend(fallback.map(|tool| (Rank::Fallback, Some((at, name.clone())), tool)));
        } else {
            placements[at].choice = Some(0);
            let tools = source.choices.swap_remove(0).into_iter();
            let ranked = tools.map(|tool| (source.rank(&tool), Some((at, name.clone())), tool));
            waiting.extend(ranked);
        }
    }
    for tool in registered {
        let rank = match env.before.get(tool.name()) {
            Some(served) if served.origin == Origin::Registered => Rank::ServedRegistered,
            _ => Rank::Registered,
        };
        waiting.push((rank, None, tool));
    }
    // The sort is stable: within a rank, the first source comes first.
    waiting.sort_by_key(|(rank, _, _)| *rank);
    let mut skipped = Vec::new();
    for (rank, source, tool) in waiting {
        let name = tool.definition.name.clone();
        match source {
            Some((at, source)) => {
                let placed = allocator.place_tool(tool, &source, rank);
                if let Err(reason) = placed
                    && rank != Rank::Fallback
                {
                    let reason = format!("the tool `{name}` is left out: {reason}");
                    placements[at]
                        .rejected_tools
                        .push(RejectedTool { tool: name, reason });
                }
            }
            None => {
                if let Err(reason) = allocator.place_registered(tool) {
                    let name = name.to_string();
                    skipped.push(SkippedTool { name, reason });
                }
            }
        }
    }
    Allocation {
        placements,
        skipped,
    }
}

impl SourceTools {
    /// The rank of a listed tool of a server.
    fn rank(&self, tool: &Tool) -> Rank {
        let name = &tool.definition.name;
        if self.assigned_names.contains(name) {
            Rank::Assigned
        } else if tool.quarantined {
            Rank::Quarantined
        } else if self.current_names.contains(name) {
            Rank::Served
        } else {
            Rank::New
        }
    }
}

/// The catalog that is being filled.
struct NameAllocator<'a> {
    next: &'a mut Catalog,
    env: &'a BuildEnv<'a>,
    /// The source of each name in `next` that belongs to a source.
    owners: HashMap<ToolName, Arc<str>>,
    /// The source for which each name is reserved: the source that has it now, else the source to
    /// which the operator gave it. No server takes a name that is reserved for another.
    reserved: HashMap<ToolName, Arc<str>>,
    /// Each server with the prefix of its names.
    prefixes: Vec<(Arc<str>, String)>,
    /// Registered tools, by the normal forms of their names without a known prefix.
    bare_names: HashMap<String, ToolName>,
}

impl<'a> NameAllocator<'a> {
    fn new(sources: &[SourceTools], next: &'a mut Catalog, env: &'a BuildEnv<'a>) -> Self {
        let mut reserved = HashMap::new();
        let current = sources.iter().map(|source| (source, &source.current_names));
        let assigned = sources
            .iter()
            .map(|source| (source, &source.assigned_names));
        for (source, names) in current.chain(assigned) {
            for name in names {
                let owner = reserved.entry(name.clone());
                owner.or_insert_with(|| source.source.clone());
            }
        }
        let foreign = sources.iter().filter(|source| !source.all_or_nothing);
        Self {
            next,
            env,
            owners: HashMap::new(),
            reserved,
            prefixes: foreign
                .map(|source| (source.source.clone(), source.prefix.clone()))
                .collect(),
            bare_names: HashMap::new(),
        }
    }

    /// Adds all tools of the first choice that fits, else the fallback tools whose names are free.
    fn place_own_source(&mut self, tools: SourceTools) -> Placement {
        let (source, mut rejections) = (tools.source, Vec::new());
        for (choice, tools) in tools.choices.into_iter().enumerate() {
            let before = (self.next.clone(), self.owners.clone());
            let mut tools = tools.into_iter();
            match tools.try_for_each(|tool| self.place_tool(tool, &source, Rank::OwnSource)) {
                Ok(()) => {
                    return Placement {
                        choice: Some(choice),
                        rejections,
                        ..Placement::default()
                    };
                }
                Err(reason) => rejections.push(reason),
            }
            (*self.next, self.owners) = before;
        }
        self.add_unlisted(tools.unlisted);
        for tool in tools.fallback {
            // A fallback tool without its name is no loss: it does nothing.
            let _ = self.place_tool(tool, &source, Rank::OwnSource);
        }
        Placement {
            rejections,
            ..Placement::default()
        }
    }

    fn add_unlisted(&mut self, source: Option<UnlistedSource>) {
        if let Some(source) = source {
            self.next.add_unlisted_source(source);
        }
    }

    /// Adds one tool of a source, or returns why it cannot have its names.
    fn place_tool(&mut self, tool: Tool, source: &Arc<str>, rank: Rank) -> Result<(), String> {
        let entry = self.build(tool)?;
        if let Some(reason) = self.find_conflict(&entry, source, rank) {
            let (name, advice) = (&entry.definition.name, conflict_advice(entry.kind));
            return Err(match rank {
                Rank::OwnSource => format!("its tool `{name}`: {reason}; {advice}"),
                _ => format!("{reason}; {advice}"),
            });
        }
        let owned = entry.names().map(|name| (name.clone(), source.clone()));
        self.owners.extend(owned);
        self.next.insert(entry).map_err(|error| error.to_string())
    }

    fn place_registered(&mut self, tool: Tool) -> Result<(), String> {
        let entry = self.build(tool)?;
        check_registered_names(self.next, &entry).map_err(|taken| taken.to_string())?;
        let own = &entry.definition.name;
        let bare_names = entry
            .names()
            .filter_map(|name| strip_known_prefix(name.as_str()));
        let spellings = bare_names.map(|name| (normalize_name(name), own.clone()));
        self.bare_names.extend(spellings);
        self.next.insert(entry).map_err(|error| error.to_string())
    }

    fn build(&self, tool: Tool) -> Result<Arc<Entry>, String> {
        let entry = self.next.build(tool, self.env);
        entry.map_err(|error| error.to_string())
    }

    /// Returns why a tool of this source cannot have its names.
    fn find_conflict(&self, entry: &Entry, source: &Arc<str>, rank: Rank) -> Option<String> {
        let name_conflict = entry.names().find_map(|name| {
            let holder = self.next.get(name.as_str());
            let owner = match holder {
                Some(_) => self.owners.get(name),
                None => self
                    .reserved
                    .get(name)
                    .filter(|owner| rank != Rank::OwnSource && *owner != source),
            };
            let holder = match owner {
                Some(owner) => format!("a tool of source `{owner}`"),
                None => describe_origin(holder?).to_owned(),
            };
            Some(format!("`{name}` is {holder} already"))
        });
        name_conflict.or_else(|| match rank {
            Rank::OwnSource | Rank::Fallback => None,
            Rank::Assigned => self.find_spelling_conflict(entry),
            _ => self
                .find_prefix_conflict(&entry.definition.name, source)
                .or_else(|| self.find_spelling_conflict(entry)),
        })
    }

    /// Returns which tool has another spelling of one of these names.
    fn find_spelling_conflict(&self, entry: &Entry) -> Option<String> {
        entry.names().find_map(|name| {
            let prefixed = || {
                let tool = self.bare_names.get(&normalize_name(name.as_str()))?;
                self.next.get(tool.as_str())
            };
            let other = self
                .next
                .find_spelling_conflict(name, &entry.definition.name)
                .or_else(prefixed)?;
            let consequence = match other.origin {
                Origin::Registered => "a tool that is registered already",
                Origin::Manifest | Origin::Program => "so a model's spelling could mean either",
            };
            let other = &other.definition.name;
            Some(format!(
                "`{name}` is another spelling of `{other}`, {consequence}"
            ))
        })
    }

    /// Refuses a name that starts with another server's longer prefix. A reader would take the tool
    /// for that server's.
    fn find_prefix_conflict(&self, name: &ToolName, source: &Arc<str>) -> Option<String> {
        let (_, own) = self.prefixes.iter().find(|(server, _)| server == source)?;
        let (server, _) = self
            .prefixes
            .iter()
            .find(|(_, prefix)| prefix.len() > own.len() && name.as_str().starts_with(prefix))?;
        Some(format!(
            "`{name}` would be taken for a tool of the server `{server}`"
        ))
    }
}

/// Advice for the operator against a clash of a source's tool with another tool.
pub(crate) fn conflict_advice(kind: Kind) -> &'static str {
    match kind {
        Kind::Mcp => "give the server another name, or exclude the tool",
        _ => "give the source a prefix",
    }
}

/// A name that a registered tool cannot have, and the tool that has it.
#[derive(Debug, thiserror::Error)]
#[error("`{name}` {holder}")]
pub struct NameTaken {
    pub(crate) name: String,
    /// As the rest of the sentence.
    pub(crate) holder: String,
}

/// Checks that no other tool has one of these names or another spelling of one. A registered tool
/// of the same name does not count, because the new tool replaces it.
pub(crate) fn check_registered_names(catalog: &Catalog, entry: &Entry) -> Result<(), NameTaken> {
    let own = &entry.definition.name;
    for name in entry.names() {
        let holder = catalog
            .get(name.as_str())
            .filter(|holder| holder.origin != Origin::Registered || holder.definition.name != *own);
        if let Some(holder) = holder.or_else(|| catalog.find_spelling_conflict(name, own)) {
            return Err(NameTaken::new(name.as_str(), holder));
        }
    }
    Ok(())
}

impl NameTaken {
    pub(crate) fn new(name: &str, holder: &Entry) -> Self {
        let real = holder.definition.name.as_str();
        let relation = match real == name {
            true => "is".to_owned(),
            false if holder.names().any(|own| own.as_str() == name) => {
                format!("is an alias of `{real}`,")
            }
            false => format!("is another spelling of `{real}`,"),
        };
        let consequence = match holder.origin {
            Origin::Manifest | Origin::Program => ", which the API does not change",
            Origin::Registered => " already",
        };
        let holder = format!("{relation} {}{consequence}", describe_origin(holder));
        let name = name.to_owned();
        Self { name, holder }
    }
}

/// The party that a tool comes from, as part of a sentence.
pub(crate) fn describe_origin(tool: &Entry) -> &'static str {
    match tool.origin {
        Origin::Manifest => "a tool of the manifest",
        Origin::Program => "a tool of the program",
        Origin::Registered => "a tool that is registered",
    }
}
