//! The statement inside another one, with which the server itself refuses a row that is too long: sqlx keeps a row in memory
//! before anybody can look at its length, and has no bound of its own.
//!
//! What is around the statement changes nothing of it. `offset 0` keeps PostgreSQL from merging the two, so each value is computed
//! once, functions with effects run as often as before, and rows come in their order and one by one. Lengths come from the
//! headers of values, without unpacking them, wherever there is such a length.

use sqlx::Column;
use sqlx::postgres::{PgColumn, PgTypeInfo, PgTypeKind};

use super::decode::Shape;
use super::faults;
use crate::tools::sql::reader::behind_with;
use crate::tools::sql::rows::Longest;

/// Begins the message of the server's refusal, a cast that cannot be done: a plain statement has no other way to fail.
const MARK: &str = "toolcrib: row too long: ";
/// A value that is stored in fewer bytes is not unpacked to be measured: packed 255 times at most (LZ4), it is far from any limit.
const SMALL: usize = 2000;

/// Ways to say the same; the first that the database understands is taken. There are none where no column can be long.
pub(super) fn forms(sql: &str, columns: &[PgColumn], most: usize) -> Vec<String> {
    let Some(columns) = Columns::of(columns, most) else { return Vec::new() };
    let Columns { names, shown, guard } = columns;
    let around =
        |table: &str| format!("select * from (select {shown} from {table} as \"x\" offset 0) as \"rows\"{guard}");
    let mut forms = vec![
        // What asks.
        around(&format!("(\n{sql}\n)")),
        // What changes something and answers rows.
        format!("with \"toolcrib rows\" ({names}) as (\n{sql}\n) {}", around("\"toolcrib rows\"")),
    ];
    // A change in a `with` has to stay at the top.
    if let Some(at) = behind_with(sql) {
        let (with, main) = sql.split_at(at);
        let rows = around("\"toolcrib rows\"");
        forms.push(format!("{with}, \"toolcrib rows\" ({names}) as (\n{main}\n) {rows}"));
    }
    forms
}

struct Columns {
    names: String,
    /// The select list: all of them as they are, or with casts of those that only the database can write.
    shown: String,
    guard: String,
}

impl Columns {
    fn of(columns: &[PgColumn], most: usize) -> Option<Self> {
        let names: Vec<String> = columns.iter().map(|column| quoted(column.name())).collect();
        let is_foreign = |column: &&PgColumn| Shape::of(column.type_info()).is_none();
        let shown = if columns.iter().any(|column| is_foreign(&column)) {
            let shown = columns.iter().zip(&names).map(|(column, name)| match Shape::of(column.type_info()) {
                Some(_) => name.clone(),
                None if is_array(column.type_info()) => format!("{name}::text[] as {name}"),
                None => format!("{name}::text as {name}"),
            });
            shown.collect::<Vec<_>>().join(", ")
        } else {
            // Another column in the table is another type of the result then, which the server tells.
            "*".into()
        };
        let lengths: Vec<String> =
            columns.iter().zip(&names).filter_map(|(column, name)| length(column.type_info(), name)).collect();
        if lengths.is_empty() {
            return None;
        }
        let sum = lengths.iter().map(|length| format!("coalesce({length}, 0)::int8")).collect::<Vec<_>>().join(" + ");
        let places = columns.iter().enumerate().filter(|(_, column)| length(column.type_info(), "").is_some());
        let each = places.zip(&lengths).map(|((at, _), length)| format!("'{at}=' || coalesce({length}, 0)"));
        let each = each.collect::<Vec<_>>().join(" || ' ' || ");
        let guard =
            format!(" where case when {sum} > {most} then ('{MARK}' || {each})::pg_catalog.bool is null else true end");
        Some(Self { names: names.join(", "), shown, guard })
    }
}

/// The length of a value in bytes, if its type has values that are long.
fn length(kind: &PgTypeInfo, name: &str) -> Option<String> {
    let unpacked = |length: &str| {
        format!("case when pg_catalog.pg_column_size({name}) > {SMALL} then pg_catalog.octet_length({length}) end")
    };
    let array = || Some(unpacked(&format!("pg_catalog.array_send({name})")));
    match Shape::of(kind) {
        // Written as text by then.
        None if is_array(kind) => array(),
        None => Some(format!("pg_catalog.octet_length({name})")),
        Some(Shape::Array(_)) => array(),
        Some(Shape::Json | Shape::Jsonb) => Some(unpacked(&format!("{name}::pg_catalog.text"))),
        // Enums, names and characters are short.
        Some(Shape::Text) if is_short(kind) => None,
        Some(Shape::Text) => Some(format!("pg_catalog.octet_length({name}::pg_catalog.text)")),
        Some(Shape::Bytes) => Some(format!("pg_catalog.octet_length({name})")),
        // A numeric has 147,455 digits at most.
        Some(_) => None,
    }
}

fn is_short(kind: &PgTypeInfo) -> bool {
    match kind.kind() {
        PgTypeKind::Enum(_) => true,
        PgTypeKind::Domain(of) => is_short(of),
        // "char", name
        _ => kind.oid().is_some_and(|oid| [18, 19].contains(&oid.0)),
    }
}

fn is_array(kind: &PgTypeInfo) -> bool {
    matches!(kind.kind(), PgTypeKind::Array(_))
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// What is said of a row that the server has refused; `None`: the error is another one. `name` gives a column's name.
pub(super) fn refusal<'n>(error: &sqlx::Error, name: impl Fn(usize) -> Option<&'n str>) -> Option<String> {
    if faults::code(error) != Some("22P02") {
        return None;
    }
    let words = faults::words(error);
    let (_, lengths) = words.split_once(MARK)?;
    let mut longest = Longest::default();
    for (at, bytes) in lengths.split(' ').filter_map(|one| one.split_once('=')) {
        let bytes: &str = &bytes[..bytes.find(|c: char| !c.is_ascii_digit()).unwrap_or(bytes.len())];
        longest.add(name(at.parse().ok()?)?, bytes.parse().ok()?);
    }
    Some(longest.advice())
}
