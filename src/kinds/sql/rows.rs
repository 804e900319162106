//! Collects rows within their bounds, and builds the result from them.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::call::units::Count;
use crate::call::{Content, Incomplete, JsonObject, ToolContext, ToolError, ToolResult, Unit};

/// The bounds of a result.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// The most rows.
    pub(super) max_rows: usize,
    /// The most bytes of the rows as JSON.
    pub(super) max_output: usize,
}

/// How many times longer a row may be in the database than in the result. An array of small
/// numbers, or a document with much white space, is shorter as JSON. A longer row is not read from
/// the database.
const DATABASE_LENGTH_FACTOR: usize = 4;

impl Limits {
    /// The most bytes of a row in the database.
    pub(super) fn max_database_bytes(&self) -> usize {
        self.max_output.saturating_mul(DATABASE_LENGTH_FACTOR)
    }
}

/// The total length of a row's values, in bytes, and the longest of them.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RowLength<'n> {
    column: &'n str,
    bytes: usize,
    total: usize,
}

impl<'n> RowLength<'n> {
    /// Adds one value.
    pub(super) fn add(&mut self, column: &'n str, bytes: usize) {
        self.total = self.total.saturating_add(bytes);
        if bytes > self.bytes {
            (self.column, self.bytes) = (column, bytes);
        }
    }

    /// The longest column, its length, and what would be right.
    pub(super) fn advice(&self) -> String {
        format!(
            "its longest column, `{}`, has {} bytes; select less of it or fewer columns, or raise max_output",
            self.column, self.bytes
        )
    }
}

/// Warnings about values, each sentence once.
pub(super) type ValueWarnings = BTreeSet<String>;

/// The rows so far. One row more than permitted is read, to find out whether there are more.
pub(super) struct Rows {
    limits: Limits,
    rows: Vec<Value>,
    /// The JSON text of the rows, without the closing bracket.
    text: Vec<u8>,
    /// Which bound was exceeded, if one was.
    cut: Option<Cut>,
    /// The advice for the first row, if that row was too long.
    advice: String,
    warnings: ValueWarnings,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cut {
    Rows,
    Output,
}

impl Cut {
    /// The setting that was exceeded.
    fn limit_name(self) -> &'static str {
        match self {
            Self::Rows => "max_rows",
            Self::Output => "max_output",
        }
    }
}

impl Rows {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            rows: Vec::new(),
            text: vec![b'['],
            cut: None,
            advice: String::new(),
            warnings: ValueWarnings::new(),
        }
    }

    /// Whether a row had to be dropped.
    pub(super) fn is_full(&self) -> bool {
        self.cut.is_some()
    }

    /// Records that the database has refused the next row as too long. `false` if there is no
    /// earlier row, so that there is nothing to show.
    pub(super) fn cut_at_refused_row(&mut self) -> bool {
        if !self.rows.is_empty() {
            self.cut.get_or_insert(Cut::Output);
        }
        self.is_full()
    }

    /// Adds a row, or records that a bound is exceeded. `min_length` is a lower bound of the row's
    /// length, known before the row is built.
    pub(super) fn push(
        &mut self,
        min_length: RowLength<'_>,
        build: impl FnOnce(&mut ValueWarnings) -> Result<JsonObject, ToolError>,
    ) -> Result<(), ToolError> {
        if self.is_full() {
            return Ok(());
        }
        if self.rows.len() == self.limits.max_rows {
            self.cut = Some(Cut::Rows);
            return Ok(());
        }
        if self.text.len() + min_length.total > self.limits.max_output {
            self.cut_output(min_length);
            return Ok(());
        }
        let row = build(&mut self.warnings)?;
        let end = self.text.len();
        if !self.rows.is_empty() {
            self.text.push(b',');
        }
        let start = self.text.len();
        serde_json::to_writer(&mut self.text, &row)
            .map_err(|error| ToolError::BadOutput(error.to_string()))?;
        // The two brackets count too.
        if end + (self.text.len() - start) + 2 > self.limits.max_output {
            self.text.truncate(end);
            let mut lengths = RowLength::default();
            // The advice is about the first row.
            for (column, value) in row.iter().filter(|_| self.rows.is_empty()) {
                lengths.add(column, value.to_string().len());
            }
            self.cut_output(lengths);
            return Ok(());
        }
        self.rows.push(Value::Object(row));
        Ok(())
    }

    fn cut_output(&mut self, lengths: RowLength<'_>) {
        self.cut = Some(Cut::Output);
        if self.rows.is_empty() {
            self.advice = lengths.advice();
        }
    }

    /// The result. `stopped` means that the database was stopped before the last row; otherwise the
    /// statement ran to its end.
    pub(super) fn into_result(
        mut self,
        stopped: bool,
        context: &ToolContext,
    ) -> Result<ToolResult, ToolError> {
        let (max_rows, max_output) = (self.limits.max_rows, self.limits.max_output);
        let shown = self.rows.len();
        if self.cut == Some(Cut::Output) && shown == 0 && stopped {
            return Err(ToolError::BadOutput(format!(
                "the first row alone is longer than {max_output} bytes (max_output): {}",
                self.advice
            )));
        }
        let reason = match self.cut {
            None => None,
            Some(Cut::Rows) => Some(format!(
                "there are more than {} (max_rows)",
                Count(max_rows, "row")
            )),
            Some(Cut::Output) => Some(format!(
                "the rows are longer than {max_output} bytes (max_output)"
            )),
        };
        if let Some(reason) = reason {
            let note = if stopped {
                ""
            } else {
                "; the statement itself ran to its end"
            };
            context.warn(format!(
                "{reason}: the first {shown} are shown{note}. Ask for fewer, with arguments that select less or a limit in \
                 the statement"
            ));
        }
        for sentence in self.warnings {
            context.warn(sentence);
        }
        self.text.push(b']');
        let text = String::from_utf8(self.text)
            .map_err(|error| ToolError::BadOutput(error.to_string()))?;
        let incomplete = self
            .cut
            .map(|cut| Incomplete::new(Unit::Items, cut.limit_name()));
        Ok(ToolResult {
            content: vec![Content::text(text)],
            structured_content: Some(Value::Array(self.rows)),
            incomplete,
            ..ToolResult::default()
        })
    }
}

/// The result of a statement that returns no rows.
pub(super) fn affected_rows_result(count: u64) -> ToolResult {
    ToolResult::json(json!({"rows_affected": count}))
}

/// A row with these columns, as a JSON object.
pub(super) fn build_row<'a>(
    names: impl ExactSizeIterator<Item = &'a str>,
    mut value: impl FnMut(usize) -> Result<Value, ToolError>,
) -> Result<JsonObject, ToolError> {
    let mut row = Map::with_capacity(names.len());
    for (at, name) in names.enumerate() {
        row.insert(name.to_owned(), value(at)?);
    }
    Ok(row)
}

/// The fault of the columns' names, if they cannot be the keys of an object.
pub(super) fn duplicate_column_fault<'a>(
    names: impl IntoIterator<Item = &'a str>,
) -> Option<String> {
    let mut seen = std::collections::HashSet::new();
    let duplicate = names.into_iter().find(|name| !seen.insert(*name))?;
    Some(format!(
        "two columns have the name `{duplicate}`; rename one of them: … as another_name"
    ))
}

/// A floating-point number. JSON has no infinity and no NaN, so these become texts.
pub(super) fn float_to_json(value: f64) -> Value {
    match serde_json::Number::from_f64(value) {
        Some(number) => Value::Number(number),
        None if value.is_nan() => "NaN".into(),
        None if value > 0.0 => "Infinity".into(),
        None => "-Infinity".into(),
    }
}
