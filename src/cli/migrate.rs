//! `toolcrib migrate`: moves a whole ledger to another file or database.

use serde_json::{Map, Value, json};

use super::Failure;
use super::failure::unless_stopped;
use super::ledger_source::ledger_at;
use super::output::{OutputArgs, print_json, print_line, print_table};
use super::table::{Content, Table};
use crate::call::Clock;
use crate::environment::Environment;
use crate::ledger::{self, Moved, TableSums};

/// Arguments of `migrate`.
#[derive(clap::Args)]
pub(super) struct MigrateArgs {
    /// The ledger with the calls: a file, sqlite://FILE or postgres://…. It is not changed.
    from: String,
    /// A new file or an empty database.
    to: String,
    #[command(flatten)]
    output: OutputArgs,
}

pub(super) async fn run(args: MigrateArgs, environment: &Environment) -> Result<(), Failure> {
    if args.from == args.to {
        let message =
            "toolcrib: FROM and TO are the same ledger: name a new file or an empty database";
        return Err(Failure::Usage(message.into()));
    }
    let (from, to) = (ledger_at(&args.from), ledger_at(&args.to));
    let moved = ledger::migrate(&from, &to, Clock::system().now());
    let moved = unless_stopped(moved, "toolcrib: stopped; the target is still empty").await??;
    if args.output.is_for_people() {
        print_table(&build_table(&moved.tables), "", environment);
        print_line(&format!(
            "\n{} is now in {}; both have the same rows and sums.",
            moved.from, moved.to
        ));
    } else {
        print_json(&to_json(&moved));
    }
    Ok(())
}

fn build_table(tables: &[TableSums]) -> Table {
    let mut table = Table::new(&[
        ("MOVED", Content::Name),
        ("ROWS", Content::Number),
        ("SUMS", Content::Prose),
    ]);
    for sums in tables {
        let columns: Vec<String> = sums
            .sums
            .iter()
            .map(|(name, sum)| format!("{name} {sum}"))
            .collect();
        table.add_row([
            sums.table.to_owned(),
            sums.rows.to_string(),
            columns.join(", "),
        ]);
    }
    table
}

fn to_json(moved: &Moved) -> Value {
    let table = |table: &TableSums| {
        let sums = table.sums.iter();
        let sums: Map<String, Value> = sums
            .map(|(name, sum)| ((*name).to_owned(), json!(sum)))
            .collect();
        json!({"table": table.table, "rows": table.rows, "sums": sums})
    };
    let tables: Vec<Value> = moved.tables.iter().map(table).collect();
    json!({"from": moved.from, "to": moved.to, "tables": tables})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tables() -> Vec<TableSums> {
        vec![
            TableSums {
                table: "calls",
                rows: 2,
                sums: vec![("counted", 3), ("bytes", 70)],
            },
            TableSums {
                table: "held keys",
                rows: 1,
                sums: Vec::new(),
            },
        ]
    }

    #[test]
    fn people_see_rows_and_sums() {
        assert_eq!(
            build_table(&tables()).format(80),
            "MOVED      ROWS  SUMS\ncalls         2  counted 3, bytes 70\nheld keys     1"
        );
    }

    #[test]
    fn programs_get_each_sum_by_name() {
        let moved = Moved {
            from: "sqlite a.db".into(),
            to: "sqlite b.db".into(),
            tables: tables(),
        };
        let printed = to_json(&moved);
        assert_eq!(printed["tables"][0]["sums"]["counted"], 3);
        assert_eq!(
            printed["tables"][1],
            json!({"table": "held keys", "rows": 1, "sums": {}})
        );
    }
}
