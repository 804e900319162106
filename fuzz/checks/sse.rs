//! Streams of events from MCP servers. Chunks make no difference, and the SDK can read each event.

use futures_util::FutureExt;
use toolcrib::sources::mcp::fuzzing::read_events;

pub(crate) fn check(data: &[u8]) {
    let Some((size, text)) = data.split_first() else {
        return;
    };
    let read = |chunks: Vec<Vec<u8>>| {
        read_events(chunks)
            .now_or_never()
            .expect("nothing to wait for")
    };
    let whole = read(vec![text.to_vec()]);
    let size = usize::from(*size).clamp(1, 64);
    let chunks = text.chunks(size).map(<[u8]>::to_vec).collect();
    assert_eq!(read(chunks), whole);
    for data in whole.iter().flatten().flatten() {
        let message: serde_json::Value = serde_json::from_str(data).expect("the data is JSON");
        assert!(message.is_object(), "{message}");
    }
}
