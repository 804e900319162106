//! The invariants of docs/dev/architecture.md, held against the source.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::imports::{Module, read_module, read_modules};

pub(crate) struct Source {
    /// Below `src/`, or from `crates/` on.
    pub(crate) path: String,
    /// Without its unit tests.
    pub(crate) text: String,
}

pub(crate) fn sources() -> Vec<Source> {
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
        let text = cut_inline_tests(&text)
            .unwrap_or_else(|| panic!("{}: code stands after the tests", path.display()))
            .to_owned();
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
            || source.path.ends_with("_test.rs")
            || source.path.contains("/tests/")
            || source.path.starts_with("ledger/model_test/")
            || ["ledger/contract.rs", "ledger/memory.rs"].contains(&source.path.as_str())
    };
    found
        .into_iter()
        .map(source)
        .filter(|source| !is_test(source))
        .collect()
}

/// The file without its inline tests, which stand at its end, for some of them only on one system.
/// `None` if anything follows the tests, since no test of this file would see it.
fn cut_inline_tests(text: &str) -> Option<&str> {
    let starts = ["\n#[cfg(test)]\nmod tests {", "\n#[cfg(all(test"];
    let Some(start) = starts.iter().filter_map(|start| text.find(start)).min() else {
        return Some(text);
    };
    let (_, after) = text[start..].split_once("\n}\n")?;
    after.is_empty().then_some(&text[..start])
}

#[test]
fn code_after_inline_tests_is_refused() {
    let tests = "\n#[cfg(test)]\nmod tests {\n    use super::*;\n}\n";
    assert_eq!(cut_inline_tests("fn a() {}\n"), Some("fn a() {}\n"));
    assert_eq!(
        cut_inline_tests(&format!("fn a() {{}}\n{tests}")),
        Some("fn a() {}\n")
    );
    assert_eq!(cut_inline_tests(&format!("{tests}\nfn a() {{}}\n")), None);
}

/// Files below `files` must not contain `words`, apart from those below `except`.
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

/// The floors of `src/`, the lowest layer first. A floor is a folder, or a part of one that stands
/// higher or lower than the rest of its folder. A floor imports only lower floors, so no circle is
/// possible.
const LAYERS: [&[&str]; 16] = [
    &["audit", "call"],
    &[
        "environment",
        "expression",
        "ledger",
        "sources/openapi/reader",
        "text",
    ],
    &[
        "access", "log", "metrics", "runtime", "secrets", "settings", "tracking",
    ],
    &["schema", "telemetry"],
    &["kinds"],
    &["sources"],
    &["formats", "stack"],
    &["approval", "cache"],
    &["stack/order"],
    &["catalog"],
    &["catalog/registry", "manifest"],
    &["approval/deciding"],
    &["approval/sweep", "approval/webhooks", "mcp", "sources/live"],
    &["http"],
    &["app"],
    &["cli"],
];

/// The floor of a path: the longest one that is a beginning of it, with its layer.
fn floor_of(path: &str) -> Option<(&'static str, usize)> {
    let floors = LAYERS.iter().enumerate();
    floors
        .flat_map(|(layer, floors)| floors.iter().map(move |floor| (*floor, layer)))
        .filter(|(floor, _)| {
            let rest = path.strip_prefix(floor);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '.']))
        })
        .max_by_key(|(floor, _)| floor.len())
}

/// What a module imports by its path: mostly folders of `src/`.
fn imported_folders(module: &Module) -> BTreeSet<&str> {
    let paths = module.uses.iter().chain(&module.exports);
    paths
        .filter_map(|path| path.first())
        .map(String::as_str)
        .collect()
}

#[test]
fn imports_in_all_forms_are_found() {
    let text = "// crate::cli\nuse crate::{\n    http,\n    live::{self, Error},\n};
        use crate::App;\nuse super::super::runtime::Clock;\npub use super::ledger::Row;
        let x = crate::call::json();\nlet y = super::super::access::Callers::default();";
    let folders_in = |file| {
        let module = read_module(file, text, &BTreeSet::new());
        imported_folders(&module)
            .into_iter()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        folders_in("kinds/sql/mod.rs"),
        ["App", "access", "call", "http", "kinds", "live", "runtime"]
    );
    assert_eq!(
        folders_in("kinds/mod.rs"),
        ["App", "call", "http", "ledger", "live"]
    );
}

#[test]
fn folders_import_only_lower_layers() {
    for module in read_modules().values() {
        let file = &module.file;
        if file.starts_with("crates/") {
            continue;
        }
        let (own, layer) = floor_of(file).unwrap_or_else(|| panic!("{file} is in no layer"));
        for path in module.uses.iter().chain(&module.exports) {
            let path = path.join("/");
            // Items have a folder, so `crate::App` would hide which layer is imported.
            let (other, imported) =
                floor_of(&path).unwrap_or_else(|| panic!("{file} names {path}"));
            assert!(other == own || imported < layer, "{file} imports {path}");
        }
    }
}

#[test]
fn folders_stay_apart() {
    let modules = read_modules();
    // Files below `files` must not import `folder`, apart from those below `except`.
    let assert_not_imported = |files: &str, folder: &str, except: &[&str]| {
        for module in modules.values() {
            let file = module.file.as_str();
            if file.starts_with(files) && !except.iter().any(|other| file.starts_with(other)) {
                let is_imported = imported_folders(module).contains(folder);
                assert!(!is_imported, "{file} imports {folder}");
            }
        }
    };
    assert_not_imported("kinds/", "ledger", &[]);
    assert_not_imported("mcp/", "manifest", &[]);
    assert_not_imported("", "mcp", &["mcp/", "http/mcp/", "app/"]);
    // Formats of others know nothing of the service.
    for module in modules.values() {
        let own = module.file.split('/').next().unwrap();
        if own == "expression" || module.file.starts_with("sources/openapi/reader/") {
            let mut others = imported_folders(module);
            others.retain(|folder| ![own, "call"].contains(folder));
            assert!(others.is_empty(), "{} imports {others:?}", module.file);
        }
    }
}

/// The parts of a call's report, each with the files that write to it. `record` reads all of them,
/// and the table of running calls shows two.
#[test]
fn report_parts_name_their_writers() {
    let readers = [
        "stack/record.rs",
        "stack/ended_call.rs",
        "tracking/in_flight.rs",
    ];
    // `usage_limit` and `circuit_breaker` only read one field.
    let reads = [
        (
            "stack/usage_limit.rs",
            "report.replay.lock().fingerprint.clone()",
        ),
        (
            "stack/circuit_breaker.rs",
            "report.attempt.lock().shared_failure",
        ),
    ];
    let parts = [
        ("entry", &["catalog/new_call.rs", "approval/waiting.rs"][..]),
        ("replay", &["stack/replay.rs"]),
        ("fitting", &["stack/validate.rs"]),
        ("cache", &["cache/layer.rs", "cache/page_guard.rs"]),
        // An attempt reads whether its call is reserved.
        ("charge", &["stack/usage_limit.rs", "stack/attempt.rs"]),
        (
            "attempt",
            &[
                "stack/attempt.rs",
                "call/context.rs",
                "call/queued_attempt.rs",
            ],
        ),
        ("tool", &["stack/run.rs", "call/context.rs"]),
    ];
    for source in sources() {
        let path = source.path.as_str();
        if readers.contains(&path) {
            continue;
        }
        let text: String = source.text.split_whitespace().collect();
        let text = reads
            .iter()
            .filter(|(file, _)| *file == path)
            .fold(text, |text, (_, read)| text.replace(read, ""));
        for (part, writers) in parts {
            // Also without `.lock()`: a part that is handed on is locked elsewhere.
            let is_used = text
                .split(&format!("report.{part}"))
                .skip(1)
                .any(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || "_(".contains(c)));
            assert!(
                !is_used || writers.contains(&path),
                "{path} uses the report's part `{part}`"
            );
        }
    }
}

#[test]
fn axum_and_sqlx_stay_in_their_modules() {
    assert_absent("sources/live/", &["axum::"], &[]);
    assert_absent("mcp/", &["axum::"], &[]);
    assert_absent(
        "",
        &["axum::", "StatusCode"],
        &["http/", "app/", "kinds/http/", "cli/"],
    );
    assert_absent("kinds/http/", &["axum::"], &["kinds/http/tests.rs"]);
    assert_absent("", &["sqlx::"], &["ledger/", "kinds/sql/postgres/"]);
    assert_absent("", &["redis::{", "redis::aio", "redis::cmd"], &["cache/"]);
    assert_absent(
        "",
        &["rusqlite::"],
        &[
            "kinds/sql/sqlite/",
            "ledger/sqlite/batch_connection.rs",
            "ledger/sqlite/fault.rs",
        ],
    );
    assert_absent("", &["rmcp::"], &["mcp/", "sources/mcp/", "http/mcp/"]);
    assert_absent("", &["minijinja::"], &["expression/", "http/approvals/"]);
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
        &["use toolcrib", "crate::call", "crate::kinds"],
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
            150
        } else {
            600
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
    let (stack, listed) = (find("stack/order.rs"), find("stack/mod.rs"));
    let stack = &stack[stack.find("pub fn build").unwrap()..];
    let listed_order = listed
        .split("//!\n")
        .find(|paragraph| paragraph.trim_end().ends_with(", run."))
        .unwrap()
        .replace("//! ", "")
        .replace('\n', " ");
    let order = listed_order.trim().strip_suffix(", run.").unwrap();
    let names: Vec<&str> = order.split(", ").chain(["run"]).collect();
    let elsewhere = ["await_decision", "approval", "cache", "page_guard"];
    for name in names.iter().filter(|name| !elsewhere.contains(name)) {
        assert!(
            listed.contains(&format!("pub mod {name};")),
            "{name} is no module of stack/"
        );
    }
    let word = |name: &str| match name {
        "record" => "RecordLayer::new",
        "await_decision" => "AwaitDecision::layer",
        "approval" => "Approval::layer",
        "cache" => "Cached::layer",
        "circuit_breaker" => "CircuitBreaker::layer",
        "concurrency" => "ConcurrencyLimit::layer",
        "usage_limit" => "UsageLimit {",
        "retry" => "retry::layer",
        "run" => "Run::new",
        "authorize" => "Authorize {",
        "replay" => "Replay::layer",
        "validate" => "Validate(",
        "repeat_guard" => "RepeatGuard::layer",
        "deadline" => "InterceptorLayer::new(Deadline)",
        "attempt" => "Attempt {",
        "paginate" => "InterceptorLayer::new(paginator)",
        "page_guard" => "PageGuard::layer",
        other => panic!("{other} is a layer that this test does not know"),
    };
    let places: Vec<usize> = names
        .iter()
        .map(|name| stack.find(word(name)).unwrap_or_else(|| panic!("{name}")))
        .collect();
    assert!(
        places.is_sorted(),
        "stack/mod.rs lists {names:?}, stack/order.rs has another order"
    );
    assert_eq!(names.len(), 17);
}
