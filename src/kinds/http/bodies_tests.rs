//! Tests: the bodies and fields of requests.

use super::*;

#[tokio::test]
async fn bodies_have_media_type_and_idempotency_key() {
    for (body, media_type, sent) in [
        (
            json!({"json": {"ids": "{{ ids }}", "note": "{{ note }}"}}),
            "application/json",
            r#"{"ids":[1,2]}"#,
        ),
        (json!({"json": "{{ note }}"}), "", ""),
        (
            json!({"body": "{{ city }}: {{ ids }}"}),
            "text/plain; charset=utf-8",
            "Oslo & co: [1,2]",
        ),
        (
            json!({"form": {"c": "{{ city }}", "i": "{{ ids }}"}}),
            "application/x-www-form-urlencoded",
            "c=Oslo+%26+co&i=1&i=2",
        ),
    ] {
        let mut server = start_server(ok_reply("content-type: text/plain", "done")).await;
        let mut request = json!({"method": "post"});
        request
            .as_object_mut()
            .unwrap()
            .append(&mut body.as_object().unwrap().clone());
        let runner = build_tool(&server, request, json!({}), Effect::Write);
        let (context, invocation) = test_context();
        let arguments = json_object(json!({"city": "Oslo & co", "ids": [1, 2]}));
        assert_eq!(
            runner.call(arguments, context).await,
            Ok(ToolResult::text("done"))
        );
        let request_text = server.requests.recv().await.unwrap();
        assert!(
            request_text.starts_with("POST / HTTP/1.1\r\n")
                && request_text.ends_with(&format!("\r\n\r\n{sent}")),
            "{request_text}"
        );
        assert!(
            request_text.contains(&format!("idempotency-key: {}\r\n", invocation.id)),
            "{request_text}"
        );
        assert_eq!(
            request_text.contains(&format!("content-type: {media_type}\r\n")),
            !media_type.is_empty(),
            "{request_text}"
        );
    }
}

#[tokio::test]
async fn cookies_share_one_field() {
    let request = json!({"headers": {"Cookie": "session=1"}, "cookies": {"city": "{{ city }}", "note": "{{ note }}"}});
    let (head, _) = sent_request(request, json!({"city": "a b"})).await;
    let cookies: Vec<&str> = head
        .lines()
        .filter(|line| line.starts_with("cookie:"))
        .collect();
    assert_eq!(cookies, ["cookie: session=1; city=a%20b"]);
}

#[tokio::test]
async fn whole_multipart_bodies_keep_types() {
    let request = json!({"method": "POST", "multipart": "{{ city }}"});
    let fields =
        json!({"object": {"a": 1}, "list": ["x", null, {"b": 2}], "none": null, "text": "t"});
    let (_, body) = sent_request(request, json!({"city": fields})).await;
    let parts: Vec<&str> = body
        .split("--toolcrib-")
        .filter_map(|part| {
            part.split_once("form-data; ")
                .map(|(_, part)| part.trim_end())
        })
        .collect();
    let json = "\r\ncontent-type: application/json\r\n\r\n";
    assert_eq!(
        parts,
        [
            format!("name=\"object\"{json}{{\"a\":1}}"),
            "name=\"list\"\r\n\r\nx".to_owned(),
            format!("name=\"list\"{json}{{\"b\":2}}"),
            "name=\"text\"\r\n\r\nt".to_owned(),
        ]
    );
}

#[tokio::test]
async fn list_of_files_becomes_parts() {
    let request =
        json!({"method": "POST", "multipart": {"f": {"base64": "{{ ids }}", "filename": "f.txt"}}});
    let (_, body) = sent_request(
        request.clone(),
        json!({"city": "", "ids": ["YQ==", null, "Yg=="]}),
    )
    .await;
    let file = |text: &str| {
        format!(
            "name=\"f\"; filename=\"f.txt\"\r\ncontent-type: application/octet-stream\r\n\r\n{text}\r\n"
        )
    };
    assert!(
        body.contains(&file("a")) && body.contains(&file("b")),
        "{body}"
    );
    assert_eq!(body.matches("filename=").count(), 2);
    let server = start_server(Reply::Silence).await;
    let tool = build_tool(&server, request, json!({}), Effect::Write);
    let refused = call_tool(&*tool, json!({"city": "", "ids": ["YQ==", "!"]})).await;
    assert!(
        format!("{refused:?}").contains("`ids` is not base64."),
        "{refused:?}"
    );
}
