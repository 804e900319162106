//! Makes the messages of spans, by the semantic conventions for generative AI and for MCP
//! (<https://opentelemetry.io/docs/specs/semconv/gen-ai/>).

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span, Status};
use prost::Message;

use super::attributes::{Attributes, scope};
use super::ended_span::{EndedCall, EndedSpan, Subject};
use crate::call::{ChildSpan, ChildWork, Kind, McpRequest, TOOL_ERROR_TYPE};
use crate::ledger::State;

/// The flags of a span in OTLP: the context has `is_remote`, and the parent is remote.
const HAS_IS_REMOTE: u32 = 0x100;
const IS_REMOTE: u32 = 0x200;
const IS_SAMPLED: u32 = 1;
/// The status of a span that failed, in OTLP.
const STATUS_ERROR: i32 = 2;

/// The message of these spans, and how many spans it has.
pub(super) fn encode(ended: Vec<EndedSpan>, resource: Resource) -> (Vec<u8>, u64) {
    let mut spans = Vec::with_capacity(ended.len() * 2);
    for span in &ended {
        add_spans(span, &mut spans);
    }
    let count = spans.len() as u64;
    let request = ExportTraceServiceRequest {
        resource_spans: vec![ResourceSpans {
            resource: Some(resource),
            scope_spans: vec![ScopeSpans {
                scope: Some(scope()),
                spans,
                ..ScopeSpans::default()
            }],
            ..ResourceSpans::default()
        }],
    };
    (request.encode_to_vec(), count)
}

/// Adds the span and those below it.
fn add_spans(ended: &EndedSpan, spans: &mut Vec<Span>) {
    let mut span = new_span(ended);
    match &ended.subject {
        Subject::Call(call) => {
            for child in ended.span.take_children() {
                spans.push(child_span(&span, ended, call, &child));
            }
            complete_call(&mut span, ended, call);
        }
        Subject::Mcp { method, error } => {
            span.name.clone_from(method);
            span.kind = SpanKind::Server.into();
            let mut attributes = Attributes::default();
            if let Some(request) = &ended.span.mcp {
                add_mcp(&mut attributes, method, request);
            }
            set_error(&mut span, &mut attributes, error.clone(), None);
            span.attributes = attributes.into_vec();
        }
    }
    spans.push(span);
}

fn new_span(ended: &EndedSpan) -> Span {
    let (span, caller) = (&ended.span, ended.caller_trace.as_deref());
    // A nested call has its parent in this process.
    let is_remote = match &ended.subject {
        Subject::Call(call) => span.parent_id.is_some() && call.parent.is_none(),
        Subject::Mcp { .. } => span.parent_id.is_some(),
    };
    Span {
        trace_id: span.trace_id.to_be_bytes().to_vec(),
        span_id: span.span_id.to_be_bytes().to_vec(),
        parent_span_id: span
            .parent_id
            .map(|id| id.to_be_bytes().to_vec())
            .unwrap_or_default(),
        trace_state: caller
            .and_then(|caller| caller.tracestate())
            .unwrap_or_default()
            .to_owned(),
        flags: IS_SAMPLED | HAS_IS_REMOTE | if is_remote { IS_REMOTE } else { 0 },
        kind: SpanKind::Internal.into(),
        start_time_unix_nano: ended.times.unix_nanos(ended.times.started),
        end_time_unix_nano: ended.times.unix_nanos(ended.times.ended),
        ..Span::default()
    }
}

fn complete_call(span: &mut Span, ended: &EndedSpan, call: &EndedCall) {
    span.name = format!("execute_tool {}", call.ended.tool);
    let mut attributes = Attributes::default();
    attributes.text("gen_ai.operation.name", "execute_tool");
    attributes.text("gen_ai.tool.name", call.ended.tool.as_str());
    attributes.text("gen_ai.tool.type", "function");
    attributes.text_if("gen_ai.tool.call.id", call.ended.tool_use_id.as_deref());
    attributes.text_if("gen_ai.conversation.id", call.ended.run_id.as_deref());
    let agent = call.agent.as_ref().map(|agent| agent.as_str());
    attributes.text_if("gen_ai.agent.name", agent);
    if let Some(request) = &ended.span.mcp {
        span.kind = SpanKind::Server.into();
        add_mcp(&mut attributes, "tools/call", request);
    }
    attributes.text("toolcrib.invocation_id", call.ended.id.to_string());
    let parent = call.parent.map(|id| id.to_string());
    attributes.text_if("toolcrib.parent_invocation_id", parent);
    attributes.text_if("toolcrib.request_id", call.ended.request_id.as_deref());
    attributes.text("toolcrib.caller", &*call.ended.caller.name);
    attributes.text("toolcrib.tool.kind", call.kind.as_str());
    attributes.text("toolcrib.state", call.ended.state.as_str());
    attributes.text("toolcrib.cache", call.ended.cache.as_str());
    attributes.integer("toolcrib.attempts", call.ended.attempts);
    if call.ended.replayed {
        attributes.text("toolcrib.replayed", "true");
    }
    if let Some(model) = &call.model {
        attributes.integer("gen_ai.usage.input_tokens", model.input_tokens);
        attributes.integer("gen_ai.usage.output_tokens", model.output_tokens);
    }
    if let Some(content) = &call.content {
        attributes.text_if("gen_ai.tool.call.arguments", content.arguments.as_deref());
        attributes.text_if("gen_ai.tool.call.result", content.result.as_deref());
    }
    let error = match call.ended.kind {
        Some(kind) => Some(kind.as_str()),
        None => (call.ended.state == State::Failed).then_some(TOOL_ERROR_TYPE),
    };
    set_error(span, &mut attributes, error, call.ended.detail.as_deref());
    span.attributes = attributes.into_vec();
}

/// The request of MCP. The id of its session is left out: it is a secret of the client.
fn add_mcp(attributes: &mut Attributes, method: &str, request: &McpRequest) {
    attributes.text("mcp.method.name", method);
    attributes.text_if("mcp.protocol.version", request.protocol_version.as_deref());
    attributes.text_if("jsonrpc.request.id", request.request_id.as_deref());
    attributes.text("network.transport", request.transport);
}

fn child_span(parent: &Span, ended: &EndedSpan, call: &EndedCall, child: &ChildSpan) -> Span {
    let mut span = Span {
        trace_id: parent.trace_id.clone(),
        span_id: child.span_id.to_be_bytes().to_vec(),
        parent_span_id: child.parent_id.to_be_bytes().to_vec(),
        trace_state: parent.trace_state.clone(),
        flags: IS_SAMPLED | HAS_IS_REMOTE,
        start_time_unix_nano: ended.times.unix_nanos(child.started),
        end_time_unix_nano: ended.times.unix_nanos(child.ended),
        ..Span::default()
    };
    let mut attributes = Attributes::default();
    match &child.work {
        ChildWork::Attempt(number) => {
            let (name, kind) = attempt_name_and_kind(call);
            (span.name, span.kind) = (name, kind.into());
            if call.kind == Kind::Agent {
                attributes.text("gen_ai.operation.name", "invoke_agent");
                attributes.text("gen_ai.agent.name", call.ended.tool.as_str());
            }
            if call.kind == Kind::Mcp {
                attributes.text("mcp.method.name", "tools/call");
            }
            attributes.integer("toolcrib.attempt", *number);
        }
        ChildWork::ModelRequest {
            model,
            turn,
            input_tokens,
            output_tokens,
        } => {
            (span.name, span.kind) = (format!("chat {model}"), SpanKind::Client.into());
            attributes.text("gen_ai.operation.name", "chat");
            // The API that agents speak, whichever server answers.
            attributes.text("gen_ai.provider.name", "openai");
            attributes.text("gen_ai.request.model", &**model);
            attributes.integer("gen_ai.usage.input_tokens", *input_tokens);
            attributes.integer("gen_ai.usage.output_tokens", *output_tokens);
            attributes.integer("toolcrib.turn", *turn);
        }
    }
    set_error(&mut span, &mut attributes, child.error, None);
    span.attributes = attributes.into_vec();
    span
}

/// The name of an attempt, and whether it leaves the process.
fn attempt_name_and_kind(call: &EndedCall) -> (String, SpanKind) {
    let name = match call.kind {
        Kind::Agent => format!("invoke_agent {}", call.ended.tool),
        _ => "attempt".to_owned(),
    };
    let kind = match call.kind {
        Kind::Http | Kind::Mcp | Kind::Sql => SpanKind::Client,
        Kind::Native | Kind::Command | Kind::Python | Kind::Typescript | Kind::Agent => {
            SpanKind::Internal
        }
    };
    (name, kind)
}

/// Marks a span as failed. A success leaves the status unset, as the conventions require.
fn set_error(
    span: &mut Span,
    attributes: &mut Attributes,
    error: Option<impl Into<String>>,
    detail: Option<&str>,
) {
    let Some(error) = error else { return };
    attributes.text("error.type", error);
    span.status = Some(Status {
        message: detail.unwrap_or_default().to_owned(),
        code: STATUS_ERROR,
    });
}
