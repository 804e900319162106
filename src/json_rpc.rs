//! Finds the id of a JSON-RPC message that is too long or broken to be parsed.
//!
//! The scan reads each byte once, and keeps at most one short name or value of the outermost object.

use serde_json::Value;

/// Longest id and longest member name that are recognized, in bytes.
const LONGEST: usize = 64;

/// Scans a JSON object as its bytes arrive, and keeps the value of the `id` member of the outermost object.
#[derive(Default)]
pub(crate) struct Scan {
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
    is_answer: bool,
    /// The position of the scan relative to the outermost object.
    place: ScanPosition,
}

/// The position relative to the outermost object, judged by braces.
#[derive(Default, PartialEq, Eq)]
enum ScanPosition {
    #[default]
    Before,
    Within,
    Behind,
    /// There is something before or after the object.
    Off,
}

impl Scan {
    /// Scans the next bytes of the message.
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.byte(byte));
    }

    /// If the message may be an answer: the id of its request, a string or an integer, if one was found.
    pub(crate) fn answers(self) -> Option<Value> {
        self.id.filter(|_| !self.has_method)
    }

    /// If the message is a request: its own id.
    pub(crate) fn asks(self) -> Option<Value> {
        self.id.filter(|_| self.has_method && matches!(self.place, ScanPosition::Within | ScanPosition::Behind))
    }

    /// Whether it has a member of JSON-RPC. Other objects, such as log lines, may have an id too.
    pub(crate) fn is_answer(&self) -> bool {
        self.is_answer
    }

    /// Whether the bytes are exactly one object, judged by braces. Otherwise other output surrounds the message, or it
    /// is cut off.
    pub(crate) fn is_whole(&self) -> bool {
        self.place == ScanPosition::Behind
    }

    fn byte(&mut self, byte: u8) {
        self.place = match self.place {
            ScanPosition::Before if byte == b'{' => ScanPosition::Within,
            ScanPosition::Before | ScanPosition::Behind if !byte.is_ascii_whitespace() => ScanPosition::Off,
            ScanPosition::Within if !self.in_text && self.depth == 1 && byte == b'}' => ScanPosition::Behind,
            _ => std::mem::take(&mut self.place),
        };
        if self.in_text {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' => {
                    self.escaped = true;
                    self.spoil();
                }
                b'"' => self.in_text = false,
                _ => self.keep(byte),
            }
            return;
        }
        match byte {
            b'"' => (self.in_text, self.was_text) = (true, true),
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => {
                self.member_ends();
                self.depth = self.depth.saturating_sub(1);
            }
            b':' if self.depth == 1 => {
                self.is_id = self.word == b"id";
                self.has_method |= self.word == b"method";
                self.is_answer |= matches!(&*self.word, b"jsonrpc" | b"result" | b"error");
                self.word.clear();
                self.was_text = false;
            }
            b',' => self.member_ends(),
            _ if byte.is_ascii_whitespace() => {}
            _ => self.keep(byte),
        }
    }

    fn keep(&mut self, byte: u8) {
        if self.depth == 1 && self.word.len() <= LONGEST {
            self.word.push(byte);
        }
    }

    /// Marks the current string as not recognized, by making it too long. A string with escapes is not decoded.
    fn spoil(&mut self) {
        if self.depth == 1 {
            self.word.resize(LONGEST + 1, b' ');
        }
    }

    fn member_ends(&mut self) {
        if self.depth != 1 {
            return;
        }
        let word = std::mem::take(&mut self.word);
        if self.is_id
            && word.len() <= LONGEST
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

    fn answers(message: &str) -> Option<Value> {
        let mut scan = Scan::default();
        message.as_bytes().chunks(3).for_each(|chunk| scan.feed(chunk));
        scan.answers()
    }

    #[test]
    fn the_id_is_found_wherever_it_stands() {
        let seven = Some(Value::from(7));
        assert_eq!(answers(r#"{"jsonrpc":"2.0","id":7,"result":{"id":9,"x":[{"id":8}]}}"#), seven);
        assert_eq!(answers(r#"{ "result" : {"text":"\",\"id\":1,{[", "id": 2}, "jsonrpc":"2.0", "id" : 7 }"#), seven);
        assert_eq!(answers(r#"{"id":"7"}"#), Some(Value::from("7")));
        assert_eq!(answers(r#"{"result":["id",7],"n":"id"}"#), None);
        assert_eq!(answers(r#"{"method":"ping","id":7}"#), None, "its own request");
        assert_eq!(answers(r#"{"id":7,"params":{},"method":"sampling/createMessage"}"#), None);
        assert_eq!(answers("no JSON at all, ] } :"), None);
    }

    #[test]
    fn a_request_is_known_by_its_id_unless_that_is_in_doubt() {
        let asks = |message: &str| {
            let mut scan = Scan::default();
            scan.feed(message.as_bytes());
            scan.asks()
        };
        assert_eq!(
            asks(r#"{"method":"tools/call","params":{"a":1,"a":2},"jsonrpc":"2.0","id":7}"#),
            Some(Value::from(7))
        );
        assert_eq!(asks(r#"{"id":"x","method":"tools/call","params":{"#), Some(Value::from("x")), "cut off");
        let long = "x".repeat(65);
        let doubtful = [
            r#"{"id":"a\n","method":"m"}"#,
            r#"{"id":1.5,"method":"m"}"#,
            r#"say {"id":1,"method":"m"}"#,
            r#"{"id":1,"result":2}"#,
        ];
        for message in doubtful.into_iter().map(str::to_owned).chain([format!(r#"{{"id":"{long}","method":"m"}}"#)]) {
            assert_eq!(asks(&message), None, "{message}");
        }
    }

    #[test]
    fn what_is_no_message_is_told_from_an_answer() {
        let is_answer = |message: &str| {
            let mut scan = Scan::default();
            scan.feed(message.as_bytes());
            scan.is_answer() && scan.answers() == Some(Value::from(7))
        };
        for answer in [r#"40% {"id":7,"result":{}}"#, r#"{"jsonrpc":"2.0","id":7}"#, r#"{"error":1,"id":7,"#] {
            assert!(is_answer(answer), "{answer}");
        }
        for other in
            [r#"{"id":7,"level":"info"}"#, r#"{"id":7,"log":{"result":1}}"#, r#"{"jsonrpc":"2.0","result":{"id":7}"#]
        {
            assert!(!is_answer(other), "{other}");
        }
    }

    #[test]
    fn a_message_is_told_from_what_is_said_before_one() {
        let is_whole = |message: &str| {
            let mut scan = Scan::default();
            message.as_bytes().chunks(3).for_each(|chunk| scan.feed(chunk));
            scan.is_whole()
        };
        for message in [r#" {"id":7,"result":{"text":"}\"}{"}} "#, r#"{"id":7}"#] {
            assert!(is_whole(message), "{message}");
        }
        for other in ["", "xxxx", r#"xx{"id":7}"#, r#"{"id":7}{"id":8}"#, r#"{"a":"xx{"id":7}"#, r#"{"a":{"id":7}"#] {
            assert!(!is_whole(other), "{other}");
        }
    }
}
