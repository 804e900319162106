//! Tables for people: columns under a line of titles, cut to the width of the terminal.

use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

use crate::text::sanitize;

/// The space between two columns.
const GAP: usize = 2;
/// The least width of a column of names that is cut.
const MIN_NAME_WIDTH: usize = 6;
/// The least width of a column of sentences that is cut, while names can still be left whole.
const MIN_PROSE_WIDTH: usize = 16;
/// Stands at the end of a cell that was cut.
const CUT: char = '…';

/// What a column holds. It decides on alignment, and on the order in which columns are cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Content {
    /// Numbers: aligned to the right, and never cut.
    Number,
    /// Words from a small set: never cut.
    Word,
    /// Names: cut only when all sentences are cut already.
    Name,
    /// Sentences: cut first.
    Prose,
}

/// A table. A column without any text is left out.
pub(super) struct Table {
    columns: Vec<(&'static str, Content)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these columns.
    pub(super) fn new(columns: &[(&'static str, Content)]) -> Self {
        Self {
            columns: columns.to_vec(),
            rows: Vec::new(),
        }
    }

    /// Adds a row, with a cell for each column. Cells may hold text of other parties: it is shown
    /// on one line, without control characters.
    pub(super) fn add_row(&mut self, cells: impl IntoIterator<Item = String>) {
        let clean = |cell: String| {
            sanitize::escape_invisible(&cell.split_whitespace().collect::<Vec<_>>().join(" "))
        };
        self.rows.push(cells.into_iter().map(clean).collect());
    }

    /// Whether the table has no rows.
    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The table as lines of at most `width` columns, if names and numbers leave room for that.
    pub(super) fn format(&self, width: usize) -> String {
        let shown: Vec<usize> = (0..self.columns.len())
            .filter(|&at| self.has_text(at))
            .collect();
        let widths = self.fit_widths(&shown, width);
        let titles: Vec<String> = self
            .columns
            .iter()
            .map(|(title, _)| (*title).to_owned())
            .collect();
        let lines = std::iter::once(&titles).chain(&self.rows).map(|cells| {
            let cells = shown
                .iter()
                .zip(&widths)
                .map(|(&at, &width)| pad(&cells[at], width, self.columns[at].1));
            cells
                .collect::<Vec<_>>()
                .join(&" ".repeat(GAP))
                .trim_end()
                .to_owned()
        });
        lines.collect::<Vec<_>>().join("\n")
    }

    fn has_text(&self, column: usize) -> bool {
        self.rows.iter().any(|cells| !cells[column].is_empty())
    }

    /// The widths of the columns at `shown`. The widest one that may be cut gives way first.
    fn fit_widths(&self, shown: &[usize], most: usize) -> Vec<usize> {
        let title_width = |at: usize| self.columns[at].0.width();
        let natural = |at: usize| {
            self.rows
                .iter()
                .map(|cells| cells[at].width())
                .max()
                .unwrap_or(0)
                .max(title_width(at))
        };
        let mut widths: Vec<usize> = shown.iter().map(|&at| natural(at)).collect();
        let gaps = GAP * shown.len().saturating_sub(1);
        for (content, least) in [
            (Content::Prose, MIN_PROSE_WIDTH),
            (Content::Name, MIN_NAME_WIDTH),
            (Content::Prose, MIN_NAME_WIDTH),
        ] {
            while widths.iter().sum::<usize>() + gaps > most {
                let can_shrink = |at: &usize| {
                    self.columns[shown[*at]].1 == content
                        && widths[*at] > least.max(title_width(shown[*at]))
                };
                let Some(widest) = (0..shown.len())
                    .filter(can_shrink)
                    .max_by_key(|&at| widths[at])
                else {
                    break;
                };
                widths[widest] -= 1;
            }
        }
        widths
    }
}

/// The cell, cut or filled to this width.
fn pad(cell: &str, width: usize, content: Content) -> String {
    let cell = cut(cell, width);
    let space = " ".repeat(width.saturating_sub(cell.width()));
    if content == Content::Number {
        space + &cell
    } else {
        cell + &space
    }
}

/// The beginning of a text that fits into `width` columns, with a mark at its end if it was cut.
fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let (mut out, mut used) = (String::new(), 1);
    for character in text.chars() {
        used += character.width().unwrap_or(0);
        if used > width {
            break;
        }
        out.push(character);
    }
    out.truncate(out.trim_end().len());
    out.push(CUT);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [(&str, Content); 4] = [
        ("TOOL", Content::Name),
        ("CALLS", Content::Number),
        ("STATE", Content::Word),
        ("DETAIL", Content::Prose),
    ];

    fn table(rows: &[[&str; 4]]) -> Table {
        let mut table = Table::new(&COLUMNS);
        for row in rows {
            table.add_row(row.map(str::to_owned));
        }
        table
    }

    #[test]
    fn columns_are_aligned() {
        let shown =
            table(&[["add", "12", "ok", "fine"], ["multiply", "3", "failed", ""]]).format(80);
        assert_eq!(
            shown,
            "TOOL      CALLS  STATE   DETAIL\nadd          12  ok      fine\nmultiply      3  failed"
        );
    }

    #[test]
    fn empty_columns_are_left_out() {
        let shown = table(&[["add", "12", "", ""]]).format(80);
        assert_eq!(shown, "TOOL  CALLS\nadd      12");
        assert_eq!(table(&[]).format(80), "");
    }

    #[test]
    fn sentences_are_cut_before_names() {
        let name = "get_weather_forecast";
        let rows = [[
            name,
            "1",
            "failed",
            "the connection to the host was refused",
        ]];
        let shown = table(&rows).format(60);
        assert!(shown.lines().all(|line| line.width() <= 60), "{shown}");
        assert!(shown.contains(name) && shown.ends_with('…'), "{shown}");
        let narrow = table(&rows).format(44);
        assert!(!narrow.contains(name), "{narrow}");
        assert!(
            narrow.lines().all(|line| line.width() <= 44) && narrow.contains("failed"),
            "{narrow}"
        );
    }

    #[test]
    fn wide_characters_take_two_columns() {
        let shown = table(&[
            ["天気予報天気予報", "1", "ok", "x"],
            ["abc", "2", "ok", "y"],
        ])
        .format(80);
        let widths: Vec<usize> = shown.lines().skip(1).map(|line| line.width()).collect();
        assert_eq!(widths, [16 + 2 + 5 + 2 + 5 + 2 + 1; 2]);
        assert_eq!(cut("天気予報", 6), "天気…");
    }

    #[test]
    fn control_characters_are_visible() {
        let shown = table(&[["a\u{1b}[31mb", "1", "ok", "two\nlines"]]).format(80);
        assert!(
            !shown.contains('\u{1b}') && shown.contains("two lines"),
            "{shown:?}"
        );
    }
}
