//! An admin's decisions. Each is one statement, and is announced to the other replicas.

use super::sql::{Sql, SqlValue, Store};
use super::{Error, RegisteredTool, SharedChange, Switch};

pub(super) async fn purge_results(store: &dyn Store, tool: Option<&str>) -> Result<u64, Error> {
    let mut sql = Sql::new("delete from stored_result where true");
    sql.and("tool =", tool);
    let news = SharedChange::Purged(tool.map(str::to_owned));
    store.change(sql, Some(news)).await
}

pub(super) async fn set_switch(store: &dyn Store, switch: Switch) -> Result<(), Error> {
    let mut sql = Sql::new("insert into tool_switch (tool, enabled) values ");
    sql.bind_list([switch.tool.into(), SqlValue::Bool(switch.enabled)])
        .push(" on conflict (tool) do update set enabled = excluded.enabled");
    let changed = store.change(sql, Some(SharedChange::Tools)).await;
    changed.map(drop)
}

pub(super) async fn register_tool(store: &dyn Store, tool: RegisteredTool) -> Result<(), Error> {
    let mut sql = Sql::new(
        "insert into registered_tool (name, definition, registered_by, registered_at) values ",
    );
    sql.bind_list([
        tool.name.into(),
        tool.definition.into(),
        tool.registered_by.into(),
        SqlValue::from(tool.registered_at),
    ])
    .push(
        " on conflict (name) do update set definition = excluded.definition, \
         registered_by = excluded.registered_by, registered_at = excluded.registered_at",
    );
    let changed = store.change(sql, Some(SharedChange::Tools)).await;
    changed.map(drop)
}

pub(super) async fn unregister_tool(store: &dyn Store, name: &str) -> Result<bool, Error> {
    let mut sql = Sql::new("delete from registered_tool where name = ");
    sql.bind(name);
    Ok(store.change(sql, Some(SharedChange::Tools)).await? > 0)
}
