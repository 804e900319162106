//! Files do not import each other in a circle, so each file can be read with those below it.

use std::collections::{BTreeMap, BTreeSet};

use super::imports::{Module, Path, read_modules};

/// The circles that are there, each with its reason and its files in alphabetical order.
const CIRCLES: &[(&str, &[&str])] = &[
    (
        "`App::builder` starts the builder, which makes the `App`.",
        &["app/builder.rs", "app/mod.rs"],
    ),
    (
        "The command makes its request from its own arguments.",
        &["cli/call/mod.rs", "cli/call/request.rs"],
    ),
    (
        "Each command reads and prints as `mod.rs` does for all.",
        &[
            "cli/import/mcp.rs",
            "cli/import/mod.rs",
            "cli/import/openapi.rs",
        ],
    ),
    (
        "The state holds the MCP service, whose requests are authenticated against the state.",
        &[
            "http/edge/auth.rs",
            "http/edge/body.rs",
            "http/mcp/listen.rs",
            "http/mcp/mod.rs",
            "http/mcp/routes.rs",
            "http/mcp/sessions.rs",
            "http/mcp/stateless.rs",
            "http/mcp/streams.rs",
            "http/mcp/valid_request.rs",
            "http/state.rs",
        ],
    ),
    (
        "A late answer has the same problem as a direct one, and `tools.rs` decides which it is.",
        &["http/api/tools/respond.rs", "http/api/tools/route.rs"],
    ),
    (
        "A manifest holds its lists of tools, which are resolved against the manifest.",
        &["manifest/contents.rs", "manifest/tool_lists.rs"],
    ),
    (
        "A section may have a short form, which is decoded to the section.",
        &["manifest/sections.rs", "manifest/short_forms.rs"],
    ),
    (
        "A schema coerces values, and coercion asks the schema which values fit.",
        &["schema/coerce.rs", "schema/compiled.rs"],
    ),
    (
        "A session has the guard, whose faults name the file of the session.",
        &[
            "kinds/sql/sqlite/faults.rs",
            "kinds/sql/sqlite/guard.rs",
            "kinds/sql/sqlite/session.rs",
        ],
    ),
];

/// The file that defines an item. A `mod.rs` only exports many of them. `None` for a module.
fn defining_file<'a>(modules: &'a BTreeMap<Path, Module>, path: &[String]) -> Option<&'a str> {
    let depth = (0..=path.len())
        .rev()
        .find(|depth| modules.contains_key(&path[..*depth]))?;
    let (module, item) = (&modules[&path[..depth]], path.get(depth)?);
    match module
        .names
        .get(item)
        .filter(|_| module.file.ends_with("mod.rs"))
    {
        Some(exported) if exported[..] != *path => {
            defining_file(modules, &[exported, &path[depth + 1..]].concat())
        }
        _ => Some(&module.file),
    }
}

#[test]
fn files_import_each_other_in_one_direction() {
    let modules = read_modules();
    let imports: BTreeMap<&str, BTreeSet<&str>> = modules
        .values()
        .map(|module| {
            let defining = |path: &Path| defining_file(&modules, path);
            let mut files: BTreeSet<&str> = module.uses.iter().filter_map(defining).collect();
            files.remove(module.file.as_str());
            (module.file.as_str(), files)
        })
        .collect();
    assert!(
        imports["kinds/table.rs"].contains("kinds/http/config.rs"),
        "exports are followed"
    );
    let reached_from: BTreeMap<&str, BTreeSet<&str>> = imports
        .keys()
        .map(|file| {
            let (mut reached, mut next) = (BTreeSet::new(), vec![*file]);
            while let Some(at) = next.pop() {
                next.extend(imports[at].iter().filter(|found| reached.insert(**found)));
            }
            (*file, reached)
        })
        .collect();
    let circles: BTreeSet<Vec<&str>> = reached_from
        .iter()
        .filter(|(file, reached)| reached.contains(*file))
        .map(|(file, reached)| {
            let is_mutual = |other: &&&str| reached_from[**other].contains(file);
            reached.iter().filter(is_mutual).copied().collect()
        })
        .collect();
    let known: BTreeSet<Vec<&str>> = CIRCLES.iter().map(|(_, files)| files.to_vec()).collect();
    let new: Vec<_> = circles.difference(&known).collect();
    assert!(
        new.is_empty(),
        "these files import each other in a circle that is not in the list: {new:#?}"
    );
    let gone: Vec<_> = known.difference(&circles).collect();
    assert!(
        gone.is_empty(),
        "these files are no circle of their own any more: {gone:#?}"
    );
}
