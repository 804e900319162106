//! Which kinds of tools a manifest may have: those whose cargo feature the build has.
//!
//! `tests/run` runs this file with all features and with `http` alone. It is a test binary of its
//! own, because the build with one feature compiles nothing else.

use toolcrib::App;

/// An entry of each kind, and whether this build has its feature.
const ENTRIES: [(&str, bool, &str); 8] = [
    (
        "command",
        cfg!(feature = "command"),
        "tools: {t: {kind: command, description: D., effect: read, command: [/bin/true]}}",
    ),
    (
        "http",
        cfg!(feature = "http"),
        "tools: {t: {kind: http, description: D., effect: read, request: {url: 'https://example.com/'}}}",
    ),
    (
        "sql",
        cfg!(feature = "sql"),
        "tools: {t: {kind: sql, description: D., database: 'sqlite://shop.sqlite', statement: select 1 as one}}",
    ),
    (
        "agent",
        cfg!(feature = "agent"),
        "tools: {t: {kind: agent, description: D., model: {base_url: 'http://127.0.0.1:9/v1', name: m}}}",
    ),
    (
        "python",
        cfg!(feature = "python"),
        "python_modules: {m: {module: ./tools.py}}",
    ),
    (
        "typescript",
        cfg!(feature = "typescript"),
        "typescript_modules: {m: {module: ./tools.ts}}",
    ),
    (
        "mcp",
        cfg!(feature = "mcp"),
        "mcp_servers: {s: {command: [/bin/cat]}}",
    ),
    (
        "http",
        cfg!(feature = "http"),
        "openapi: {a: {document: ./api.json, base_url: 'https://example.com'}}",
    ),
];

const DOCUMENT: &str = r#"{"openapi": "3.1.0", "info": {"title": "T", "version": "1"}, "paths": {"/items": {"get":
    {"operationId": "list_items", "summary": "Lists items.", "responses": {"200": {"description": "Items"}}}}}}"#;

#[tokio::test]
async fn kinds_without_a_feature_are_refused() {
    for (kind, is_built_in, manifest) in ENTRIES {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("toolcrib.yaml");
        std::fs::write(&file, manifest).unwrap();
        // An empty file is an empty database.
        for (name, text) in [
            ("tools.py", ""),
            ("tools.ts", ""),
            ("shop.sqlite", ""),
            ("api.json", DOCUMENT),
        ] {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        let ledger = format!("sqlite://{}", folder.path().join("t.db").display());
        let app = App::builder()
            .manifest(&file)
            .unwrap()
            .ledger(ledger)
            .build()
            .await;
        let message = app.err().map(|error| error.to_string());
        let expected = format!("cargo feature `{kind}`");
        let names_feature = |message: &String| message.contains(&expected);
        match is_built_in {
            true => assert_eq!(message, None, "{manifest}"),
            false => assert!(message.as_ref().is_some_and(names_feature), "{message:?}"),
        }
    }
}
