use super::*;

#[test]
fn placeholder() {
    assert_eq!(read("hello").warnings, ["the text has no tool calls"]);
}
