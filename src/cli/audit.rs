//! `toolcrib audit`: the record of administration, newest first, from a running server or from the ledger.
//! `audit verify` recomputes its hashes.

use std::sync::Arc;

use clap::Subcommand;
use reqwest::StatusCode;
use serde_json::{Value, json};

use super::Failure;
use super::client::{Client, ServerArgs, encode_query, print_answer, successful};
use super::ledger_source::LedgerArgs;
use super::output::{OutputArgs, print_json, print_line, print_table};
use super::table::{Content, Table};
use crate::audit::{Entry, verify};
use crate::environment::Environment;
use crate::http::AuditPage;
use crate::ledger::{AuditQuery, Ledger};

/// Entries that are read at a time.
const PAGE_SIZE: u32 = 500;
/// The options that may also stand behind `verify`.
pub(super) const SHARED_OPTIONS: [&str; 5] = ["server", "key", "ledger", "manifest", "format"];

/// Arguments of `audit`.
#[derive(clap::Args)]
pub(super) struct AuditArgs {
    #[command(subcommand)]
    command: Option<AuditCommand>,
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    ledger: LedgerArgs,
    /// Maximum number of entries.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=500))]
    limit: u32,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Subcommand)]
enum AuditCommand {
    /// Recompute all hashes, and name the first entry that was edited, deleted or reordered. Exit 1 if there
    /// is one.
    Verify {
        /// A hash that `verify` printed before. If no entry has it, the newest entries were cut off. The hash of
        /// an empty chain, 64 zeros, fits every chain.
        #[arg(long, value_name = "HASH", value_parser = parse_hash)]
        expect: Option<String>,
    },
}

fn parse_hash(text: &str) -> Result<String, String> {
    let is_hash = text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let hash = is_hash.then(|| text.to_ascii_lowercase());
    hash.ok_or_else(|| "a hash has 64 hexadecimal digits".into())
}

pub(super) async fn run(args: AuditArgs, environment: &Environment) -> Result<(), Failure> {
    let is_for_people = args.output.is_for_people();
    let source = AuditSource::open(&args.server, &args.ledger, environment).await?;
    if let Some(AuditCommand::Verify { expect }) = args.command {
        let verdict = verify(&source.read_all().await?, expect.as_deref());
        match (&verdict.broken, &verdict.last_hash) {
            _ if !is_for_people => print_json(&json!(verdict)),
            (None, Some(hash)) => {
                print_line(&format!(
                    "{} entries, unbroken\nlast hash {hash}",
                    verdict.entries
                ));
            }
            (broken, _) => broken
                .iter()
                .for_each(|broken| print_line(&format!("broken: {broken}"))),
        }
        let is_valid = verdict.valid.then_some(());
        return is_valid.ok_or(Failure::NegativeResult);
    }
    let answer = source.page(args.limit, None).await?;
    print_answer(answer, is_for_people, |answer| {
        print_table(&build_table(answer), "no entries", environment);
        if answer["next_cursor"].is_string() {
            print_line("\nOlder entries are not shown; --limit shows up to 500.");
        }
    })
}

fn build_table(answer: &Value) -> Table {
    let mut table = Table::new(&[
        ("SEQ", Content::Number),
        ("AT", Content::Word),
        ("ACTOR", Content::Name),
        ("ACTION", Content::Word),
        ("SUBJECT", Content::Name),
        ("DETAIL", Content::Prose),
    ]);
    for row in answer["entries"].as_array().into_iter().flatten() {
        let text = |key: &str| row[key].as_str().unwrap_or_default().to_owned();
        let (seq, detail) = (row["seq"].to_string(), row["detail"].to_string());
        let at: String = text("at")
            .chars()
            .take("2026-01-31T12:00:00".len())
            .collect();
        let cells = ["actor", "action", "subject"].map(text);
        table.add_row([seq, at].into_iter().chain(cells).chain([detail]));
    }
    table
}

/// Where entries are read.
pub(super) enum AuditSource {
    Server(Client),
    Ledger(Arc<dyn Ledger>),
}

impl AuditSource {
    pub(super) async fn open(
        server: &ServerArgs,
        ledger: &LedgerArgs,
        environment: &Environment,
    ) -> Result<Self, Failure> {
        Ok(match server.client()? {
            Some(client) => Self::Server(client),
            None => Self::Ledger(ledger.open(environment).await?),
        })
    }

    /// The answer of `GET /audit`.
    async fn page(
        &self,
        limit: u32,
        cursor: Option<String>,
    ) -> Result<(StatusCode, Value), Failure> {
        let ledger = match self {
            Self::Server(client) => {
                let limit = limit.to_string();
                let query = [("limit", Some(&*limit)), ("cursor", cursor.as_deref())];
                return client.get(&format!("/audit?{}", encode_query(query))).await;
            }
            Self::Ledger(ledger) => ledger,
        };
        let query = AuditQuery {
            before: cursor.and_then(|cursor| cursor.parse().ok()),
            limit,
            ..AuditQuery::default()
        };
        Ok((
            StatusCode::OK,
            json!(AuditPage::read(&**ledger, query).await?),
        ))
    }

    /// All entries, the oldest first.
    pub(super) async fn read_all(&self) -> Result<Vec<Entry>, Failure> {
        let (mut entries, mut cursor) = (Vec::new(), None);
        loop {
            let mut page = successful(self.page(PAGE_SIZE, cursor).await?, true)?;
            let found = serde_json::from_value::<Vec<Entry>>(page["entries"].take());
            let unreadable = |error| Failure::Failed(format!("toolcrib: GET /audit: {error}"));
            entries.extend(found.map_err(unreadable)?);
            cursor = page["next_cursor"].as_str().map(str::to_owned);
            if cursor.is_none() {
                break;
            }
        }
        entries.reverse();
        Ok(entries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_a_table() {
        let entry = |seq, subject| {
            json!({"seq": seq, "at": "2026-01-31T12:00:00.25Z", "actor": "root", "action": "cache_purged", "subject": subject,
                   "detail": {}, "hash": ""})
        };
        let answer = json!({"entries": [entry(11, json!("t")), entry(9, Value::Null)]});
        assert_eq!(
            build_table(&answer).format(80),
            "SEQ  AT                   ACTOR  ACTION        SUBJECT  DETAIL\n \
             11  2026-01-31T12:00:00  root   cache_purged  t        {}\n  \
             9  2026-01-31T12:00:00  root   cache_purged           {}"
        );
    }
}
