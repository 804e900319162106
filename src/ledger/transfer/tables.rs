//! The tables of a ledger, in the order in which they are moved.
//!
//! Not moved: the processes that have used the ledger, and what they tell each other.

use std::fmt;

use jiff::Timestamp;

use crate::ledger::import::{LATENCIES, TOTALS, Totals, add_lines, add_rows, add_totals};
use crate::ledger::read::{decode_result, decode_verified, whole_columns};
use crate::ledger::sql::{Dialect, Fetch, Line, Sql, SqlRow, SqlValue};
use crate::ledger::{Error, Row, audit, checksum};

/// A table.
pub(super) struct Table {
    /// What the rows are, for people.
    pub(super) title: &'static str,
    from: &'static str,
    /// A time that is over for rows that are not moved.
    until: Option<&'static str>,
    content: Content,
    /// What is counted beside the rows, with its name. Equal numbers mean that nothing was lost, and nothing
    /// was counted twice.
    pub(super) sums: &'static [(&'static str, &'static str)],
}

/// What the rows of a table are.
#[derive(Clone, Copy)]
enum Content {
    /// Part of another table.
    Nothing,
    Calls,
    Results,
    /// These columns.
    Columns {
        table: &'static str,
        names: &'static str,
        /// The places of columns that PostgreSQL has as booleans.
        flags: &'static [usize],
    },
    /// The units of the rows are not moved: what is used counts as carried over. So the drift is 0, and the
    /// limit goes on at the same number.
    Counters,
    Totals(&'static Totals),
}

/// Every table.
pub(super) const TABLES: [Table; 11] = [
    Table {
        title: "calls",
        from: "invocation",
        until: None,
        content: Content::Calls,
        sums: &[
            ("counted", "sum(count)"),
            ("microseconds", "sum(duration_us)"),
            (
                "bytes",
                "sum(octet_length(arguments) + coalesce(octet_length(result), 0) + coalesce(octet_length(meta), 0))",
            ),
            ("protected", "sum(case when IS_PROTECTED then 1 else 0 end)"),
        ],
    },
    Table {
        title: "held keys",
        from: "invocation",
        until: Some("key_until"),
        content: Content::Nothing,
        sums: &[],
    },
    Table {
        title: "failed attempts",
        from: "attempt",
        until: None,
        content: Content::Columns {
            table: "attempt",
            names: "invocation, attempt, kind, message, duration_us",
            flags: &[],
        },
        sums: &[("microseconds", "sum(duration_us)")],
    },
    Table {
        title: "counters of limits",
        from: "quota",
        until: None,
        content: Content::Counters,
        sums: &[("used", "sum(used)"), ("lost", "sum(lost_units)")],
    },
    Table {
        title: "stored results",
        from: "stored_result",
        until: Some("expires_at"),
        content: Content::Results,
        sums: &[("bytes", "sum(octet_length(result))")],
    },
    Table {
        title: "switches",
        from: "(select * from tool_switch where tool <> '')",
        until: None,
        content: Content::Columns {
            table: "tool_switch",
            names: "tool, enabled",
            flags: &[1],
        },
        sums: &[("enabled", "sum(case when enabled then 1 else 0 end)")],
    },
    Table {
        title: "registered tools",
        from: "registered_tool",
        until: None,
        content: Content::Columns {
            table: "registered_tool",
            names: "name, definition, registered_by, registered_at",
            flags: &[],
        },
        sums: &[("bytes", "sum(octet_length(definition))")],
    },
    Table {
        title: "totals",
        from: "(select caller, tool, cast(sum(calls) as bigint) as calls, cast(sum(succeeded) as bigint) as succeeded, \
               cast(sum(failed) as bigint) as failed, cast(sum(refused) as bigint) as refused, \
               cast(sum(cache_hits) as bigint) as cache_hits from usage_total group by caller, tool)",
        until: None,
        content: Content::Totals(&TOTALS),
        sums: &[
            ("calls", "sum(calls)"),
            ("succeeded", "sum(succeeded)"),
            ("failed", "sum(failed)"),
            ("refused", "sum(refused)"),
            ("cache_hits", "sum(cache_hits)"),
        ],
    },
    Table {
        title: "durations",
        from: "(select caller, tool, bucket, cast(sum(calls) as bigint) as calls from usage_latency group by caller, tool, bucket)",
        until: None,
        content: Content::Totals(&LATENCIES),
        sums: &[("calls", "sum(calls)")],
    },
    Table {
        title: "approvals",
        from: "approval",
        until: None,
        content: Content::Columns {
            table: "approval",
            names: "id, tool, caller, state, idempotency_key, approvers, request, call, requested_at, expires_at, decided_at, \
                    decided_by, note, changed, runner, done, notified, message",
            flags: &[15, 16],
        },
        sums: &[
            (
                "waiting",
                "sum(case when state = 'waiting' and not done then 1 else 0 end)",
            ),
            ("done", "sum(case when done then 1 else 0 end)"),
        ],
    },
    Table {
        title: "audit entries",
        from: "audit",
        until: None,
        content: Content::Columns {
            table: "audit",
            names: audit::COLUMNS,
            flags: &[],
        },
        sums: &[("last", "max(seq)")],
    },
];

/// Whether a ledger has content.
pub(super) const HAS_ROWS: &str = "select exists (select 1 from invocation) or exists (select 1 from quota) or exists (select 1 from stored_result) \
    or exists (select 1 from tool_switch) or exists (select 1 from registered_tool) or exists (select 1 from usage_total) \
    or exists (select 1 from approval) or exists (select 1 from audit)";

const COUNTERS: &str = "tool, caller, run, per, window_start, used, calls, counted_at, lost_units";
const RESULTS: &str = "key, tool, origin, result, stored_at, expires_at";

/// Whether a guarantee covers a call, so that only retention deletes it.
fn is_protected(dialect: Dialect) -> &'static str {
    dialect.pick(
        "charged is not null or iif(reserved is null, idempotency_key is not null, reserved != 0)",
        "reserved or charged is not null",
    )
}

/// What is written when all rows are: the numbers of counters, or the held keys.
pub(super) fn finish(dialect: Dialect) -> &'static [&'static str] {
    dialect.pick(
        &[
            "update quota set instance = random(), from_seq = (select coalesce(max(seq), 0) + 1 from invocation)",
            "update quota set id = numbered.id from (select tool, caller, run, per, row_number() over () as id from quota \
             where per != 'run') as numbered where (quota.tool, quota.caller, quota.run, quota.per) = \
             (numbered.tool, numbered.caller, numbered.run, numbered.per)",
        ],
        &[
            "insert into key_holder select idempotency_key, caller, tool, id, key_until from invocation \
           where key_until is not null",
        ],
    )
}

impl Table {
    /// Selects the rows to be moved. `None`: they are part of another table.
    pub(super) fn select(&self, dialect: Dialect, now: Timestamp) -> Option<Sql> {
        let (columns, order) = match self.content {
            Content::Nothing => return None,
            Content::Calls => {
                let (columns, is_protected) = (whole_columns(dialect), is_protected(dialect));
                (format!("{columns}, {is_protected}"), " order by id")
            }
            Content::Results => (format!("{RESULTS}, {}", dialect.pick("sum", "null")), ""),
            Content::Columns { names, .. } => (names.into(), ""),
            Content::Counters => (format!("{COUNTERS}, used - lost_units"), ""),
            Content::Totals(totals) => (totals.columns(), ""),
        };
        let mut sql = Sql::new(format!("select {columns}"));
        self.push_from(&mut sql, now);
        sql.push(order);
        Some(sql)
    }

    /// Selects the number of rows, and the sums.
    pub(super) fn select_sums(&self, dialect: Dialect, now: Timestamp) -> Sql {
        let mut sql = Sql::new("select count(*)");
        for (_, sum) in self.sums {
            let sum = sum.replace("IS_PROTECTED", is_protected(dialect));
            sql.push(&format!(", cast(coalesce({sum}, 0) as bigint)"));
        }
        self.push_from(&mut sql, now);
        sql
    }

    fn push_from(&self, sql: &mut Sql, now: Timestamp) {
        sql.push(&format!(" from {} as one where true", self.from));
        if let Some(until) = self.until {
            sql.and(&format!("{until} >"), Some(now));
        }
    }

    /// Decodes rows that [`Table::select`] has found.
    pub(super) fn decode(&self, rows: Vec<SqlRow>, now: Timestamp) -> Result<Lines, Error> {
        let lines = |rows: Vec<SqlRow>| rows.into_iter().map(|row| row.0).collect::<Vec<Line>>();
        Ok(match self.content {
            Content::Calls => Lines::Calls(
                rows.iter()
                    .map(|row| {
                        let mut call = decode_verified(row)?;
                        call.key_until = call.key_until.filter(|until| *until > now);
                        Ok((call, row.get(24)?))
                    })
                    .collect::<Result<_, Error>>()?,
            ),
            Content::Results => {
                let damaged =
                    "a stored result is damaged: purge the stored results first".to_owned();
                let results: Option<Vec<_>> = rows.iter().map(decode_result).collect();
                let results = results.ok_or(Error::Failed(damaged))?;
                let sums = results.iter().map(checksum::result_checksum);
                let mut lines = lines(rows);
                for (line, sum) in lines.iter_mut().zip(sums) {
                    line[6] = sum.into();
                }
                Lines::Results(lines)
            }
            Content::Columns {
                table,
                names,
                flags,
            } => {
                let mut lines = lines(rows);
                for line in &mut lines {
                    for at in flags {
                        line[*at] = SqlValue::Bool(matches!(line[*at], SqlValue::Integer(1)));
                    }
                }
                Lines::Other(format!("{table} ({names})"), lines)
            }
            Content::Counters => Lines::Other(format!("quota ({COUNTERS}, carried)"), lines(rows)),
            Content::Totals(totals) => Lines::Totals(totals, lines(rows)),
            Content::Nothing => Lines::Other(String::new(), Vec::new()),
        })
    }
}

/// Rows in a form that no engine owns.
pub(super) enum Lines {
    Calls(Vec<(Row, bool)>),
    /// With their checksums.
    Results(Vec<Line>),
    Totals(&'static Totals, Vec<Line>),
    /// Lines of a table with these columns.
    Other(String, Vec<Line>),
}

impl Lines {
    /// Writes the rows.
    pub(super) async fn write(self, connection: &mut dyn Fetch) -> sqlx::Result<()> {
        let (to, lines) = match self {
            Self::Calls(calls) => {
                let calls: Vec<_> = calls.iter().map(|(row, is)| (row, *is)).collect();
                return add_rows(connection, &calls).await.map(drop);
            }
            Self::Totals(totals, lines) => return add_totals(connection, totals, lines).await,
            Self::Results(mut lines) => {
                let sum = connection.dialect().pick(", sum", "");
                if sum.is_empty() {
                    lines.iter_mut().for_each(|line| line.truncate(6));
                }
                (format!("stored_result ({RESULTS}{sum})"), lines)
            }
            Self::Other(to, lines) => (to, lines),
        };
        add_lines(connection, &format!("insert into {to} values "), &lines, "").await
    }
}

/// The sums of one table, which both sides of a move count. Equal numbers mean that nothing was
/// lost, and nothing was counted twice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableSums {
    /// What the rows are, for people.
    pub table: &'static str,
    /// Number of rows.
    pub rows: i64,
    /// Names and sums of columns.
    pub sums: Vec<(&'static str, i64)>,
}

impl fmt::Display for TableSums {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.rows, self.table)?;
        for (at, (name, sum)) in self.sums.iter().enumerate() {
            let before = if at == 0 { " (" } else { ", " };
            write!(f, "{before}{name} {sum}")?;
        }
        f.write_str(if self.sums.is_empty() { "" } else { ")" })
    }
}
