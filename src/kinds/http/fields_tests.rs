//! Tests: the header fields of requests.

use super::*;

#[test]
fn single_braces_count_in_urls_only() {
    let request = json!({
        "url": "https://api.example.com/{x}", "query": {"url": "https://other.example/{y}"}, "headers": {"url": "{z} {note}"}
    });
    let (_, faults) = try_build(json!({"request": request}), Effect::Read);
    let paths: Vec<String> = faults.iter().map(|fault| fault.path.join(".")).collect();
    assert_eq!(paths, ["request.url", "request.headers.url"], "{faults:?}");
}

#[tokio::test]
async fn manifest_headers_take_precedence() {
    let mut server = start_server(ok_reply("content-type: text/plain", "done")).await;
    let headers = json!({"Accept": "text/csv", "USER-AGENT": "me", "idempotency-key": "{{ city }}", "content-type": "a/b"});
    let tool = build_tool(
        &server,
        json!({"method": "PUT", "body": "", "headers": headers}),
        json!({}),
        Effect::Idempotent,
    );
    call_tool(&*tool, json!({"city": "k-1"})).await.unwrap();
    let request_text = server.requests.recv().await.unwrap();
    for line in [
        "accept: text/csv",
        "user-agent: me",
        "idempotency-key: k-1",
        "content-type: a/b",
    ] {
        assert!(
            request_text.contains(&format!("{line}\r\n")),
            "{request_text}"
        );
    }
}

#[tokio::test]
async fn header_values_reject_control_characters() {
    let server = start_server(ok_reply("x: y", "")).await;
    let tool = build_tool(
        &server,
        json!({"headers": {"x-a": "a {{ city }}"}}),
        json!({}),
        Effect::Read,
    );
    for bad in ["a\r\nHost: evil", "a\nb", "a\0", "ü", "\u{7f}"] {
        let faults = tool.value_faults(Values::from_arguments(&json_object(json!({"city": bad}))));
        assert_eq!(
            faults
                .iter()
                .map(|fault| fault.pointer())
                .collect::<Vec<_>>(),
            ["/city"],
            "{bad:?}"
        );
        assert!(matches!(
            call_tool(&*tool, json!({"city": bad})).await,
            Err(ToolError::InvalidArguments(_))
        ));
    }
    assert_eq!(
        tool.value_faults(Values::from_arguments(&json_object(
            json!({"city": "plain, (text)"})
        ))),
        []
    );
}

#[tokio::test]
async fn number_of_header_fields_is_bounded_in_words() {
    let reply = |fields: usize| {
        let fields: Vec<String> = (0..fields).map(|at| format!("x-{at}: 1")).collect();
        ok_reply(&fields.join("\r\n"), "fine")
    };
    let result = call_with_reply(reply(250), json!({})).await.unwrap();
    assert_eq!(result.as_text(), "fine");
    let (_, _, message) = expect_upstream_error(call_with_reply(reply(300), json!({})).await);
    assert!(message.contains("more than 256 header fields"), "{message}");
}
