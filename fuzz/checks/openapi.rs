//! OpenAPI documents. Each operation becomes a tool or is left out with a reason, and its tool has
//! a name and a schema that models and the service accept.

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use toolcrib::kinds::HttpClients;
use toolcrib::schema::{Meter, Schema, SchemaOwner, sample_value};
use toolcrib::sources::openapi::{ApiSettings, DocumentLocation, build_tools, read_document};

pub(crate) fn check(text: &str) {
    let mut settings = ApiSettings {
        name: "api".into(),
        document: DocumentLocation::File(PathBuf::from("api.yaml")),
        base_url: None,
        include: Vec::new(),
        exclude: Vec::new(),
        headers: BTreeMap::new(),
        query: BTreeMap::new(),
        auth: None,
        allow_private: true,
        allow_hosts: Vec::new(),
        max_output: None,
        start_timeout: Duration::from_secs(1),
    };
    for base_url in [None, Some("http://127.0.0.1:9/v1/".to_owned())] {
        settings.base_url = base_url;
        let Ok(import) = read_document(&settings, text) else {
            return;
        };
        assert_eq!(
            import.found,
            import.operations.len() + import.left_out.len()
        );
        let mut names = HashSet::new();
        for operation in &import.operations {
            let name = operation.name.as_str();
            let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
            assert!(
                !name.is_empty() && name.len() <= 64 && name.chars().all(is_plain),
                "{name:?}"
            );
            assert!(names.insert(name.to_owned()), "{name:?} twice");
            assert!(!operation.description.is_empty());
            assert!(operation.description.chars().count() <= 1024);
        }
        let (found, left_out) = (import.found, import.left_out.len());
        let Ok((listing, operations)) = build_tools(&settings, &HttpClients::default(), import)
        else {
            continue;
        };
        assert_eq!(operations.found, found);
        assert_eq!(operations.imported, listing.tools.len());
        assert_eq!(operations.left_out.len(), found - listing.tools.len());
        assert!(operations.left_out.len() >= left_out);
        for tool in listing.tools {
            let schema =
                Schema::compile_input(Arc::new(tool.input_schema.clone()), SchemaOwner::Foreign);
            let schema = schema.expect("the schema of a tool compiles");
            if let serde_json::Value::Object(mut arguments) = sample_value(&tool.input_schema) {
                let meter = Meter::new(toolcrib::schema::MAX_STEPS, None);
                let _ = schema.fit_arguments(&mut arguments, false, &meter);
            }
        }
    }
}
