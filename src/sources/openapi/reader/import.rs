//! All wanted operations of a document.

use std::collections::HashSet;

use serde_json::Value;

use super::members::Members;
use super::{Document, Import, LeftOut, Options, Selector, names, operation, security};

const METHODS: [&str; 7] = ["get", "head", "post", "put", "patch", "delete", "options"];

/// Turns the wanted operations of a document into tools.
pub fn import(document: &Document, options: &Options) -> Import {
    let mut import = Import::default();
    let mut names = HashSet::new();
    let mut unused: Vec<&Selector> = options.include.iter().chain(&options.exclude).collect();
    let mut imported = Vec::new();
    let paths = document.get("paths").and_then(Value::as_object);
    for (path, item) in paths.into_iter().flatten() {
        let item = match document.resolve(item) {
            Ok(item) => item.as_object(),
            Err(reason) => {
                let warning = format!("the path {path} is left out: {reason}");
                import.warnings.push(warning);
                continue;
            }
        };
        for (method, written) in item.into_iter().flatten() {
            let (Some(item), Some(fields)) = (item, written.as_object()) else {
                continue;
            };
            if !METHODS.contains(&method.as_str()) {
                continue;
            }
            import.found += 1;
            let id = fields.text("operationId");
            let tags: Vec<&str> = fields.items("tags").filter_map(Value::as_str).collect();
            let matches = |selector: &Selector| selector.matches(method, path, id, &tags);
            unused.retain(|selector| !matches(selector));
            let is_wanted = options.include.is_empty() || options.include.iter().any(matches);
            if !is_wanted || options.exclude.iter().any(matches) {
                continue;
            }
            let name = names::make_distinct(names::name_operation(id, method, path), &mut names);
            match operation::build_operation(document, options, &name, (method, path), item, fields)
            {
                Ok(operation) => {
                    imported.push(fields);
                    import.operations.push(operation);
                }
                Err(reason) => import.left_out.push(LeftOut {
                    name,
                    operation: operation::shown_operation(method, path),
                    reason,
                }),
            }
        }
    }
    import.warnings.extend(
        unused
            .iter()
            .map(|selector| format!("`{}` matches no operation", selector.as_str())),
    );
    import
        .warnings
        .extend(security::missing_credentials(document, &imported, options));
    import
}
