//! The migrations of both engines, embedded without sqlx's macros, which would compile all of sqlx a second
//! time.

use sqlx::SqlStr;
use sqlx::migrate::{Migration, MigrationType};

macro_rules! embed {
    ($engine:literal: $($version:literal $name:literal,)*) => {
        vec![$(embed(
            $version,
            include_str!(concat!("../../migrations/", $engine, "/", $version, "_", $name, ".sql")),
            $name,
        ),)*]
    };
}

fn embed(version: &str, sql: &'static str, name: &'static str) -> Migration {
    let version = version.parse().unwrap_or_default();
    let sql = SqlStr::from_static(sql);
    Migration::new(version, name.into(), MigrationType::Simple, sql, false)
}

pub(super) fn sqlite() -> Vec<Migration> {
    embed! {"sqlite":
        "0001" "ledger",
        "0002" "totals",
        "0003" "registered_tool",
        "0004" "idempotency",
        "0005" "damage",
        "0006" "parent",
        "0007" "size",
        "0008" "detail",
        "0009" "set_aside",
        "0010" "approval",
        "0011" "approval_message",
        "0012" "usage_hour",
        "0013" "state_check",
        "0014" "charged_rows",
        "0015" "audit",
    }
}

pub(super) fn postgres() -> Vec<Migration> {
    embed! {"postgres":
        "0001" "ledger",
        "0002" "running_call",
        "0003" "approval_message",
        "0004" "list_indexes",
        "0005" "usage_hour",
        "0006" "counter_checks",
        "0007" "commit_steps",
        "0008" "audit",
    }
}

/// The newest version of the schema that this program knows.
pub(super) fn newest_version(migrations: &[Migration]) -> i64 {
    let versions = migrations.iter().map(|migration| migration.version);
    versions.max().unwrap_or(0)
}
