//! Which modules the files of all crates import, read from their text.

use std::collections::{BTreeMap, BTreeSet};

use super::tidy::sources;

/// Path of a module or an item, without `crate`. In a member it starts with `crates/NAME/src`.
pub(crate) type Path = Vec<String>;

pub(crate) struct Module {
    pub(crate) file: String,
    /// Names that `use` brings in, with what they mean.
    pub(crate) names: BTreeMap<String, Path>,
    /// What the code names, apart from `exports`.
    pub(crate) uses: Vec<Path>,
    /// What a `mod.rs` or `lib.rs` only exports.
    pub(crate) exports: Vec<Path>,
}

/// All modules by their paths, apart from the roots `src/lib.rs` and `src/main.rs`.
pub(crate) fn read_modules() -> BTreeMap<Path, Module> {
    let files: BTreeMap<Path, (String, String)> = sources()
        .into_iter()
        .filter(|source| !["lib.rs", "main.rs"].contains(&source.path.as_str()))
        .map(|source| (module_path(&source.path), (source.path, source.text)))
        .collect();
    let known: BTreeSet<Path> = files.keys().cloned().collect();
    let read = |(own, (file, text)): (Path, (String, String))| {
        let module = read_module(&file, &text, &known);
        (own, module)
    };
    files.into_iter().map(read).collect()
}

/// The module in this file. `known` has the paths of all modules.
pub(crate) fn read_module(file: &str, text: &str, known: &BTreeSet<Path>) -> Module {
    let own = module_path(file);
    let mut module = Module {
        file: file.to_owned(),
        names: BTreeMap::new(),
        uses: Vec::new(),
        exports: Vec::new(),
    };
    let is_code = |line: &&str| !line.trim_start().starts_with("//");
    let lines: Vec<&str> = text.lines().filter(is_code).collect();
    let mut code = String::new();
    for statement in lines.join("\n").split_inclusive(';') {
        let Some(at) = statement.rfind("use ").filter(|at| {
            let line = statement[..*at].rsplit('\n').next().unwrap().trim();
            (line.is_empty() || line.starts_with("pub")) && !statement[*at..].contains(['(', '='])
        }) else {
            code.push_str(statement);
            continue;
        };
        let is_export = statement[..at].rsplit('\n').next().unwrap().contains("pub")
            && ["mod.rs", "lib.rs"].iter().any(|root| file.ends_with(root));
        code.push_str(&statement[..at]);
        let tree = statement[at + 4..]
            .trim_end_matches(';')
            .replace(" as ", "=");
        let tree: String = tree.split_whitespace().collect();
        for path in expand_use(&tree) {
            let (path, name) = path.split_once('=').unwrap_or((&path, ""));
            let path = path.trim_end_matches("::self");
            let name = match name {
                "" => path.rsplit("::").next().unwrap(),
                name => name,
            };
            let Some(path) = resolve_start(&own, path, known) else {
                continue;
            };
            match is_export {
                true => module.exports.push(path.clone()),
                false => module.uses.push(path.clone()),
            }
            module.names.insert(name.to_owned(), path);
        }
    }
    for word in code.split(|c: char| !c.is_alphanumeric() && !"_:".contains(c)) {
        let (first, rest) = word.split_once("::").unwrap_or_default();
        if let Some(path) = module.names.get(first) {
            let rest = rest.split("::").map(str::to_owned);
            module.uses.push(path.iter().cloned().chain(rest).collect());
        } else if !first.is_empty() {
            module.uses.extend(resolve_start(&own, word, known));
        }
    }
    module
}

/// The path of the module in this file.
fn module_path(file: &str) -> Path {
    let stem = file.strip_suffix(".rs").unwrap();
    let stem = ["/mod", "/lib"]
        .iter()
        .find_map(|root| stem.strip_suffix(root))
        .unwrap_or(stem);
    stem.split('/').map(str::to_owned).collect()
}

/// The paths in a `use` without spaces: `a::{b,c::D=E}` gives `a::b` and `a::c::D=E`.
fn expand_use(tree: &str) -> Vec<String> {
    let (mut prefixes, mut word, mut found) = (Vec::new(), String::new(), Vec::new());
    for c in tree.chars().chain([',']) {
        match c {
            '{' => prefixes.push(std::mem::take(&mut word)),
            ',' | '}' => {
                if !word.is_empty() {
                    found.push(prefixes.concat() + &std::mem::take(&mut word));
                }
                if c == '}' {
                    prefixes.pop();
                }
            }
            c => word.push(c),
        }
    }
    found
}

/// What a path in the module `own` means; `None` for other crates and local names.
fn resolve_start(own: &[String], path: &str, modules: &BTreeSet<Path>) -> Option<Path> {
    let segments: Vec<String> = path.split("::").map(str::to_owned).collect();
    let up = segments.iter().take_while(|word| *word == "super").count();
    let (base, rest) = match segments[0].as_str() {
        "crate" if own[0] == "crates" => (&own[..3], &segments[1..]),
        "crate" => (&[][..], &segments[1..]),
        "self" => (own, &segments[1..]),
        "super" => (&own[..own.len().checked_sub(up)?], &segments[up..]),
        child => {
            let child = [own, &[child.to_owned()]].concat();
            modules.contains(&child).then_some((own, &segments[..]))?
        }
    };
    Some([base, rest].concat())
}
