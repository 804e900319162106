//! The baseline of `benches/run`: an axum handler with nothing of Toolcrib around it.
//!
//! `POST /bare` parses the same JSON body into a `Value` and answers fixed bytes (`--body FILE`:
//! what Toolcrib answered to a cached call), so that both sides read and write the same amount.
//! What Toolcrib adds is the ratio to this.

use std::error::Error;
use std::io::Write as _;

use axum::extract::Json;
use axum::http::header::CONTENT_TYPE;
use axum::routing::post;
use axum::serve::ListenerExt as _;
use bytes::Bytes;
use serde_json::Value;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let body = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => Bytes::from_static(br#"{"content":[{"type":"text","text":"14"}]}"#),
        ["--body", file] => Bytes::from(std::fs::read(file)?),
        _ => return Err("usage: bare [--body FILE]".into()),
    };

    // Cloning Bytes counts a reference: the answer is built once.
    let answer = async move |Json(asked): Json<Value>| {
        std::hint::black_box(asked);
        ([(CONTENT_TYPE, "application/json")], body.clone())
    };
    let app = axum::Router::new().route("/bare", post(answer));

    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    // The same line as `toolcrib serve`, so that one reader serves both.
    writeln!(
        std::io::stdout(),
        "listening on http://{}",
        listener.local_addr()?
    )?;
    // Small answers go out at once; a refusal of the option only costs speed.
    let listener = listener.tap_io(|socket| drop(socket.set_nodelay(true)));
    axum::serve(listener, app).await?;
    Ok(())
}
