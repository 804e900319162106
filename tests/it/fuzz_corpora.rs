//! Replays the committed inputs of the fuzz targets that need no other build.

#![expect(clippy::expect_used, reason = "a broken property ends the target")]

use std::path::Path;

#[path = "../../fuzz/checks/dialects.rs"]
mod dialects;
#[path = "../../fuzz/checks/json_repair.rs"]
mod json_repair;
#[path = "../../fuzz/checks/manifest.rs"]
mod manifest;
#[path = "../../fuzz/checks/openapi.rs"]
mod openapi;
#[path = "../../fuzz/checks/schema.rs"]
mod schema;

#[track_caller]
fn replay(target: &str, check: impl Fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus");
    let mut replayed = 0;
    for file in std::fs::read_dir(folder.join(target)).unwrap() {
        check(&std::fs::read(file.unwrap().path()).unwrap());
        replayed += 1;
    }
    assert!(replayed > 9, "only {replayed} inputs");
}

/// As the fuzzer makes a text of its bytes.
fn text(bytes: &[u8]) -> &str {
    bytes.utf8_chunks().next().map_or("", |chunk| chunk.valid())
}

#[test]
fn messages_of_models_keep_their_properties() {
    replay("dialects", dialects::check);
    replay("json_repair", |bytes| json_repair::check(text(bytes)));
}

#[test]
fn documents_of_operators_keep_their_properties() {
    replay("manifest", |bytes| manifest::check(text(bytes)));
    replay("openapi", |bytes| openapi::check(text(bytes)));
}

#[test]
fn schemas_keep_their_properties() {
    replay("schema", |bytes| schema::check(text(bytes)));
}
