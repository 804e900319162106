/// The committed document is the one that is served; `toolcrib openapi > openapi/openapi.json` renews it.
#[test]
fn the_committed_document_is_current() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/openapi/openapi.json");
    let committed: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    let served = serde_json::to_value(toolcrib::http::openapi()).unwrap();
    assert!(committed == served, "openapi/openapi.json is not current: run `toolcrib openapi > openapi/openapi.json`");
}
