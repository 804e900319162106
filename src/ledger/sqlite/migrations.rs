//! The schema's migrations.

use std::path::Path;

use sqlx::migrate::{Migration, MigrationType, Migrator};
use sqlx::{SqlStr, SqliteConnection};

use super::super::Error;
use super::fault::error_reason;

/// The newest version of the schema that this program knows.
pub(super) fn newest_version() -> i64 {
    let migrations = migrations().into_iter();
    let versions = migrations.map(|migration| migration.version);
    versions.max().unwrap_or(0)
}

/// The migrations, embedded without sqlx's macros, which would compile all of sqlx a second time.
fn migrations() -> Vec<Migration> {
    let embed = |version, name: &'static str, sql: &'static str| {
        Migration::new(
            version,
            name.into(),
            MigrationType::Simple,
            SqlStr::from_static(sql),
            false,
        )
    };
    vec![
        embed(
            1,
            "ledger",
            include_str!("../../../migrations/sqlite/0001_ledger.sql"),
        ),
        embed(
            2,
            "totals",
            include_str!("../../../migrations/sqlite/0002_totals.sql"),
        ),
        embed(
            3,
            "registered_tool",
            include_str!("../../../migrations/sqlite/0003_registered_tool.sql"),
        ),
        embed(
            4,
            "idempotency",
            include_str!("../../../migrations/sqlite/0004_idempotency.sql"),
        ),
        embed(
            5,
            "damage",
            include_str!("../../../migrations/sqlite/0005_damage.sql"),
        ),
        embed(
            6,
            "parent",
            include_str!("../../../migrations/sqlite/0006_parent.sql"),
        ),
        embed(
            7,
            "size",
            include_str!("../../../migrations/sqlite/0007_size.sql"),
        ),
        embed(
            8,
            "detail",
            include_str!("../../../migrations/sqlite/0008_detail.sql"),
        ),
        embed(
            9,
            "set_aside",
            include_str!("../../../migrations/sqlite/0009_set_aside.sql"),
        ),
        embed(
            10,
            "approval",
            include_str!("../../../migrations/sqlite/0010_approval.sql"),
        ),
        embed(
            11,
            "approval_message",
            include_str!("../../../migrations/sqlite/0011_approval_message.sql"),
        ),
        embed(
            12,
            "usage_hour",
            include_str!("../../../migrations/sqlite/0012_usage_hour.sql"),
        ),
        embed(
            13,
            "state_check",
            include_str!("../../../migrations/sqlite/0013_state_check.sql"),
        ),
    ]
}

/// Brings the schema up to date.
pub(super) async fn migrate_schema(
    connection: &mut SqliteConnection,
    path: &Path,
) -> Result<(), Error> {
    let place = path.display().to_string();
    let known = newest_version();
    match Migrator::with_migrations(migrations())
        .run_direct(None, connection, false)
        .await
    {
        Ok(()) => Ok(()),
        Err(sqlx::migrate::MigrateError::VersionMissing(found)) => Err(Error::NewerSchema {
            place,
            found,
            known,
        }),
        Err(sqlx::migrate::MigrateError::Execute(error)) => Err(Error::Unusable {
            place,
            reason: error_reason(&error),
        }),
        Err(error) => Err(Error::Unusable {
            place,
            reason: error.to_string(),
        }),
    }
}
