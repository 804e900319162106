//! Finds the id of a JSON-RPC message that is too long or broken to be parsed.
//!
//! The scan reads each byte once, and keeps at most one short name or value of the outermost
//! object.

use serde_json::Value;

/// Longest id and longest member name that are recognized, in bytes.
const MAX_WORD_BYTES: usize = 64;

/// Scans a JSON object as its bytes arrive, and keeps the value of the `id` member of the outermost
/// object.
#[derive(Default)]
pub(crate) struct IdScanner {
    depth: usize,
    in_text: bool,
    escaped: bool,
    /// The current string or number, if it belongs to the outermost object.
    word: Vec<u8>,
    was_text: bool,
    is_id: bool,
    id: Option<Value>,
    /// It has a member `method`: it is a request or a notification.
    has_method: bool,
    /// It has a member that only JSON-RPC messages have: `jsonrpc`, `result` or `error`.
    has_answer_member: bool,
    /// The position of the scan relative to the outermost object.
    position: ScanPosition,
}

/// The position relative to the outermost object, judged by braces.
#[derive(Default, PartialEq, Eq)]
enum ScanPosition {
    #[default]
    Before,
    Within,
    After,
    /// There is something before or after the object.
    Surrounded,
}

impl IdScanner {
    /// Scans the next bytes of the message.
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.scan_byte(byte));
    }

    /// If the message may be an answer: the id of its request, a string or an integer, if one was
    /// found.
    pub(crate) fn answered_id(self) -> Option<Value> {
        self.id.filter(|_| !self.has_method)
    }

    /// If the message is a request: its own id.
    pub(crate) fn request_id(self) -> Option<Value> {
        self.id.filter(|_| {
            self.has_method && matches!(self.position, ScanPosition::Within | ScanPosition::After)
        })
    }

    /// Whether it has a member of JSON-RPC. Other objects, such as log lines, may have an id too.
    pub(crate) fn has_json_rpc_member(&self) -> bool {
        self.has_answer_member
    }

    /// Whether the bytes are exactly one object, judged by braces. Otherwise other output surrounds
    /// the message, or it is cut off.
    pub(crate) fn is_single_object(&self) -> bool {
        self.position == ScanPosition::After
    }

    fn scan_byte(&mut self, byte: u8) {
        self.position = match self.position {
            ScanPosition::Before if byte == b'{' => ScanPosition::Within,
            ScanPosition::Before | ScanPosition::After if !byte.is_ascii_whitespace() => {
                ScanPosition::Surrounded
            }
            ScanPosition::Within if !self.in_text && self.depth == 1 && byte == b'}' => {
                ScanPosition::After
            }
            _ => std::mem::take(&mut self.position),
        };
        if self.in_text {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' => {
                    self.escaped = true;
                    self.mark_word_unrecognized();
                }
                b'"' => self.in_text = false,
                _ => self.push_word_byte(byte),
            }
            return;
        }
        match byte {
            b'"' => (self.in_text, self.was_text) = (true, true),
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => {
                self.end_member();
                self.depth = self.depth.saturating_sub(1);
            }
            b':' if self.depth == 1 => {
                self.is_id = self.word == b"id";
                self.has_method |= self.word == b"method";
                self.has_answer_member |= matches!(&*self.word, b"jsonrpc" | b"result" | b"error");
                self.word.clear();
                self.was_text = false;
            }
            b',' => self.end_member(),
            _ if byte.is_ascii_whitespace() => {}
            _ => self.push_word_byte(byte),
        }
    }

    fn push_word_byte(&mut self, byte: u8) {
        if self.depth == 1 && self.word.len() <= MAX_WORD_BYTES {
            self.word.push(byte);
        }
    }

    /// Marks the current string as not recognized, by making it too long. A string with escapes is
    /// not decoded.
    fn mark_word_unrecognized(&mut self) {
        if self.depth == 1 {
            self.word.resize(MAX_WORD_BYTES + 1, b' ');
        }
    }

    fn end_member(&mut self) {
        if self.depth != 1 {
            return;
        }
        let word = std::mem::take(&mut self.word);
        if self.is_id
            && word.len() <= MAX_WORD_BYTES
            && let Ok(word) = String::from_utf8(word)
        {
            self.id = match word.parse::<i64>() {
                _ if self.was_text => Some(Value::from(word)),
                Ok(number) => Some(Value::from(number)),
                Err(_) => None,
            };
        }
        (self.is_id, self.was_text) = (false, false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered_id_of(message: &str) -> Option<Value> {
        let mut scan = IdScanner::default();
        message
            .as_bytes()
            .chunks(3)
            .for_each(|chunk| scan.feed(chunk));
        scan.answered_id()
    }

    #[test]
    fn answered_id_is_found_in_any_position() {
        let seven = Some(Value::from(7));
        assert_eq!(
            answered_id_of(r#"{"jsonrpc":"2.0","id":7,"result":{"id":9,"x":[{"id":8}]}}"#),
            seven
        );
        assert_eq!(
            answered_id_of(
                r#"{ "result" : {"text":"\",\"id\":1,{[", "id": 2}, "jsonrpc":"2.0", "id" : 7 }"#
            ),
            seven
        );
        assert_eq!(answered_id_of(r#"{"id":"7"}"#), Some(Value::from("7")));
        assert_eq!(answered_id_of(r#"{"result":["id",7],"n":"id"}"#), None);
        assert_eq!(
            answered_id_of(r#"{"method":"ping","id":7}"#),
            None,
            "its own request"
        );
        assert_eq!(
            answered_id_of(r#"{"id":7,"params":{},"method":"sampling/createMessage"}"#),
            None
        );
        assert_eq!(answered_id_of("no JSON at all, ] } :"), None);
    }

    #[test]
    fn request_id_is_found_unless_doubtful() {
        let asks = |message: &str| {
            let mut scan = IdScanner::default();
            scan.feed(message.as_bytes());
            scan.request_id()
        };
        assert_eq!(
            asks(r#"{"method":"tools/call","params":{"a":1,"a":2},"jsonrpc":"2.0","id":7}"#),
            Some(Value::from(7))
        );
        assert_eq!(
            asks(r#"{"id":"x","method":"tools/call","params":{"#),
            Some(Value::from("x")),
            "cut off"
        );
        let long = "x".repeat(65);
        let doubtful = [
            r#"{"id":"a\n","method":"m"}"#,
            r#"{"id":1.5,"method":"m"}"#,
            r#"say {"id":1,"method":"m"}"#,
            r#"{"id":1,"result":2}"#,
        ];
        for message in doubtful
            .into_iter()
            .map(str::to_owned)
            .chain([format!(r#"{{"id":"{long}","method":"m"}}"#)])
        {
            assert_eq!(asks(&message), None, "{message}");
        }
    }

    #[test]
    fn log_line_is_not_an_answer() {
        let is_answer = |message: &str| {
            let mut scan = IdScanner::default();
            scan.feed(message.as_bytes());
            scan.has_json_rpc_member() && scan.answered_id() == Some(Value::from(7))
        };
        for answer in [
            r#"40% {"id":7,"result":{}}"#,
            r#"{"jsonrpc":"2.0","id":7}"#,
            r#"{"error":1,"id":7,"#,
        ] {
            assert!(is_answer(answer), "{answer}");
        }
        for other in [
            r#"{"id":7,"level":"info"}"#,
            r#"{"id":7,"log":{"result":1}}"#,
            r#"{"jsonrpc":"2.0","result":{"id":7}"#,
        ] {
            assert!(!is_answer(other), "{other}");
        }
    }

    #[test]
    fn single_object_excludes_surrounding_output() {
        let is_whole = |message: &str| {
            let mut scan = IdScanner::default();
            message
                .as_bytes()
                .chunks(3)
                .for_each(|chunk| scan.feed(chunk));
            scan.is_single_object()
        };
        for message in [r#" {"id":7,"result":{"text":"}\"}{"}} "#, r#"{"id":7}"#] {
            assert!(is_whole(message), "{message}");
        }
        for other in [
            "",
            "xxxx",
            r#"xx{"id":7}"#,
            r#"{"id":7}{"id":8}"#,
            r#"{"a":"xx{"id":7}"#,
            r#"{"a":{"id":7}"#,
        ] {
            assert!(!is_whole(other), "{other}");
        }
    }
}
