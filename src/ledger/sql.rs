//! Statements and rows in a form that no engine owns, so that both engines run the same queries. What the
//! engines call by different names, a query takes from [`Dialect::pick`].

use std::fmt::Write as _;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::TryStreamExt as _;
use futures_util::stream::BoxStream;
use jiff::Timestamp;

use super::writer_queue::WriterHandle;
use super::{Durability, Error, SharedChange, WhenDown};
use crate::audit::NewEntry;
use crate::call::{Charged, InvocationId};

/// Whose SQL a statement is written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    Sqlite,
    Postgres,
}

impl Dialect {
    /// The text for this engine.
    pub(super) fn pick<T>(self, sqlite: T, postgres: T) -> T {
        match self {
            Self::Sqlite => sqlite,
            Self::Postgres => postgres,
        }
    }
}

/// A bound value, or a column of a row.
#[derive(Debug, Clone)]
pub(super) enum SqlValue {
    Null,
    Bool(bool),
    Integer(i64),
    Text(Arc<str>),
    Owned(String),
    Word(&'static str),
    Id(InvocationId),
    Bytes(Vec<u8>),
    /// A column that has a damaged value.
    Unreadable,
}

/// The columns of a line that is written.
pub(super) type Line = Vec<SqlValue>;

impl SqlValue {
    /// The column of a row with these bytes.
    pub(super) fn from_bytes(bytes: &[u8]) -> Self {
        match bytes.try_into() {
            Ok(id) => Self::Id(InvocationId::from_bytes(id)),
            Err(_) => Self::Bytes(bytes.to_owned()),
        }
    }
}

impl<T: Into<SqlValue>> From<Option<T>> for SqlValue {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

macro_rules! into_value {
    ($($type:ty: $make:expr,)*) => {
        $(impl From<$type> for SqlValue {
            fn from(value: $type) -> Self {
                $make(value)
            }
        })*
    };
}
into_value! {
    bool: Self::Bool,
    i64: Self::Integer,
    u32: |number| Self::Integer(i64::from(number)),
    u64: |number| Self::Integer(i64::try_from(number).unwrap_or(i64::MAX)),
    Timestamp: |time: Timestamp| Self::Integer(time.as_millisecond()),
    Arc<str>: Self::Text,
    &Arc<str>: |text: &Arc<str>| Self::Text(text.clone()),
    String: Self::Owned,
    &str: |text: &str| Self::Owned(text.to_owned()),
    InvocationId: Self::Id,
    &[u8]: |bytes: &[u8]| Self::Bytes(bytes.to_owned()),
}

/// A statement with its bound values. The text consists of constants of this folder.
#[derive(Debug, Clone, Default)]
pub struct Sql {
    pub(super) text: String,
    pub(super) values: Vec<SqlValue>,
    /// Whether PostgreSQL makes a plan for these values, instead of one for all.
    pub(super) is_planned_anew: bool,
}

impl Sql {
    pub(super) fn new(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            ..Self::default()
        }
    }

    pub(super) fn push(&mut self, text: &str) -> &mut Self {
        self.text.push_str(text);
        self
    }

    /// Adds a value.
    pub(super) fn bind(&mut self, value: impl Into<SqlValue>) -> &mut Self {
        match value.into() {
            // PostgreSQL would have to know the type of a bound null.
            SqlValue::Null => self.text.push_str("null"),
            // SQLite has integers instead.
            SqlValue::Bool(flag) => self.text.push_str(if flag { "true" } else { "false" }),
            value => {
                self.values.push(value);
                let _ = write!(self.text, "${}", self.values.len());
            }
        }
        self
    }

    /// Adds values in parentheses.
    pub(super) fn bind_list(
        &mut self,
        values: impl IntoIterator<Item: Into<SqlValue>>,
    ) -> &mut Self {
        let mut before = "(";
        for value in values {
            self.push(before).bind(value);
            before = ", ";
        }
        // A list without a value has none that is equal.
        self.push(if before == "(" { "(null)" } else { ")" })
    }

    /// Adds rows of values.
    pub(super) fn bind_rows<R: IntoIterator<Item = SqlValue>>(
        &mut self,
        rows: impl IntoIterator<Item = R>,
    ) -> &mut Self {
        for (number, row) in rows.into_iter().enumerate() {
            self.push(if number == 0 { "" } else { ", " })
                .bind_list(row);
        }
        self
    }

    /// Adds a condition, if there is a value.
    pub(super) fn and(&mut self, condition: &str, value: Option<impl Into<SqlValue>>) -> &mut Self {
        match value {
            Some(value) => self.push(" and ").push(condition).push(" ").bind(value),
            None => self,
        }
    }

    /// Adds the order by descending id, and the most rows.
    pub(super) fn newest(&mut self, limit: u32) -> &mut Self {
        self.push(" order by id desc limit ").bind(limit)
    }
}

/// A row of a result.
#[derive(Debug)]
pub struct SqlRow(pub(super) Vec<SqlValue>);

impl SqlRow {
    /// The column at this place.
    pub(super) fn get<T: FromColumn>(&self, at: usize) -> Result<T, Unreadable> {
        let value = self.0.get(at).unwrap_or(&SqlValue::Null);
        T::from_column(value).ok_or(Unreadable(at))
    }
}

/// A column is not of the type that the ledger has written.
#[derive(Debug, thiserror::Error)]
#[error("column {0} cannot be read")]
pub(super) struct Unreadable(pub(super) usize);

impl From<Unreadable> for sqlx::Error {
    fn from(error: Unreadable) -> Self {
        Self::Decode(error.into())
    }
}

impl From<Unreadable> for Error {
    fn from(error: Unreadable) -> Self {
        Self::Failed(error.to_string())
    }
}

/// A type that a column may have.
pub(super) trait FromColumn: Sized {
    fn from_column(value: &SqlValue) -> Option<Self>;
}

impl<T: FromColumn> FromColumn for Option<T> {
    fn from_column(value: &SqlValue) -> Option<Self> {
        match value {
            SqlValue::Null => Some(None),
            value => T::from_column(value).map(Some),
        }
    }
}

macro_rules! from_column {
    ($($type:ty: $pattern:pat => $make:expr,)*) => {
        $(impl FromColumn for $type {
            fn from_column(value: &SqlValue) -> Option<Self> {
                match value {
                    $pattern => $make,
                    _ => None,
                }
            }
        })*
    };
}
from_column! {
    i64: SqlValue::Integer(number) => Some(*number),
    u64: SqlValue::Integer(number) => Some(number.unsigned_abs()),
    u32: SqlValue::Integer(number) => u32::try_from(*number).ok(),
    bool: SqlValue::Integer(number) => Some(*number != 0),
    Timestamp: SqlValue::Integer(number) => Timestamp::from_millisecond(*number).ok(),
    Arc<str>: SqlValue::Text(text) => Some(text.clone()),
    String: SqlValue::Text(text) => Some(text.to_string()),
    InvocationId: SqlValue::Id(id) => Some(*id),
    [u8; 32]: SqlValue::Bytes(bytes) => bytes.as_slice().try_into().ok(),
}

/// A connection of an engine.
#[async_trait]
pub(super) trait Fetch: Send {
    fn dialect(&self) -> Dialect;

    /// The rows that a statement returns.
    fn stream(&mut self, sql: Sql) -> BoxStream<'_, sqlx::Result<SqlRow>>;

    /// The rows that a statement returns, all in memory.
    async fn fetch(&mut self, sql: Sql) -> sqlx::Result<Vec<SqlRow>> {
        self.stream(sql).try_collect().await
    }

    /// Runs a statement. Returns the number of affected rows.
    async fn execute(&mut self, sql: Sql) -> sqlx::Result<u64>;
}

/// The connections of an engine.
#[async_trait]
pub trait Store: Send + Sync {
    fn dialect(&self) -> Dialect;

    /// The rows that a query returns.
    async fn fetch(&self, sql: Sql) -> Result<Vec<SqlRow>, Error>;

    /// Runs a statement in a commit of its own, records an entry about it, and tells other replicas. Returns
    /// the number of affected rows.
    async fn change(
        &self,
        sql: Sql,
        news: Option<SharedChange>,
        entry: Option<NewEntry>,
    ) -> Result<u64, Error>;

    /// The writer's queue.
    fn writer(&self) -> &dyn WriterHandle;

    /// When an answer may be sent, and what is served while nothing can be written.
    fn modes(&self) -> (Durability, WhenDown);

    /// Units of a counter that are used in the ledger, and that no call has taken.
    fn free_units(&self, charged: &Charged) -> u64;
}
