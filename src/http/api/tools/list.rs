//! The lists of tools and toolsets.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::IntoParams;

use crate::call::{Caller, Definition, Origin, Selection};
use crate::catalog::registry::{Catalog, Entry, Registry};
use crate::formats::brief::brief_definition;
use crate::formats::{Format, ListedTool, tokens};
use crate::http::api::wire::{ToolJson, ToolList, ToolView};
use crate::http::edge::auth::Authenticated;
use crate::http::headers::etag::TaggedBody;
use crate::http::openapi::responses::{AuthResponses, CommonResponses, QueryResponses};
use crate::http::problem::{ApiError, Problem};
use crate::http::query::{QueryParams, page_size};

/// Tools that a search lists, unless it names a limit.
const FOUND_TOOLS: u32 = 5;

/// Which tools to list, and how.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ListTools {
    /// The format of the definitions: the shape of another API.
    #[param(value_type = Option<Format>)]
    format: Option<String>,
    /// Only tools with this tag.
    tag: Option<String>,
    /// Only tools of this toolset.
    toolset: Option<String>,
    /// `brief`: less text, for a short list. The first sentences of descriptions, and no output
    /// schemas.
    #[param(inline)]
    detail: Option<ListDetail>,
    /// Only tools that match these words, the best first.
    query: Option<String>,
    /// Most tools that match `query`. Default: 5. A list without `query` has no limit.
    #[param(minimum = 1, maximum = 500)]
    limit: Option<u32>,
    /// The run whose found tools are listed, if the list is shortened (`discovery`).
    run_id: Option<String>,
    /// `off`: all tools, although the list is longer than `discovery.above`.
    #[param(inline)]
    discovery: Option<DiscoverySwitch>,
    /// Only tools with this origin. Such a list is never shortened.
    origin: Option<Origin>,
    /// The cursor of the previous page. All tools are on the first page, so the only valid cursor
    /// is empty.
    #[param(max_length = 0)]
    cursor: Option<String>,
}

/// How much of each tool is listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
enum ListDetail {
    /// All of it.
    Full,
    /// What a model needs to call it.
    Brief,
}

/// Whether a long list is shortened.
#[derive(Debug, Clone, Copy, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
enum DiscoverySwitch {
    /// All tools are listed.
    Off,
}

/// The answer of `GET /tools`.
#[derive(utoipa::ToSchema)]
#[serde(untagged)]
#[schema(as = Listed)]
#[expect(dead_code, reason = "only the renderer of a format knows its shape")]
enum ToolListResponse<'a> {
    /// Toolcrib's own shape.
    Native(ToolList<'a>),
    /// Definitions in another API's shape: openai, openai-responses, anthropic, gemini.
    List(Vec<HashMap<String, Value>>),
    /// The same where that API has a list inside an object: bedrock, mcp.
    Wrapped(WrappedToolList),
}

/// A list of definitions, inside an object.
#[derive(utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ForeignTools)]
#[expect(dead_code, reason = "only the renderer of a format knows its shape")]
struct WrappedToolList {
    /// Definitions in another API's shape.
    tools: Vec<HashMap<String, Value>>,
}

/// The caller's tools.
#[utoipa::path(get, operation_id = "list_tools", path = "/tools", tag = "tools", params(ListTools), responses(
    (status = 200, description = "The tools that this caller may use; in another format, the shape of that API", body = ToolListResponse<'_>),
    (status = 304, description = "Not changed since the ETag in If-None-Match."),
    (status = 404, description = "There is no such toolset", body = Problem, content_type = "application/problem+json"), CommonResponses, AuthResponses, QueryResponses))]
pub(crate) async fn list_tools(
    State(registry): State<Arc<Registry>>,
    Authenticated { caller, catalog }: Authenticated,
    QueryParams(params): QueryParams<ListTools>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let format = read_format(params.format.as_deref())?.unwrap_or_default();
    if params
        .cursor
        .as_ref()
        .is_some_and(|cursor| !cursor.is_empty())
    {
        return Err(ApiError::Malformed(
            "invalid cursor: all tools are on the first page".into(),
        ));
    }
    let selection = Selection::new(params.tag.clone(), params.toolset.clone());
    let checked = catalog.check_selection(&caller, &selection);
    checked.map_err(ApiError::NotFound)?;
    let listed = listed_tools(&registry, (&catalog, &caller), format, &params, &selection)?;
    let is_brief = params.detail == Some(ListDetail::Brief);
    let definitions: Vec<Cow<'_, Definition>> = listed
        .iter()
        .map(|(entry, _)| match is_brief {
            true => Cow::Owned(brief_definition(&entry.definition)),
            false => Cow::Borrowed(&entry.definition),
        })
        .collect();
    let tools = listed.iter().zip(&definitions);
    let body = match format {
        Format::Native => {
            let tools = tools.map(|((entry, _), definition)| match definition {
                Cow::Owned(brief) => ToolJson::View(Box::new(tool_view(entry, brief))),
                Cow::Borrowed(_) => tool_json(entry),
            });
            TaggedBody::new(&ToolList {
                tools: tools.collect(),
                next_cursor: None,
            })
        }
        other => {
            let tools = tools.map(|((entry, deferred), definition)| ListedTool {
                definition,
                deferred: *deferred,
                ..entry.to_listed_tool()
            });
            TaggedBody::new(&catalog.render_tools(other, tools))
        }
    };
    Ok(body?.respond_to(&headers))
}

/// The tools of a list, each with whether it is deferred.
fn listed_tools(
    registry: &Registry,
    (catalog, caller): (&Catalog, &Caller),
    format: Format,
    params: &ListTools,
    selection: &Selection,
) -> Result<Vec<(Arc<Entry>, bool)>, ApiError> {
    let has_origin = |entry: &Entry| params.origin.is_none_or(|origin| entry.origin == origin);
    let whole = |entries: Vec<Arc<Entry>>| entries.into_iter().map(|entry| (entry, false));
    let limit = page_size(Some(params.limit.unwrap_or(FOUND_TOOLS)))?;
    let Some(query) = &params.query else {
        let mut entries = catalog.selected_tools(caller, selection);
        entries.retain(|entry| has_origin(entry));
        if params.discovery.is_some() || params.origin.is_some() {
            return Ok(whole(entries).collect());
        }
        let run = params.run_id.as_deref();
        let runs = &registry.shared().runs;
        let found = run.map(|run| runs.found_tools(&caller.name, Some(run)));
        return Ok(catalog.list_for_model(format, caller, entries, &found.unwrap_or_default()));
    };
    let admits = |entry: &Entry| {
        entry.allows(caller) && entry.is_in(selection) && !entry.finds_tools() && has_origin(entry)
    };
    let found = catalog.find_tools(query, admits, limit as usize);
    Ok(whole(found).collect())
}

/// The format that a parameter names.
fn read_format(word: Option<&str>) -> Result<Option<Format>, ApiError> {
    let format = |word: &str| {
        Format::from_name(word).ok_or_else(|| {
            let known: Vec<&str> = Format::ALL.into_iter().map(|(name, _)| name).collect();
            ApiError::Malformed(format!(
                "there is no format `{word}`; there are {}",
                known.join(", ")
            ))
        })
    };
    word.map(format).transpose()
}

/// The query of `GET /toolsets`.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ListToolsets {
    /// The format of the lists that are estimated. Default: openai.
    #[param(value_type = Option<Format>)]
    format: Option<String>,
}

/// The toolsets.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct ToolsetList {
    /// The toolsets, sorted by name.
    toolsets: Vec<ToolsetView>,
    /// The format of the estimated lists.
    #[schema(value_type = Format)]
    format: &'static str,
    /// How tokens are estimated.
    #[schema(value_type = String)]
    estimate: &'static str,
}

/// One toolset.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct ToolsetView {
    /// Its name in the manifest.
    #[schema(value_type = String)]
    name: Arc<str>,
    /// Number of its tools that this caller may use and that are available.
    tools: usize,
    /// Estimated tokens of the list of these tools.
    tokens: usize,
}

/// The toolsets, each with the tokens of its list.
///
/// A caller sees the toolsets of which it may use a tool. An admin sees all.
#[utoipa::path(get, operation_id = "list_toolsets", path = "/toolsets", tag = "tools", params(ListToolsets), responses(
    (status = 200, description = "The toolsets", body = ToolsetList), CommonResponses, AuthResponses, QueryResponses))]
pub(crate) async fn list_toolsets(
    Authenticated { caller, catalog }: Authenticated,
    QueryParams(params): QueryParams<ListToolsets>,
) -> Result<Json<ToolsetList>, ApiError> {
    let format = read_format(params.format.as_deref())?.unwrap_or(Format::Openai);
    let view = |(name, mut entries): (Arc<str>, Vec<Arc<Entry>>)| {
        entries.retain(|entry| entry.is_available());
        ToolsetView {
            name,
            tools: entries.len(),
            tokens: entries.iter().map(|entry| entry.tokens(format)).sum(),
        }
    };
    let toolsets = catalog.toolsets_for(&caller).into_iter().map(view);
    Ok(Json(ToolsetList {
        toolsets: toolsets.collect(),
        format: format.as_str(),
        estimate: tokens::ESTIMATE,
    }))
}

/// The JSON of a tool. That of an available tool is written once.
fn tool_json(entry: &Entry) -> ToolJson<'_> {
    if let Some(written) = entry.listed.get().filter(|_| entry.is_available()) {
        return ToolJson::Written(written);
    }
    let view = tool_view(entry, &entry.definition);
    if view.available
        && let Ok(written) = serde_json::value::to_raw_value(&view)
        && entry.listed.set(written).is_ok()
        && let Some(written) = entry.listed.get()
    {
        return ToolJson::Written(written);
    }
    ToolJson::View(Box::new(view))
}

pub(super) fn tool_view<'a>(entry: &'a Entry, definition: &'a Definition) -> ToolView<'a> {
    ToolView::new(
        definition,
        (
            entry.kind,
            entry.origin,
            entry.source(),
            entry.policy.effect,
        ),
        &entry.rules.context,
        entry.is_available(),
        entry.definition_hash.clone(),
    )
}
