//! Tests of whole documents.

use serde_json::{Value, json};

use super::*;
use crate::call::Effect;

fn read(document: Value, options: &Options) -> Import {
    import(&Document::parse(&document.to_string()).unwrap(), options)
}

/// A document with these paths and components.
fn document(paths: Value, components: Value) -> Value {
    json!({
        "openapi": "3.1.0", "info": {"title": "Shop", "version": "1"},
        "servers": [{"url": "https://shop.example/v1/"}], "paths": paths, "components": components
    })
}

fn only(paths: Value, components: Value) -> Operation {
    let mut import = read(document(paths, components), &Options::default());
    assert_eq!(import.left_out, []);
    assert_eq!(import.operations.len(), 1);
    import.operations.remove(0)
}

fn get(operation: Value) -> Value {
    json!({"/orders": {"get": operation}})
}

fn post(schema: Value) -> Value {
    body("application/json", schema)
}

fn body(media_type: &str, schema: Value) -> Value {
    json!({"/orders": {"post": {"requestBody": {"content": {(media_type): {"schema": schema}}}}}})
}

#[test]
fn operation_becomes_a_tool() {
    let operation = only(
        json!({"/orders/{id}": {
            "parameters": [{"name": "id", "in": "path", "schema": {"type": "integer"}}],
            "put": {
                "operationId": "order.update", "summary": "Changes an order", "description": "Only open orders.", "tags": ["orders"],
                "parameters": [{"name": "notify", "in": "query", "description": "Mails the customer", "schema": {"type": "boolean"}}],
                "requestBody": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Order"}}}},
                "responses": {"200": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Order"}}}}}
            }
        }}),
        json!({"schemas": {"Order": {
            "type": "object", "required": ["status", "number"],
            "properties": {"status": {"enum": ["open", "paid"]}, "number": {"type": "string", "readOnly": true}}
        }}}),
    );
    assert_eq!(
        (operation.name.as_str(), operation.effect, &*operation.tags),
        (
            "order_update",
            Effect::Idempotent,
            &["orders".to_owned()][..]
        )
    );
    assert_eq!(
        operation.description,
        "Changes an order.\n\nOnly open orders."
    );
    assert_eq!(
        operation.input_schema,
        json!({
            "type": "object",
            "properties": {
                "id": {"type": "integer"},
                "notify": {"type": "boolean", "description": "Mails the customer"},
                "status": {"enum": ["open", "paid"]}
            },
            "additionalProperties": false,
            "required": ["id", "status"]
        })
    );
    assert_eq!(
        Value::from(operation.request),
        json!({
            "method": "PUT", "url": "https://shop.example/v1/orders/{{ id }}",
            "query": {"notify": "{{ notify }}"}, "json": {"status": "{{ status }}"}
        })
    );
    assert_eq!(
        operation.output_schema,
        Some(
            json!({"type": "object", "properties": {"status": {}, "number": {"type": ["string", "null"]}}})
        )
    );
}

#[test]
fn method_decides_the_effect() {
    let paths =
        json!({"/x": {"get": {}, "head": {}, "put": {}, "delete": {}, "post": {}, "patch": {}}});
    let import = read(document(paths, json!({})), &Options::default());
    let effects: Vec<_> = import
        .operations
        .iter()
        .map(|operation| (operation.name.as_str(), operation.effect))
        .collect();
    use Effect::{Idempotent, Read, Write};
    assert_eq!(
        effects,
        [
            ("get_x", Read),
            ("head_x", Read),
            ("put_x", Idempotent),
            ("delete_x", Idempotent),
            ("post_x", Write),
            ("patch_x", Write)
        ]
    );
}

#[test]
fn names_come_from_ids_or_paths() {
    let paths = json!({
        "/orders/{id}/items": {"get": {}, "post": {"operationId": "repos/list-for-user"}},
        "/orders/id/items": {"get": {}},
        "/long": {"get": {"operationId": "x".repeat(80)}}
    });
    let import = read(document(paths, json!({})), &Options::default());
    let names: Vec<_> = import
        .operations
        .iter()
        .map(|operation| operation.name.as_str())
        .collect();
    assert_eq!(
        names[..3],
        [
            "get_orders_id_items",
            "repos_list-for-user",
            "get_orders_id_items_2"
        ]
    );
    assert_eq!(
        (names[3].len(), &names[3][..55]),
        (64, "x".repeat(55).as_str())
    );
}

#[test]
fn styles_of_parameters_become_placeholders() {
    let array = json!({"type": "array", "items": {"type": "string"}});
    let object = json!({"type": "object", "properties": {"a": {}}});
    for (parameter, placeholder) in [
        (
            json!({"in": "query", "schema": {"type": "string"}}),
            "{{ p }}",
        ),
        (json!({"in": "query", "schema": array}), "{{ p }}"),
        (
            json!({"in": "query", "schema": array, "explode": false}),
            "{{ p | comma }}",
        ),
        (
            json!({"in": "query", "schema": array, "style": "spaceDelimited", "explode": false}),
            "{{ p | space }}",
        ),
        (
            json!({"in": "query", "schema": array, "style": "pipeDelimited", "explode": false}),
            "{{ p | pipe }}",
        ),
        (json!({"in": "query", "schema": object}), "{{ p | spread }}"),
        (
            json!({"in": "query", "schema": object, "explode": false}),
            "{{ p | comma }}",
        ),
        (
            json!({"in": "query", "schema": object, "style": "deepObject"}),
            "{{ p | deep }}",
        ),
        (
            json!({"in": "query", "schema": array, "style": "deepObject"}),
            "{{ p | deep }}",
        ),
        (
            json!({"in": "query", "content": {"application/json": {"schema": object}}}),
            "{{ p | json }}",
        ),
        (json!({"in": "header", "schema": array}), "{{ p | comma }}"),
        (
            json!({"in": "header", "schema": object, "explode": true}),
            "{{ p | pairs }}",
        ),
        (
            json!({"in": "cookie", "schema": {"type": "string"}}),
            "{{ p }}",
        ),
    ] {
        let location = parameter["in"].as_str().unwrap().to_owned();
        let mut parameter = parameter;
        parameter["name"] = "p".into();
        let operation = only(get(json!({"parameters": [parameter.clone()]})), json!({}));
        let key = match location.as_str() {
            "header" => "headers",
            "cookie" => "cookies",
            _ => "query",
        };
        assert_eq!(operation.request[key]["p"], placeholder, "{parameter}");
    }
    for (parameter, placeholder) in [
        (json!({"schema": {"type": "string"}}), "{{ p }}"),
        (json!({"schema": array}), "{{ p | comma }}"),
        (
            json!({"schema": object, "explode": true}),
            "{{ p | pairs }}",
        ),
        (
            json!({"schema": array, "style": "label"}),
            "{{ p | label }}",
        ),
        (
            json!({"schema": array, "style": "label", "explode": true}),
            "{{ p | label_exploded }}",
        ),
        (
            json!({"schema": {"type": "string"}, "style": "matrix"}),
            "{{ p | matrix }}",
        ),
        (
            json!({"schema": object, "style": "matrix", "explode": true}),
            "{{ p | matrix_exploded }}",
        ),
    ] {
        let mut parameter = parameter;
        (parameter["name"], parameter["in"]) = ("p".into(), "path".into());
        let operation = only(
            json!({"/x/{p}": {"get": {"parameters": [parameter.clone()]}}}),
            json!({}),
        );
        assert_eq!(
            operation.request["url"],
            format!("https://shop.example/v1/x/{placeholder}"),
            "{parameter}"
        );
    }
}

#[test]
fn names_that_are_not_arguments_are_replaced() {
    let parameters = json!([
        {"name": "filter[status]", "in": "query", "schema": {"type": "string"}},
        {"name": "$top", "in": "query", "schema": {"type": "integer"}},
        {"name": "id", "in": "query", "schema": {"type": "string"}},
        {"name": "id", "in": "header", "schema": {"type": "string"}}
    ]);
    let operation = only(get(json!({"parameters": parameters})), json!({}));
    assert_eq!(
        operation.request["query"],
        json!({"filter[status]": "{{ filter_status }}", "$top": "{{ top }}", "id": "{{ id }}"})
    );
    assert_eq!(
        operation.request["headers"],
        json!({"id": "{{ id_headers }}"})
    );
}

#[test]
fn body_is_one_argument_when_it_cannot_be_merged() {
    let clash = json!({"/orders/{id}": {"post": {
        "parameters": [{"name": "id", "in": "path", "schema": {"type": "string"}}],
        "requestBody": {"required": true, "content": {"application/json": {"schema": {"type": "object", "properties": {"id": {"type": "string"}}}}}}
    }}});
    let array = post(json!({"type": "array", "items": {"type": "string"}}));
    let alternatives = post(
        json!({"type": "object", "properties": {"c": {}}, "oneOf": [{"type": "object", "properties": {"a": {}}}, {"type": "object", "properties": {"b": {}}}]}),
    );
    let map = post(json!({"type": "object", "additionalProperties": {"type": "string"}}));
    for paths in [clash, array, alternatives, map] {
        let operation = only(paths.clone(), json!({}));
        assert_eq!(operation.request["json"], "{{ body }}", "{paths}");
        assert!(
            operation.input_schema["properties"]["body"].is_object(),
            "{paths}"
        );
    }
}

#[test]
fn all_of_is_merged() {
    let schema = json!({"allOf": [{"$ref": "#/components/schemas/Base"}, {"type": "object", "required": ["b"], "properties": {"b": {"type": "string"}}}]});
    let operation = only(
        post(schema),
        json!({"schemas": {"Base": {"type": "object", "properties": {"a": {"type": "integer"}}}}}),
    );
    assert_eq!(
        operation.request["json"],
        json!({"a": "{{ a }}", "b": "{{ b }}"})
    );
    assert_eq!(operation.input_schema["required"], json!(["b"]));
}

#[test]
fn files_in_whole_bodies_are_left_out() {
    let file = json!({"type": "string", "format": "binary"});
    let components =
        json!({"schemas": {"Part": {"anyOf": [{"$ref": "#/components/schemas/Part"}, file]}}});
    for schema in [
        json!({"type": "object", "additionalProperties": file}),
        json!({"oneOf": [{"type": "object", "properties": {"a": {"$ref": "#/components/schemas/Part"}}}]}),
    ] {
        let paths = body("multipart/form-data", schema.clone());
        let import = read(document(paths, components.clone()), &Options::default());
        assert_eq!(import.operations, [], "{schema}");
        assert!(
            import.left_out[0]
                .reason
                .contains("multipart body has files"),
            "{:?}",
            import.left_out
        );
    }
}

#[test]
fn forms_and_files_are_sent() {
    let form = json!({"type": "object", "properties": {"name": {"type": "string"}, "address": {"type": "object", "properties": {"city": {}}}}});
    let operation = only(body("application/x-www-form-urlencoded", form), json!({}));
    assert_eq!(
        operation.request["form"],
        json!({"name": "{{ name }}", "address": "{{ address | deep }}"})
    );
    let upload = json!({"type": "object", "properties": {"title": {"type": "string"}, "file": {"type": "string", "format": "binary"}}});
    let operation = only(body("multipart/form-data", upload), json!({}));
    assert_eq!(
        operation.request["multipart"],
        json!({"title": "{{ title }}", "file": {"base64": "{{ file }}", "filename": "file"}})
    );
    assert_eq!(
        operation.input_schema["properties"]["file"],
        json!({"type": "string", "contentEncoding": "base64", "description": "As base64."})
    );
    let uploads = json!({"type": "object", "properties": {"files": {"type": "array", "items": {"type": "string", "format": "binary"}}}});
    let operation = only(body("multipart/form-data", uploads), json!({}));
    assert_eq!(
        operation.request["multipart"],
        json!({"files": {"base64": "{{ files }}", "filename": "files"}})
    );
    assert_eq!(
        operation.input_schema["properties"]["files"]["items"],
        json!({"type": "string", "contentEncoding": "base64", "description": "As base64."})
    );
    let operation = only(body("application/pdf", json!({})), json!({}));
    assert_eq!(
        (
            &operation.request["body_base64"],
            &operation.request["headers"]
        ),
        (
            &json!("{{ body }}"),
            &json!({"content-type": "application/pdf"})
        )
    );
    let operation = only(
        body("application/xml", json!({"type": "object"})),
        json!({}),
    );
    assert_eq!(
        (&operation.request["body"], &operation.request["headers"]),
        (
            &json!("{{ body }}"),
            &json!({"content-type": "application/xml"})
        )
    );
}

#[test]
fn habits_of_published_documents_are_understood() {
    // A server without a scheme, a `#` that keeps paths apart, a body that is always empty, and
    // items' values at the array.
    let mut document = document(
        json!({"/a#one": {"post": {"operationId": "one", "requestBody": {"content": {
            "application/json-patch+json": {"schema": {"type": "array"}},
            "application/merge-patch+json": {"schema": {"type": "object", "properties": {
                "kinds": {"type": "array", "enum": ["x"], "items": {"type": "string"}}
            }}}
        }}}},
        "/b": {"get": {"operationId": "two", "requestBody": {"content": {"application/x-www-form-urlencoded": {"schema": {
            "type": "object", "properties": {}, "additionalProperties": false
        }}}}, "responses": {"200": {"content": {"application/json": {"schema": {"allOf": [{"$ref": "#/components/schemas/A"}]}}}}}}}}),
        json!({"schemas": {"A": {"type": "object", "properties": {"a": {"type": "string"}}}}}),
    );
    document["servers"] = json!([{"url": "//shop.example/v1"}]);
    let import = read(document, &Options::default());
    let [one, two] = import.operations.as_slice() else {
        panic!("{:?}", import.left_out)
    };
    assert_eq!(one.request["url"], "https://shop.example/v1/a");
    assert_eq!(
        one.request["headers"],
        json!({"content-type": "application/merge-patch+json"})
    );
    assert_eq!(
        one.input_schema["properties"]["kinds"],
        json!({"type": "array", "items": {"type": "string", "enum": ["x"]}})
    );
    assert_eq!(two.request.keys().collect::<Vec<_>>(), ["method", "url"]);
    let output = two.output_schema.as_ref().unwrap();
    assert_eq!(
        (&output["type"], output["allOf"].is_array()),
        (&json!("object"), true)
    );
}

#[test]
fn recursive_schemas_keep_their_references() {
    let tree = json!({"type": "object", "properties": {"name": {"type": "string"}, "children": {"type": "array", "items": {"$ref": "#/components/schemas/Tree"}}}});
    let operation = only(
        post(
            json!({"type": "object", "properties": {"root": {"$ref": "#/components/schemas/Tree"}}}),
        ),
        json!({"schemas": {"Tree": tree}}),
    );
    assert_eq!(
        operation.input_schema["properties"]["root"],
        json!({"$ref": "#/$defs/Tree"})
    );
    assert_eq!(
        operation.input_schema["$defs"]["Tree"],
        json!({"type": "object", "properties": {"name": {"type": "string"}, "children": {"type": "array", "items": {"$ref": "#/$defs/Tree"}}}})
    );
}

#[test]
fn schemas_of_version_3_0_become_json_schema() {
    let parameter = |schema: Value| json!({"name": "p", "in": "query", "schema": schema});
    for (written, expected) in [
        (
            json!({"type": "string", "nullable": true}),
            json!({"type": ["string", "null"]}),
        ),
        (
            json!({"type": "string", "enum": ["a"], "nullable": true}),
            json!({"type": ["string", "null"], "enum": ["a", null]}),
        ),
        (
            json!({"type": "number", "minimum": 0, "exclusiveMinimum": true}),
            json!({"type": "number", "exclusiveMinimum": 0}),
        ),
        (
            json!({"type": "integer", "default": 30, "description": "Page size"}),
            json!({"type": "integer", "description": "Page size. Default: 30."}),
        ),
        (
            json!({"type": "string", "example": "x", "xml": {"name": "y"}, "x-go-name": "Z"}),
            json!({"type": "string", "examples": ["x"]}),
        ),
        (json!({"type": "any"}), json!({})),
    ] {
        let mut document = document(
            get(json!({"parameters": [parameter(written.clone())]})),
            json!({}),
        );
        document["openapi"] = "3.0.3".into();
        let import = read(document, &Options::default());
        assert_eq!(
            import.operations[0].input_schema["properties"]["p"], expected,
            "{written}"
        );
    }
}

#[test]
fn selectors_choose_operations() {
    let paths = json!({
        "/orders": {"get": {"operationId": "listOrders", "tags": ["orders"]}, "post": {"operationId": "createOrder", "tags": ["orders"]}},
        "/users": {"get": {"operationId": "listUsers", "tags": ["admin"]}}
    });
    let chosen = |include: &[&str], exclude: &[&str]| {
        let selectors = |texts: &[&str]| {
            texts
                .iter()
                .map(|text| Selector::parse(text).unwrap())
                .collect()
        };
        let options = Options {
            include: selectors(include),
            exclude: selectors(exclude),
            ..Options::default()
        };
        let import = read(document(paths.clone(), json!({})), &options);
        let names: Vec<String> = import
            .operations
            .into_iter()
            .map(|operation| operation.name)
            .collect();
        (names.join(" "), import.warnings)
    };
    assert_eq!(chosen(&[], &[]).0, "listOrders createOrder listUsers");
    assert_eq!(chosen(&["GET /orders*"], &[]).0, "listOrders");
    assert_eq!(chosen(&["/orders"], &["POST *"]).0, "listOrders");
    assert_eq!(chosen(&["list*"], &[]).0, "listOrders listUsers");
    assert_eq!(chosen(&["orders"], &["createOrder"]).0, "listOrders");
    // An operation without an id is left out by its path.
    assert_eq!(chosen(&["*"], &["*user*"]).0, "listOrders createOrder");
    assert_eq!(chosen(&[], &["*/orders"]).0, "listUsers");
    assert_eq!(
        chosen(&["orders", "nothing"], &[]).1,
        ["`nothing` matches no operation"]
    );
    assert!(
        Selector::parse("FETCH /x")
            .unwrap_err()
            .contains("`fetch` is not an HTTP method")
    );
}

#[test]
fn missing_credentials_are_named() {
    let components = json!({"securitySchemes": {
        "token": {"type": "http", "scheme": "bearer"}, "key": {"type": "apiKey", "in": "header", "name": "X-Key"}
    }});
    let mut document = document(
        json!({"/a": {"get": {}}, "/b": {"get": {"security": [{"key": []}]}}, "/c": {"get": {"security": []}}}),
        components,
    );
    document["security"] = json!([{"token": []}]);
    let warnings = |options: &Options| read(document.clone(), options).warnings;
    assert_eq!(
        warnings(&Options::default()),
        [
            "1 operation needs credentials that are not given: `key`: write `headers: {X-Key: \"${env:KEY_SECRET}\"}`",
            "1 operation needs credentials that are not given: `token`: write `headers: {authorization: \"Bearer ${env:TOKEN_SECRET}\"}`"
        ]
    );
    let given = Options {
        headers: vec!["x-key".into(), "Authorization".into()],
        ..Options::default()
    };
    assert_eq!(warnings(&given), Vec::<String>::new());
}

#[test]
fn oauth_and_basic_are_asked_for_by_key() {
    let flow = json!({"clientCredentials": {"tokenUrl": "oauth/token", "scopes": {"read": "", "write": "", "other": ""}}});
    let components = json!({"securitySchemes": {
        "login": {"type": "oauth2", "flows": flow}, "user": {"type": "http", "scheme": "basic"}
    }});
    let paths = json!({
        "/a": {"get": {"security": [{"login": ["read"]}]}}, "/b": {"get": {"security": [{"login": ["write", "read"]}]}},
        "/c": {"get": {"security": [{"user": []}]}}
    });
    let options = Options {
        base_url: Some("https://shop.example/v1/".into()),
        ..Options::default()
    };
    assert_eq!(
        read(document(paths.clone(), components.clone()), &options).warnings,
        [
            "2 operations need credentials that are not given: `login`: write `auth: {oauth: {token_url: \
             \"https://shop.example/v1/oauth/token\", client_id: …, client_secret: \"${env:LOGIN_SECRET}\", scopes: [read, \
             write]}}`",
            "1 operation needs credentials that are not given: `user`: write `auth: {basic: {username: …, password: \
             \"${env:USER_SECRET}\"}}`"
        ]
    );
    let given = Options {
        has_auth: true,
        ..options
    };
    assert_eq!(
        read(document(paths, components), &given).warnings,
        Vec::<String>::new()
    );
}

#[test]
fn document_does_not_choose_another_host() {
    let paths =
        json!({"/a": {"get": {"servers": [{"url": "https://other.example"}]}}, "/b": {"get": {}}});
    let import = read(document(paths.clone(), json!({})), &Options::default());
    assert_eq!(
        import.left_out[0].reason,
        "it has a server of its own, `other.example`: write this host in `allow_hosts`"
    );
    let options = Options {
        allow_hosts: vec!["other.example".into()],
        ..Options::default()
    };
    assert_eq!(
        read(document(paths, json!({})), &options).operations[0].request["url"],
        "https://other.example/a"
    );
}

#[test]
fn fetched_document_does_not_choose_another_host() {
    let document = document(json!({"/a": {"get": {}}}), json!({}));
    let at = |url: &str| Options {
        document_url: Some(url.parse().unwrap()),
        ..Options::default()
    };
    let import = read(document.clone(), &at("https://docs.example/api.json"));
    assert_eq!(
        import.left_out[0].reason,
        "the document's server is `shop.example`, which is not the document's own host: write `base_url`"
    );
    assert_eq!(
        read(document.clone(), &at("https://shop.example/api.json"))
            .operations
            .len(),
        1
    );
    let base_url = Some("https://shop.example/v1".to_owned());
    let options = Options {
        base_url,
        ..at("https://docs.example/api.json")
    };
    assert_eq!(
        read(document, &options).operations[0].request["url"],
        "https://shop.example/v1/a"
    );
}

#[test]
fn broken_operations_are_left_out_alone() {
    let paths = json!({
        "/a": {"get": {"parameters": [{"$ref": "#/components/parameters/None"}]}},
        "/b": {"post": {"requestBody": {"content": {"application/json": {"schema": {"$ref": "other.yaml#/X"}}}}}},
        "/c": {"$ref": "other.yaml#/paths/c"},
        "/e": {"get": {}}
    });
    let import = read(document(paths, json!({})), &Options::default());
    assert_eq!((import.found, import.operations.len()), (3, 1));
    assert_eq!(
        import.warnings,
        [
            "the path /c is left out: `other.yaml#/paths/c` is in another document; bundle the documents into one"
        ]
    );
    let reasons: Vec<&str> = import
        .left_out
        .iter()
        .map(|left_out| left_out.reason.as_str())
        .collect();
    assert_eq!(
        reasons,
        [
            "`#/components/parameters/None` does not exist",
            "`other.yaml#/X` is in another document; bundle the documents into one"
        ]
    );
}

#[test]
fn text_that_is_no_document_is_refused() {
    for (text, says) in [
        ("swagger: '2.0'", "version 2.0 of OpenAPI (Swagger)"),
        ("openapi: 4.0.0", "has version 4.0.0"),
        ("a: [", "line 2: not YAML"),
        ("{\"a\": }", "line 1: not JSON"),
        ("hello: world", "no `openapi`"),
        ("", "the document is empty"),
    ] {
        let error = Document::parse(text).unwrap_err();
        assert!(error.contains(says), "{text}: {error}");
    }
}

#[test]
fn yaml_aliases_are_bounded() {
    let mut text = "openapi: 3.1.0\na0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..9 {
        let items = vec![format!("*a{}", level - 1); 10].join(", ");
        text += &format!("a{level}: &a{level} [{items}]\n");
    }
    assert!(
        Document::parse(&text)
            .unwrap_err()
            .contains("too many values")
    );
    let merged = Document::parse("openapi: 3.1.0\nx: &x {a: 1, b: 2}\ny: {<<: *x, b: 3}").unwrap();
    assert_eq!(merged.get("y"), Some(&json!({"b": 3, "a": 1})));
    let document =
        Document::parse("openapi: 3.1.0\nx: &x {a: 1}\npaths: {/a: {get: {responses: {200: *x}}}}")
            .unwrap();
    assert_eq!(
        import(
            &document,
            &Options {
                base_url: Some("https://x.example".into()),
                ..Options::default()
            }
        )
        .found,
        1
    );
}

#[test]
fn references_are_written_out_unless_that_would_not_end_or_is_too_long() {
    let leaf = json!({"type": "string"});
    let order =
        json!({"type": "object", "properties": {"item": {"$ref": "#/components/schemas/Item"}}});
    let item =
        json!({"type": "object", "properties": {"name": {"$ref": "#/components/schemas/Leaf"}}});
    let schemas = json!({"schemas": {"Order": order, "Item": item, "Leaf": leaf}});
    let fields = json!({"order": {"$ref": "#/components/schemas/Order"}});
    let operation = only(
        post(json!({"type": "object", "properties": fields})),
        schemas.clone(),
    );
    let found = operation
        .input_schema
        .pointer("/properties/order/properties/item/properties/name");
    assert_eq!(found, Some(&leaf));
    // It refers to itself in a list.
    let tree = json!({"oneOf": [{"type": "string"}, {"type": "array", "items": {"$ref": "#/components/schemas/Tree"}}]});
    let fields = json!({"tree": {"$ref": "#/components/schemas/Tree"}, "leaf": {"$ref": "#/components/schemas/Leaf"}});
    let operation = only(
        post(json!({"type": "object", "properties": fields})),
        json!({"schemas": {"Tree": tree, "Leaf": leaf}}),
    );
    assert_eq!(
        operation.input_schema["properties"],
        json!({"tree": {"$ref": "#/$defs/Tree"}, "leaf": leaf})
    );
    let many: serde_json::Map<String, Value> = (0..2_500)
        .map(|number| {
            let field = json!({"$ref": "#/components/schemas/Leaf"});
            (format!("field_{number}"), field)
        })
        .collect();
    let operation = only(post(json!({"type": "object", "properties": many})), schemas);
    let found = operation.input_schema.pointer("/properties/field_7");
    assert_eq!(found, Some(&json!({"$ref": "#/$defs/Leaf"})));
}

#[test]
fn constraints_beside_a_reference_count_from_version_3_1_on() {
    let constraints = [
        json!({"minLength": 2}),
        json!({"not": {"const": "x"}}),
        json!({"anyOf": [{"maxLength": 9}]}),
        json!({"patternProperties": {"^a": {"type": "string"}}}),
        json!({"required": ["a"]}),
    ];
    for constraint in constraints {
        let mut field = constraint.clone();
        field["$ref"] = "#/components/schemas/Code".into();
        field["x-note"] = "internal".into();
        let mut document = document(
            post(json!({"type": "object", "properties": {"code": field}})),
            json!({"schemas": {"Code": {"type": "string"}}}),
        );
        for (version, expected) in [
            ("3.1.0", json!({"allOf": [{"type": "string"}, constraint]})),
            ("3.0.3", json!({"type": "string"})),
        ] {
            document["openapi"] = version.into();
            let operation = read(document.clone(), &Options::default())
                .operations
                .remove(0);
            assert_eq!(operation.input_schema["properties"]["code"], expected);
        }
    }
    let field = json!({"$ref": "#/components/schemas/Code", "x-note": "internal"});
    let operation = only(
        post(json!({"type": "object", "properties": {"code": field}})),
        json!({"schemas": {"Code": {"type": "string"}}}),
    );
    assert_eq!(
        operation.input_schema["properties"]["code"],
        json!({"type": "string"})
    );
}

#[test]
fn unknown_types_and_closed_results_are_left_out() {
    for types in [json!([]), json!(["string", "file"]), json!("file")] {
        let field = json!({"type": types, "maxLength": 5, "minLength": "1", "maxItems": -1});
        let operation = only(
            post(json!({"type": "object", "properties": {"a": field}})),
            json!({}),
        );
        assert_eq!(
            operation.input_schema["properties"]["a"],
            json!({"maxLength": 5}),
            "{types}"
        );
    }
    for (others, expected) in [
        (json!({"type": "integer"}), Some("integer")),
        (json!(false), None),
    ] {
        let schema = json!({"type": "object", "additionalProperties": others});
        let operation = only(
            get(
                json!({"responses": {"200": {"content": {"application/json": {"schema": schema}}}}}),
            ),
            json!({}),
        );
        let output = operation.output_schema.unwrap();
        let found = output.pointer("/additionalProperties/type/0");
        assert_eq!(found.and_then(Value::as_str), expected, "{output}");
    }
}

#[test]
fn long_descriptions_are_cut_at_the_limit() {
    for (text, length) in [("x".repeat(3_000), 1024), ("word ".repeat(1_000), 1024)] {
        let operation = only(get(json!({"description": text})), json!({}));
        assert!(operation.description.ends_with('…'));
        let found = operation.description.chars().count();
        assert!(found <= length && found > length - 6, "{found}");
    }
}

#[test]
fn shapes_of_values_decide_how_they_are_sent() {
    for (parameter, placeholder) in [
        (
            json!({"content": {"text/plain": {"schema": {"type": "string"}}}}),
            "{{ p }}",
        ),
        (
            json!({"content": {"application/json": {"schema": {"type": "string"}}}}),
            "{{ p | json }}",
        ),
        (
            json!({"content": {"text/plain": {"schema": {"type": ["string", "integer"]}}}}),
            "{{ p }}",
        ),
        (
            json!({"content": {"text/plain": {"schema": {"type": ["string", "array"]}}}}),
            "{{ p | json }}",
        ),
        (
            json!({"content": {"text/plain": {"schema": {"type": ["string", "object"]}}}}),
            "{{ p | json }}",
        ),
    ] {
        let mut parameter = parameter;
        (parameter["name"], parameter["in"]) = ("p".into(), "query".into());
        let operation = only(get(json!({"parameters": [parameter.clone()]})), json!({}));
        assert_eq!(operation.request["query"]["p"], placeholder, "{parameter}");
    }
}

#[test]
fn body_of_text_is_described_by_its_type() {
    for (media_type, description) in [
        ("text/plain", None),
        ("text/csv", Some("The body. As text/csv.")),
    ] {
        let operation = only(body(media_type, json!({"type": "string"})), json!({}));
        let found = operation.input_schema["properties"]["body"].get("description");
        assert_eq!(found.and_then(Value::as_str), description, "{media_type}");
    }
}

#[test]
fn key_in_a_cookie_is_asked_for_until_it_is_given() {
    let components =
        json!({"securitySchemes": {"session": {"type": "apiKey", "in": "cookie", "name": "sid"}}});
    let document = document(
        json!({"/a": {"get": {"security": [{"session": []}]}}}),
        components,
    );
    assert_eq!(
        read(document.clone(), &Options::default()).warnings,
        [
            "1 operation needs credentials that are not given: `session`: write `headers: {cookie: \
          \"sid=${env:SESSION_SECRET}\"}`"
        ]
    );
    let given = Options {
        headers: vec!["Cookie".into()],
        ..Options::default()
    };
    assert_eq!(read(document, &given).warnings, Vec::<String>::new());
}

#[test]
fn deep_references_are_kept() {
    let schemas: serde_json::Map<String, Value> = (0..150)
        .map(|number| {
            let next = format!("#/components/schemas/S{}", number + 1);
            let schema = match number {
                149 => json!({"type": "string"}),
                _ => json!({"type": "object", "properties": {"next": {"$ref": next}}}),
            };
            (format!("S{number}"), schema)
        })
        .collect();
    let fields = json!({"first": {"$ref": "#/components/schemas/S0"}});
    let operation = only(
        post(json!({"type": "object", "properties": fields})),
        json!({"schemas": schemas}),
    );
    assert_eq!(
        operation.input_schema["properties"]["first"],
        json!({"$ref": "#/$defs/S0"})
    );
}

#[test]
fn server_of_a_document_is_a_whole_url_of_http() {
    for (server, is_used) in [
        ("https://shop.example/v1", true),
        ("ftp://shop.example/v1", false),
        ("https://shop.example/v1?key=1", false),
        ("/v1", false),
    ] {
        let mut document = document(get(json!({})), json!({}));
        document["servers"] = json!([{"url": server}]);
        let import = read(document, &Options::default());
        assert_eq!(import.operations.len(), usize::from(is_used), "{server}");
    }
}

#[test]
fn fields_that_only_answers_have_are_no_arguments_at_any_depth() {
    let order = json!({"type": "object", "required": ["id", "name"], "properties": {
        "id": {"type": "string", "readOnly": true}, "name": {"type": "string"}
    }});
    let operation = only(
        post(json!({"type": "object", "properties": {"order": order}})),
        json!({}),
    );
    assert_eq!(
        operation.input_schema["properties"]["order"],
        json!({"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}})
    );
}
