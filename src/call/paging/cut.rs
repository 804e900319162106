//! Cuts a long result: to the first items of a list, to beginning and end of a text, or to one page
//! of either.
//!
//! The result alone decides whether items or characters are counted, never the page. So an offset
//! means the same on every page.
//! - **A list** is structured content that is an array with at least two items, or one array in an
//!   object that makes up more than half of the object's JSON. It is cut only between items. A text
//!   block that holds the same JSON, or the list alone, is cut with it. If each text block holds one
//!   item, as the Python SDK of MCP writes a list, the blocks are the items.
//! - **Any other result** is the sequence of its text blocks, cut between characters. Its
//!   structured content stays whole, unless it only wraps the text.
//!
//! Images, sound and files are never cut, and come with the first page.

use std::borrow::Cow;
use std::ops::Range;

use serde_json::{Value, json};
use toolcrib_dialect::Content;

use super::page::{Detail, Overflow, Page, RestHint, Unit};
use crate::call::result::ToolResult;
use crate::call::units::OmissionNote;

/// Default number of items in a preview, and on a page (the contract's numbers).
const PREVIEW_ITEMS: usize = 200;
const PAGE_ITEMS: usize = 50;

/// Default for the maximum length of a text that is shown whole, in characters: the limit of Claude
/// Code for the output of a tool.
pub const MAX_TEXT_CHARS: usize = 50_000;

/// A part of a result.
#[derive(Debug, Clone, PartialEq)]
pub struct CutResult {
    /// The result with this part of its list or its texts, and everything else.
    pub result: ToolResult,
    /// Number of items or characters in this part.
    pub shown: usize,
    /// Number of items or characters in the whole result, as the tool returned it.
    pub total: usize,
    /// Whether items or characters are counted.
    pub unit: Unit,
    /// Offset of the next page, if pages were requested and this is not the last one.
    pub next_offset: Option<usize>,
}

impl CutResult {
    /// The description of the rest, for the answer.
    pub fn to_overflow(&self, for_model: RestHint, hint: String) -> Overflow {
        let Self {
            shown,
            total: returned,
            unit,
            next_offset,
            ..
        } = *self;
        let is_complete = self.result.incomplete.is_none();
        let total = is_complete.then_some(returned);
        Overflow {
            shown,
            total,
            unit,
            hint,
            next_offset,
            for_model,
            returned,
        }
    }
}

/// The part that `page` requests; `None` if that is the whole result.
///
/// Texts of up to `max_chars` characters are whole, whatever the `limit`. A `limit` is mostly meant
/// for a list, and must not cut the sentence that a tool returns instead of a list. Likewise,
/// `max_chars: 0` does not cut the text beside structured content, if it has at most
/// [`MAX_TEXT_CHARS`] characters. Without a `limit`, a page holds up to `max_chars` characters,
/// also of a list, but at least one item.
pub fn cut_result(result: &ToolResult, page: Page, max_chars: usize) -> Option<CutResult> {
    if fits_whole(result, page, max_chars) {
        return None;
    }
    match find_list(result) {
        Some(list) => cut_items(result, &list, page, max_chars),
        None => cut_characters(result, page, max_chars),
    }
}

/// Whether a page may be less than the whole result, by a quick check. `max_chars` is as for
/// [`cut_result`].
pub fn may_be_cut(result: &ToolResult, limit: Option<usize>, max_chars: usize) -> bool {
    !fits_whole(
        result,
        Page {
            detail: Detail::Full,
            offset: 0,
            limit,
        },
        max_chars,
    )
}

/// The quick check that is enough for most results. It counts and serializes nothing that is short.
fn fits_whole(result: &ToolResult, page: Page, max_chars: usize) -> bool {
    let most = max_items(page);
    let longer = |value: &Value| value.as_array().is_some_and(|items| items.len() > most);
    let has_longer = match &result.structured_content {
        Some(Value::Object(object)) => object.values().any(longer),
        Some(value) => longer(value),
        None => false,
    };
    // A character has at least one byte, so the number of bytes is an upper bound.
    let bytes: usize = text_blocks(result).map(str::len).sum();
    !page.is_further() && !has_longer && bytes <= max_chars
}

fn max_items(page: Page) -> usize {
    page.limit.unwrap_or(match page.detail {
        Detail::Exploring => PREVIEW_ITEMS,
        Detail::Full => PAGE_ITEMS,
    })
}

fn text_blocks(result: &ToolResult) -> impl Iterator<Item = &str> {
    result.content.iter().filter_map(Content::as_text)
}

/// A result that is a list.
struct List<'r> {
    location: ListLocation,
    items: &'r [Value],
    blocks: Vec<BlockRole<'r>>,
}

/// What a block of the result has to do with the list.
enum BlockRole<'r> {
    /// It holds this JSON with the same list. Mostly that is the structured content itself.
    Whole(Cow<'r, Value>),
    /// It holds the item at this position.
    Item(usize),
    Other,
}

/// The location of the list in a value.
enum ListLocation {
    Root,
    Member(String),
}

impl ListLocation {
    fn items<'v>(&self, value: &'v Value) -> Option<&'v [Value]> {
        match self {
            Self::Root => value.as_array(),
            // A text may hold the list alone.
            Self::Member(name) => value.get(name).unwrap_or(value).as_array(),
        }
        .map(Vec::as_slice)
    }

    /// The value with only these items. The keys of an object keep their order.
    fn with_items(&self, value: &Value, items: &[Value]) -> Value {
        let items = Value::Array(items.to_vec());
        match (self, value) {
            (Self::Member(list), Value::Object(object)) => {
                let mut items = Some(items);
                let member = |(name, value): (&String, &Value)| {
                    let items = items.take_if(|_| name == list);
                    (name.clone(), items.unwrap_or_else(|| value.clone()))
                };
                Value::Object(object.iter().map(member).collect())
            }
            _ => items,
        }
    }

    /// The JSON value of a block, if it has a list of the same length in the same location. A text
    /// that is written as `structured` is not parsed.
    fn parse_block<'r>(
        &self,
        block: &Content,
        structured: &'r Value,
        written: &str,
        items: &[Value],
    ) -> Option<Cow<'r, Value>> {
        let text = block.as_text()?;
        if text == written {
            return Some(Cow::Borrowed(structured));
        }
        let value: Value = text
            .trim_start()
            .starts_with(['{', '['])
            .then(|| serde_json::from_str(text).ok())
            .flatten()?;
        self.items(&value)
            .is_some_and(|block_value| block_value.len() == items.len())
            .then_some(Cow::Owned(value))
    }
}

/// The list of a result. `None` if there is none, or if the text beside it is the long part.
fn find_list(result: &ToolResult) -> Option<List<'_>> {
    let value = result.structured_content.as_ref()?;
    let written = value.to_string();
    let location = match value {
        Value::Array(_) => ListLocation::Root,
        Value::Object(object) => {
            let total_chars = written.chars().count();
            let most =
                |member: &&Value| member.is_array() && count_characters(member) * 2 > total_chars;
            ListLocation::Member(object.iter().find(|(_, member)| most(member))?.0.clone())
        }
        _ => return None,
    };
    let items = location.items(value).filter(|items| items.len() > 1)?;
    let blocks = match item_blocks(result, items) {
        Some(blocks) => blocks,
        None => {
            let role = |block| match location.parse_block(block, value, &written, items) {
                Some(value) => BlockRole::Whole(value),
                None => BlockRole::Other,
            };
            result.content.iter().map(role).collect()
        }
    };
    let other_chars = result
        .content
        .iter()
        .zip(&blocks)
        .filter(|(_, role)| matches!(role, BlockRole::Other))
        .filter_map(|(block, _)| Some(block.as_text()?.chars().count()));
    (other_chars.sum::<usize>() <= MAX_TEXT_CHARS).then_some(List {
        location,
        items,
        blocks,
    })
}

/// The blocks of a result whose texts are the items, one after the other. A nested list may have a
/// block for each of its own items, and `null` none: the Python SDK of MCP writes them so.
fn item_blocks<'r>(result: &ToolResult, items: &[Value]) -> Option<Vec<BlockRole<'r>>> {
    let is_text_of = |(text, (_, value)): (&str, &(usize, &Value))| {
        value.as_str() == Some(text)
            || serde_json::from_str(text).is_ok_and(|read: Value| read == **value)
    };
    let whole: Vec<_> = items.iter().enumerate().collect();
    let nested = whole.iter().flat_map(|(at, item)| {
        let leaves = leaves(item).into_iter();
        leaves.map(|leaf| (*at, leaf))
    });
    let nested: Vec<_> = nested.collect();
    let values = [whole, nested].into_iter().find(|values| {
        text_blocks(result).count() == values.len()
            && text_blocks(result).zip(values).all(is_text_of)
    })?;
    let mut positions = values.into_iter().map(|(at, _)| at);
    let role = |block: &Content| match block.as_text().and_then(|_| positions.next()) {
        Some(at) => BlockRole::Item(at),
        None => BlockRole::Other,
    };
    Some(result.content.iter().map(role).collect())
}

/// The value without the lists around its parts, and without `null`.
fn leaves(value: &Value) -> Vec<&Value> {
    match value {
        Value::Null => Vec::new(),
        Value::Array(items) => items.iter().flat_map(leaves).collect(),
        leaf => vec![leaf],
    }
}

fn cut_items(
    result: &ToolResult,
    list: &List<'_>,
    page: Page,
    max_chars: usize,
) -> Option<CutResult> {
    let List {
        location,
        items,
        blocks: roles,
    } = list;
    let value = result.structured_content.as_ref()?;
    let total = items.len();
    let offset = page.offset.min(total);
    let mut shown = max_items(page).min(total - offset);
    if page.limit.is_none() {
        // The content beside the list is on every page, so it reduces the room for items.
        let mut room = max_chars.saturating_sub(count_characters(&location.with_items(value, &[])));
        let fit = items[offset..offset + shown].iter().take_while(|item| {
            let item_chars = count_characters(item) + 1;
            let fits = item_chars <= room;
            room = room.saturating_sub(item_chars);
            fits
        });
        shown = fit.count().max(shown.min(1));
    }
    if shown == total {
        return None;
    }
    let part = offset..offset + shown;
    let structured_content = location.with_items(value, &items[part.clone()]);
    let blocks = result.content.iter().zip(roles);
    let blocks = blocks.filter_map(|(block, role)| match (block, role) {
        (_, BlockRole::Item(at)) => part.contains(at).then(|| block.clone()),
        (Content::Text { .. }, BlockRole::Whole(Cow::Borrowed(_))) => {
            Some(Content::text(structured_content.to_string()))
        }
        (Content::Text { text }, BlockRole::Whole(value)) => Some(Content::text(format_like(
            text,
            &location.with_items(value, &location.items(value)?[part.clone()]),
        ))),
        (Content::Text { .. }, BlockRole::Other) => Some(block.clone()),
        _ => (!page.is_further()).then(|| block.clone()),
    });
    let result = ToolResult {
        content: blocks.collect(),
        structured_content: Some(structured_content),
        ..result.without_content()
    };
    let next_offset = offset_after(page, offset + shown, total);
    Some(CutResult {
        result,
        shown,
        total,
        unit: Unit::Items,
        next_offset,
    })
}

/// Serializes JSON on one line or on several, as the original text.
fn format_like(text: &str, value: &Value) -> String {
    match text.trim_end().contains('\n') {
        true => serde_json::to_string_pretty(value).unwrap_or_default(),
        false => value.to_string(),
    }
}

/// The one key of structured content that wraps the one text block, as FastMCP writes a text that a
/// function returns: `{"result": "…"}`.
fn wrapper_key(result: &ToolResult) -> Option<&String> {
    let Some(Value::Object(object)) = &result.structured_content else {
        return None;
    };
    let (key, Value::String(wrapped)) = object.iter().next()? else {
        return None;
    };
    let is_wrapped = object.len() == 1 && text_blocks(result).eq([wrapped.as_str()]);
    is_wrapped.then_some(key)
}

fn cut_characters(result: &ToolResult, page: Page, max_chars: usize) -> Option<CutResult> {
    let total = text_blocks(result)
        .map(|text| text.chars().count())
        .sum::<usize>();
    let wrapper = wrapper_key(result);
    let max_whole = if result.structured_content.is_some() && wrapper.is_none() {
        max_chars.max(MAX_TEXT_CHARS)
    } else {
        max_chars
    };
    let most = page.limit.unwrap_or(max_chars);
    if !page.is_further() && (total <= max_whole || total <= most) {
        return None;
    }
    let offset = page.offset.min(total);
    let (shown, head, tail) = match page.detail {
        Detail::Full => {
            let end = total.min(offset.saturating_add(most));
            (end - offset, offset..end, total..total)
        }
        Detail::Exploring => (most, 0..most.div_ceil(2), total - most / 2..total),
    };
    let gap = format!("\n{}\n", OmissionNote(total - shown, "character"));
    let mut at = 0;
    let mut content = Vec::new();
    for block in &result.content {
        let Content::Text { text } = block else {
            content.extend((!page.is_further()).then(|| block.clone()));
            continue;
        };
        let block_range = at..at + text.chars().count();
        at = block_range.end;
        let mut part = slice_characters(text, &block_range, &head).to_owned();
        if page.detail == Detail::Exploring && block_range.contains(&head.end) {
            part.push_str(&gap);
        }
        part.push_str(slice_characters(text, &block_range, &tail));
        content.extend((!part.is_empty()).then(|| Content::text(part)));
    }
    let result = ToolResult {
        content,
        structured_content: result
            .structured_content
            .clone()
            .filter(|_| wrapper.is_none()),
        ..result.without_content()
    };
    let mut cut = CutResult {
        result,
        shown,
        total,
        unit: Unit::Characters,
        next_offset: offset_after(page, offset + shown, total),
    };
    if let Some(key) = wrapper {
        let text = match shown {
            0 => cut
                .to_overflow(RestHint::LastPage, String::new())
                .model_note(""),
            _ => cut.result.as_text(),
        };
        cut.result.structured_content = Some(json!({key: text}));
    }
    Some(cut)
}

/// The part of a text in `range`. The text has the characters `here` of the whole sequence.
fn slice_characters<'t>(
    text: &'t str,
    block_range: &Range<usize>,
    range: &Range<usize>,
) -> &'t str {
    let (from, to) = (
        range.start.max(block_range.start),
        range.end.min(block_range.end),
    );
    if from >= to {
        return "";
    }
    let mut indices = text.char_indices().map(|(index, _)| index);
    let begin = indices.nth(from - block_range.start).unwrap_or(text.len());
    let end = indices.nth(to - from - 1).unwrap_or(text.len());
    &text[begin..end]
}

fn offset_after(page: Page, end: usize, total: usize) -> Option<usize> {
    (page.detail == Detail::Full && end < total).then_some(end)
}

/// The number of characters in the JSON of a value.
fn count_characters(value: &Value) -> usize {
    value.to_string().chars().count()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const EXPLORING: Page = Page {
        detail: Detail::Exploring,
        offset: 0,
        limit: None,
    };

    fn full(offset: usize, limit: Option<usize>) -> Page {
        Page {
            detail: Detail::Full,
            offset,
            limit,
        }
    }

    fn rows(n: usize) -> Value {
        (0..n)
            .map(|n| json!({"id": n, "name": format!("row {n}")}))
            .collect()
    }

    fn cut_default(result: &ToolResult, page: Page) -> Option<CutResult> {
        cut_result(result, page, MAX_TEXT_CHARS)
    }

    fn numbers(cut: &CutResult) -> (usize, usize, Unit, Option<usize>) {
        (cut.shown, cut.total, cut.unit, cut.next_offset)
    }

    #[test]
    fn list_previews_and_pages_have_defaults() {
        let result = ToolResult::json(rows(1423));
        let explored = cut_default(&result, EXPLORING).unwrap();
        assert_eq!(numbers(&explored), (200, 1423, Unit::Items, None));
        let first = cut_default(&result, full(0, None)).unwrap();
        assert_eq!(numbers(&first), (50, 1423, Unit::Items, Some(50)));
        let last = cut_default(&result, full(1400, None)).unwrap();
        assert_eq!(numbers(&last), (23, 1423, Unit::Items, None));
        assert_eq!(
            last.result.structured_content.as_ref().unwrap()[0]["id"],
            1400
        );
        assert_eq!(
            last.result,
            ToolResult::json(last.result.structured_content.clone().unwrap())
        );
        let few = cut_default(
            &result,
            Page {
                limit: Some(3),
                ..EXPLORING
            },
        )
        .unwrap();
        assert_eq!(numbers(&few), (3, 1423, Unit::Items, None));
        assert_eq!(cut_default(&ToolResult::json(rows(200)), EXPLORING), None);
        assert_eq!(
            cut_default(&ToolResult::json(rows(50)), full(0, None)),
            None
        );
    }

    #[test]
    fn object_list_is_its_largest_array() {
        let result =
            ToolResult::json(json!({"columns": ["id", "name"], "rows": rows(300), "total": 300}));
        let page = cut_default(&result, full(290, Some(20))).unwrap();
        assert_eq!(numbers(&page), (10, 300, Unit::Items, None));
        let shown = page.result.structured_content.unwrap();
        assert_eq!(
            (&shown["columns"], &shown["total"], &shown["rows"][9]["id"]),
            (&json!(["id", "name"]), &json!(300), &json!(299))
        );
        // Of two arrays of the same size neither is the list, nor is a short array beside a long
        // text.
        for value in [
            json!({"a": rows(2000), "b": rows(2000)}),
            json!({"tags": ["x", "y"], "body": "y".repeat(MAX_TEXT_CHARS)}),
            json!(["y".repeat(MAX_TEXT_CHARS)]),
        ] {
            let result = ToolResult::json(value);
            let shown = cut_default(&result, EXPLORING).unwrap();
            assert_eq!(
                (shown.unit, shown.shown),
                (Unit::Characters, MAX_TEXT_CHARS)
            );
            assert_eq!(shown.result.structured_content, result.structured_content);
        }
    }

    #[test]
    fn cut_list_keeps_its_key_position() {
        let result =
            ToolResult::json(json!({"zulu": 1, "results": rows(300), "note": "n", "alpha": 2}));
        for page in [
            EXPLORING,
            full(0, None),
            full(100, Some(5)),
            full(300, None),
        ] {
            let shown = cut_default(&result, page).unwrap().result;
            let text: Value = serde_json::from_str(&shown.as_text()).unwrap();
            for value in [shown.structured_content.unwrap(), text] {
                let keys: Vec<&String> = value.as_object().unwrap().keys().collect();
                assert_eq!(keys, ["zulu", "results", "note", "alpha"]);
            }
        }
    }

    #[test]
    fn large_items_shorten_pages_without_a_limit() {
        let result = ToolResult::json((0..40).map(|n| json!(format!("{n:10000}"))).collect());
        let page = cut_default(&result, full(0, None)).unwrap();
        assert_eq!(numbers(&page), (4, 40, Unit::Items, Some(4)));
        assert!(page.result.as_text().len() <= MAX_TEXT_CHARS);
        assert_eq!(
            numbers(&cut_default(&result, full(4, Some(30))).unwrap()),
            (30, 40, Unit::Items, Some(34))
        );
        let huge = ToolResult::json(json!(["x".repeat(60_000), "y"]));
        assert_eq!(
            numbers(&cut_default(&huge, EXPLORING).unwrap()),
            (1, 2, Unit::Items, None)
        );
    }

    #[test]
    fn equal_text_block_keeps_its_format() {
        let pretty = serde_json::to_string_pretty(&rows(60)).unwrap();
        let picture = Content::Image {
            data: "iVBO".into(),
            mime_type: "image/png".into(),
        };
        let content = vec![
            Content::text("60 rows:"),
            Content::text(pretty),
            picture.clone(),
        ];
        let result = ToolResult {
            content,
            structured_content: Some(rows(60)),
            ..ToolResult::default()
        };
        let first = cut_default(&result, full(0, None)).unwrap().result;
        let fifty: Value = (0..50).map(|n| rows(60)[n].clone()).collect();
        let expected = serde_json::to_string_pretty(&fifty).unwrap();
        assert_eq!(
            first.content,
            [Content::text("60 rows:"), Content::text(expected), picture]
        );
        assert_eq!(
            cut_default(&result, full(50, None))
                .unwrap()
                .result
                .content
                .len(),
            2,
            "the picture came with the first"
        );
    }

    /// FastMCP writes a list as one text block without the wrapper, the Python SDK of MCP as one
    /// block for each item.
    #[test]
    fn wrapped_list_and_its_text_blocks_are_one_list() {
        let list = |items: &Value, texts: Vec<String>| ToolResult {
            content: texts.into_iter().map(Content::text).collect(),
            structured_content: Some(json!({"result": items})),
            ..ToolResult::default()
        };
        let names: Value = (0..60).map(|n| json!(format!("name {n}"))).collect();
        for items in [rows(60), names, (0..60).map(Value::from).collect()] {
            let texts = items.as_array().unwrap().iter();
            let plain = |item: &Value| {
                item.as_str()
                    .map_or_else(|| item.to_string(), str::to_owned)
            };
            let texts: Vec<String> = texts.map(plain).collect();
            let page = |result: &ToolResult| {
                let cut = cut_default(result, full(50, Some(5))).unwrap();
                assert_eq!(numbers(&cut), (5, 60, Unit::Items, Some(55)));
                let data = cut.result.structured_content.clone().unwrap();
                assert_eq!(
                    data["result"].as_array().unwrap()[..],
                    items.as_array().unwrap()[50..55]
                );
                cut.result
            };
            let one = page(&list(&items, vec![items.to_string()]));
            let text: Value = serde_json::from_str(&one.as_text()).unwrap();
            assert_eq!(text, one.structured_content.unwrap()["result"]);
            let many = page(&list(&items, texts.clone()));
            assert_eq!(many.as_text(), texts[50..55].join("\n"));
        }
        // A nested list has a block for each of its items, and `null` has none.
        let items: Value = (0..60).map(|n| json!([n, null, [n, "x"]])).collect();
        let texts = (0..60).flat_map(|n| [n.to_string(), n.to_string(), "x".to_owned()]);
        let nested = list(&items, texts.collect());
        let cut = cut_default(&nested, full(50, Some(2))).unwrap();
        assert_eq!(cut.result.as_text(), "50\n50\nx\n51\n51\nx");
        // Other texts than the items are whole.
        let other = list(&rows(60), (0..60).map(|n| format!("line {n}")).collect());
        let cut = cut_default(&other, full(50, Some(5))).unwrap();
        assert_eq!((numbers(&cut).0, cut.result.content.len()), (5, 60));
    }

    #[test]
    fn long_text_beside_a_list_is_cut() {
        let content = vec![Content::text("é".repeat(MAX_TEXT_CHARS + 1))];
        let result = ToolResult {
            content,
            structured_content: Some(json!(["a", "b"])),
            ..ToolResult::default()
        };
        let shown = cut_default(&result, EXPLORING).unwrap();
        assert_eq!(
            (shown.unit, shown.total),
            (Unit::Characters, MAX_TEXT_CHARS + 1)
        );
        assert_eq!(shown.result.structured_content, Some(json!(["a", "b"])));
    }

    #[test]
    fn wrapped_text_is_cut_as_the_text_itself() {
        let text = format!("begin{}end", "ø".repeat(100_000));
        let plain = ToolResult::text(text.clone());
        let wrapped = ToolResult {
            structured_content: Some(json!({"result": text})),
            ..plain.clone()
        };
        for (page, max_chars) in [
            (EXPLORING, MAX_TEXT_CHARS),
            (full(100_000, None), MAX_TEXT_CHARS),
            (full(5, Some(7)), 0),
            (full(100_008, None), 0),
        ] {
            let cut = cut_result(&plain, page, max_chars).unwrap();
            let mut cut_wrapped = cut_result(&wrapped, page, max_chars).unwrap();
            let data = cut_wrapped.result.structured_content.take();
            let expected = match cut.shown {
                0 => "[Beyond the end: there are 100008 characters.]".to_owned(),
                _ => cut.result.as_text(),
            };
            assert_eq!(data, Some(json!({"result": expected})));
            assert_eq!(cut_wrapped, cut);
        }
        // Other data than the text stays whole.
        for data in [
            json!({"result": "other"}),
            json!({"result": text, "more": 1}),
        ] {
            let beside = ToolResult {
                structured_content: Some(data.clone()),
                ..plain.clone()
            };
            let cut = cut_default(&beside, EXPLORING).unwrap();
            assert_eq!(cut.result.structured_content, Some(data));
        }
    }

    #[test]
    fn text_preview_shows_both_ends() {
        let result = ToolResult::text(format!("begin{}end", "ø".repeat(100_000)));
        let shown = cut_default(&result, EXPLORING).unwrap();
        assert_eq!(
            numbers(&shown),
            (MAX_TEXT_CHARS, 100_008, Unit::Characters, None)
        );
        let text = shown.result.as_text();
        assert!(text.starts_with("beginø") && text.ends_with("øend"));
        assert!(text.contains("ø\n[… 50008 characters left out …]\nø"));
        assert_eq!(
            cut_default(&ToolResult::text("ø".repeat(MAX_TEXT_CHARS)), EXPLORING),
            None,
            "characters, not bytes"
        );
        // Blocks form one text. A block completely between the two ends is left out.
        let content = ["aaaa", "bbbb", "cccc"].map(Content::text).to_vec();
        let blocks = ToolResult {
            content,
            ..ToolResult::default()
        };
        let ends = cut_result(
            &blocks,
            Page {
                limit: Some(5),
                ..EXPLORING
            },
            0,
        )
        .unwrap()
        .result
        .content;
        assert_eq!(
            ends,
            [
                Content::text("aaa\n[… 7 characters left out …]\n"),
                Content::text("cc")
            ]
        );
    }

    #[test]
    fn list_limit_does_not_cut_short_texts() {
        let page = full(0, Some(5));
        assert_eq!(
            cut_default(&ToolResult::error("there is no table of that name"), page),
            None
        );
        let none = ToolResult::json(json!({"rows": [], "total": 0, "query": "select 1"}));
        assert_eq!(cut_default(&none, page), None);
        assert_eq!(cut_result(&none, page, 0), None);
        assert_eq!(
            numbers(&cut_result(&ToolResult::text("a sentence"), page, 0).unwrap()),
            (5, 10, Unit::Characters, Some(5))
        );
        let long = ToolResult::text("x".repeat(MAX_TEXT_CHARS + 1));
        assert_eq!(
            numbers(&cut_default(&long, page).unwrap()),
            (5, MAX_TEXT_CHARS + 1, Unit::Characters, Some(5))
        );
    }

    #[test]
    fn offset_beyond_the_end_is_empty() {
        let list = cut_default(&ToolResult::json(rows(60)), full(60, None)).unwrap();
        assert_eq!(
            (numbers(&list), list.result.as_text()),
            ((0, 60, Unit::Items, None), "[]".to_owned())
        );
        let text = cut_default(&ToolResult::text("abc"), full(usize::MAX, None)).unwrap();
        assert_eq!(
            (numbers(&text), text.result.content.len()),
            ((0, 3, Unit::Characters, None), 0)
        );
    }

    proptest! {
        /// All pages together are the whole result, for any length of page: no item or character
        /// twice or missing.
        #[test]
        fn all_pages_together_equal_the_result(
            texts in prop::collection::vec("\\PC{0,40}", 0..4), items in 0..120_usize, limit in 1..70_usize, is_list: bool,
        ) {
            let content = texts.into_iter().map(Content::text).collect();
            let result = match is_list {
                true => ToolResult::json(json!({"rows": rows(items)})),
                false => ToolResult { content, ..ToolResult::default() },
            };
            let (mut text, mut list, mut offset, mut pages) = (String::new(), Vec::new(), Some(0), 0);
            while let Some(from) = offset {
                let page = cut_result(&result, full(from, Some(limit)), 0);
                offset = page.as_ref().and_then(|page| page.next_offset);
                let part = page.map_or_else(|| result.clone(), |page| page.result);
                list.extend(part.structured_content.iter().flat_map(|value| value["rows"].as_array().unwrap().clone()));
                text.extend(part.content.iter().map(|block| match block {
                    Content::Text { text } => text.as_str(),
                    other => panic!("{other:?}"),
                }));
                pages += 1;
                prop_assert!(pages <= 200);
            }
            match is_list {
                true => prop_assert_eq!(Value::from(list), rows(items)),
                false => prop_assert_eq!(text, result.as_text().replace('\n', "")),
            }
        }
    }
}
