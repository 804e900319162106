//! The invariants of docs/dev/architecture.md, held against the source.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

struct Source {
    /// Below `src/`, or from `crates/` on.
    path: String,
    /// Without its unit tests.
    text: String,
}

fn sources() -> Vec<Source> {
    fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    walk(&root.join("src"), &mut found);
    for member in std::fs::read_dir(root.join("crates")).unwrap() {
        walk(&member.unwrap().path().join("src"), &mut found);
    }
    let source = |path: PathBuf| {
        let text = std::fs::read_to_string(&path).unwrap();
        // Inline tests stand at the end of a file, for some of them only on one system.
        let tests = ["\n#[cfg(test)]\nmod tests {", "\n#[cfg(all(test"];
        let code = tests.iter().filter_map(|start| text.find(start)).min();
        let text = text[..code.unwrap_or(text.len())].to_owned();
        let below = path
            .strip_prefix(root.join("src"))
            .or_else(|_| path.strip_prefix(root))
            .unwrap();
        Source {
            path: below.to_str().unwrap().to_owned(),
            text,
        }
    };
    let is_test = |source: &Source| {
        source.path.ends_with("tests.rs")
            || ["ledger/contract.rs", "ledger/memory.rs"].contains(&source.path.as_str())
    };
    found
        .into_iter()
        .map(source)
        .filter(|source| !is_test(source))
        .collect()
}

/// Rooms that may not name others: `(files, words, exceptions)`.
fn assert_absent(files: &str, words: &[&str], except: &[&str]) {
    for source in sources() {
        if source.path.starts_with(files)
            && !except.iter().any(|other| source.path.starts_with(other))
        {
            for word in words {
                assert!(
                    !source.text.contains(word),
                    "{} names `{word}`",
                    source.path
                );
            }
        }
    }
}

/// The folders of `src/`, the lowest layer first. A folder imports only folders of lower layers, so
/// no circle is possible.
const LAYERS: [&[&str]; 13] = [
    &["call"],
    &[
        "dialect",
        "environment",
        "expression",
        "ledger",
        "openapi",
        "text",
    ],
    &[
        "access", "log", "metrics", "runtime", "secrets", "settings", "tracking",
    ],
    &["schema"],
    &["tools"],
    &["formats", "middleware"],
    &["stack"],
    &["catalog"],
    &["manifest", "registry"],
    &["live", "mcp"],
    &["http"],
    &["app"],
    &["cli"],
];

/// The folders of `src/` that a file names in its code.
fn imported_folders(text: &str) -> BTreeSet<String> {
    let is_code = |line: &&str| !line.trim_start().starts_with("//");
    let code: Vec<&str> = text.lines().filter(is_code).collect();
    let mut folders = BTreeSet::new();
    for rest in code.join("\n").split("crate::").skip(1) {
        // `crate::{a, b::C}` names several, maybe over several lines.
        let statement = rest.split(';').next().unwrap();
        let names: Vec<&str> = match statement.strip_prefix('{') {
            Some(group) => group.split(',').collect(),
            None => vec![statement],
        };
        folders.extend(names.into_iter().filter_map(|name| {
            let is_name = |c: &char| c.is_ascii_lowercase() || *c == '_';
            let name: String = name.trim_start().chars().take_while(is_name).collect();
            Some(name).filter(|name| !name.is_empty())
        }));
    }
    folders
}

#[test]
fn imports_over_several_lines_are_found() {
    let text = "// crate::cli\nuse crate::{\n    http,\n    live::Error,\n};\nlet x = crate::call::json();";
    let folders: Vec<String> = imported_folders(text).into_iter().collect();
    assert_eq!(folders, ["call", "http", "live"]);
}

#[test]
fn folders_import_only_lower_layers() {
    let layer_of = |folder: &str| LAYERS.iter().position(|layer| layer.contains(&folder));
    for source in sources() {
        let own = source.path.split(['/', '.']).next().unwrap();
        if ["crates", "lib", "main"].contains(&own) {
            continue;
        }
        let layer = layer_of(own).unwrap_or_else(|| panic!("{own} is in no layer"));
        for other in imported_folders(&source.text) {
            let below = layer_of(&other).is_none_or(|other| other < layer);
            assert!(other == own || below, "{} imports {other}", source.path);
        }
    }
}

#[test]
fn folders_stay_apart() {
    assert_absent("tools/", &["crate::ledger"], &[]);
    // Formats of others know nothing of the service.
    for source in sources() {
        let own = source.path.split('/').next().unwrap();
        if ["dialect", "expression", "openapi"].contains(&own) {
            let others: Vec<_> = imported_folders(&source.text)
                .into_iter()
                .filter(|folder| ![own, "call"].contains(&folder.as_str()))
                .collect();
            assert!(others.is_empty(), "{} imports {others:?}", source.path);
        }
    }
    assert_absent("", &["crate::live"], &["live/", "app/", "http/"]);
    assert_absent("live/", &["axum::"], &[]);
    assert_absent("mcp/", &["axum::", "crate::manifest"], &[]);
    assert_absent("", &["crate::mcp"], &["mcp/", "http/mcp/", "app/"]);
}

/// The parts of a call's report, each with the files that write to it. `record` reads all of them,
/// and the table of running calls shows two.
#[test]
fn report_parts_have_one_writer() {
    let readers = ["middleware/record.rs", "tracking/in_flight.rs"];
    for (part, writers) in [
        ("entry", &["catalog/new_call.rs"][..]),
        ("replay", &["middleware/replay.rs"]),
        ("fitting", &["middleware/validate.rs"]),
        (
            "cache",
            &["middleware/cache/layer.rs", "middleware/page_guard.rs"],
        ),
        ("charge", &["middleware/usage_limit.rs"]),
        ("attempt", &["middleware/attempt.rs", "call/context.rs"]),
        ("tool", &["middleware/run.rs", "call/context.rs"]),
    ] {
        let lock = format!("report.{part}.lock()");
        for source in sources() {
            let text: String = source.text.split_whitespace().collect();
            let path = source.path.as_str();
            if !text.contains(&lock) || readers.contains(&path) || writers.contains(&path) {
                continue;
            }
            // `usage_limit` and `circuit_breaker` only read one field.
            let reads = [
                (
                    "middleware/usage_limit.rs",
                    "report.replay.lock().fingerprint.clone()",
                ),
                (
                    "middleware/circuit_breaker.rs",
                    "report.attempt.lock().shared_failure",
                ),
            ];
            assert!(
                reads
                    .iter()
                    .any(|(file, read)| *file == path && text.contains(read)),
                "{path} locks the report's part `{part}`"
            );
        }
    }
}

#[test]
fn axum_and_sqlx_stay_in_their_modules() {
    assert_absent(
        "",
        &["axum::", "StatusCode"],
        &["http/", "app/", "tools/http/", "cli/"],
    );
    assert_absent("tools/http/", &["axum::"], &["tools/http/tests.rs"]);
    assert_absent("", &["sqlx::"], &["ledger/", "tools/sql/postgres/"]);
    assert_absent("", &["rusqlite::"], &["tools/sql/sqlite/"]);
    assert_absent("", &["rmcp::"], &["mcp/", "tools/mcp/", "http/mcp/"]);
    assert_absent("", &["minijinja::"], &["expression/"]);
}

#[test]
fn unsafe_code_and_environment_have_one_module() {
    assert_absent(
        "",
        &["unsafe {", "unsafe fn", "unsafe_code"],
        &["crates/toolcrib-process/src/confine.rs"],
    );
    assert_absent("", &["env::var", "env::vars"], &["environment/"]);
    assert_absent(
        "",
        &[".spawn()?", "pre_exec("],
        &["crates/toolcrib-process/src/confine.rs", "runtime/init.rs"],
    );
}

#[test]
fn attribute_crate_does_not_name_toolcrib() {
    assert!(
        sources()
            .iter()
            .any(|source| source.path == "crates/toolcrib-macros/src/lib.rs")
    );
    assert_absent(
        "crates/toolcrib-macros/",
        &["use toolcrib", "crate::call", "crate::tools"],
        &[],
    );
    assert_absent("", &["toolcrib_macros"], &["lib.rs"]);
}

#[test]
fn statics_and_unbounded_queues_are_absent() {
    assert_absent(
        "",
        &[
            "static mut ",
            "OnceLock",
            "LazyLock",
            "thread_local!",
            "unbounded_channel(",
        ],
        &[],
    );
}

#[test]
fn files_stay_small() {
    for source in sources() {
        let lines = source.text.lines().count();
        let most = if source.path.ends_with("mod.rs") {
            165
        } else {
            710
        };
        assert!(
            lines <= most,
            "{} has {lines} lines; {most} is the most",
            source.path
        );
    }
}

#[test]
fn layers_are_documented_in_stack_order() {
    let find = |path: &str| {
        sources()
            .into_iter()
            .find(|source| source.path == path)
            .unwrap()
            .text
    };
    let (stack, listed) = (find("stack.rs"), find("middleware/mod.rs"));
    let stack = &stack[stack.find("pub fn build").unwrap()..];
    let listed_order = listed
        .split("//!\n")
        .find(|paragraph| paragraph.trim_end().ends_with(", run."))
        .unwrap()
        .replace("//! ", "")
        .replace('\n', " ");
    let order = listed_order.trim().strip_suffix(", run.").unwrap();
    let names: Vec<&str> = order.split(", ").chain(["run"]).collect();
    for name in &names {
        assert!(
            listed.contains(&format!("pub mod {name};")),
            "{name} is no room of middleware/"
        );
    }
    let word = |name: &str| match name {
        "record" => "RecordLayer::new",
        "cache" => "Cached::layer",
        "circuit_breaker" => "CircuitBreaker::layer",
        "concurrency" => "ConcurrencyLimit::layer",
        "usage_limit" => "UsageLimit::layer",
        "retry" => "retry::layer",
        "run" => "Run::new",
        "authorize" => "Authorize::layer",
        "replay" => "Replay::layer",
        "validate" => "Validate::layer",
        "repeat_guard" => "RepeatGuard::layer",
        "deadline" => "Deadline::layer",
        "attempt" => "Attempt::layer",
        "paginate" => "PaginateLayer::new",
        "page_guard" => "PageGuard::layer",
        other => panic!("{other} is a layer that this test does not know"),
    };
    let places: Vec<usize> = names
        .iter()
        .map(|name| stack.find(word(name)).unwrap_or_else(|| panic!("{name}")))
        .collect();
    assert!(
        places.is_sorted(),
        "middleware/mod.rs lists {names:?}, stack.rs has another order"
    );
    assert_eq!(names.len(), 15);
}
