//! The styles in which models write calls between marks, and the opening line of a fence.

use crate::message::TextSyntax;

/// A style of calls between marks. Families of models are trained on them.
pub(super) struct Style {
    pub(super) syntax: TextSyntax,
    /// Where a call begins.
    pub(super) begin: &'static str,
    pub(super) grammar: Grammar,
    /// Where a call ends.
    pub(super) end: &'static str,
    /// With what a result begins that the model invents.
    pub(super) result: &'static str,
    /// The texts around the JSON of a result.
    pub(super) reply: (&'static str, &'static str),
    /// How to write a call, after "write exactly this".
    pub(super) form: &'static str,
}

/// What stands between the marks.
#[derive(Clone, Copy)]
pub(super) enum Grammar {
    /// JSON with the name and the arguments.
    Json,
    /// The name after `after`, one of the separators, then the arguments as JSON.
    Named {
        after: &'static str,
        separators: &'static [&'static str],
    },
    /// The name up to `name_end`, then parameters with texts as values.
    Parameters {
        name_end: &'static str,
        open: &'static str,
        key_end: &'static str,
        close: &'static str,
    },
    /// Calls in the syntax of Python.
    Python,
}

/// Every style. The first one whose begin mark fits is used.
pub(super) static STYLES: [Style; 10] = [
    Style {
        syntax: TextSyntax::Marked,
        begin: "[TOOL_CALL]",
        grammar: Grammar::Json,
        end: "[/TOOL_CALL]",
        result: "[TOOL_RESULT]",
        reply: ("[TOOL_RESULT]", "[/TOOL_RESULT]"),
        form: "with strict JSON between the marks:\n\
               [TOOL_CALL]{\"name\": \"TOOL\", \"args\": {\"PARAMETER\": \"VALUE\"}}[/TOOL_CALL]",
    },
    // Hermes and Qwen.
    Style {
        syntax: TextSyntax::Tagged,
        begin: "<tool_call>",
        grammar: Grammar::Json,
        end: "</tool_call>",
        result: "<tool_response>",
        reply: ("<tool_response>\n", "\n</tool_response>"),
        form: "with strict JSON between the tags:\n\
               <tool_call>\n{\"name\": \"TOOL\", \"arguments\": {\"PARAMETER\": \"VALUE\"}}\n</tool_call>",
    },
    // Qwen3-Coder; Llama 3.1 with JSON instead of parameters.
    Style {
        syntax: TextSyntax::Functions,
        begin: "<function=",
        grammar: Grammar::Parameters {
            name_end: ">",
            open: "<parameter=",
            key_end: ">",
            close: "</parameter>",
        },
        end: "</function>",
        result: "<tool_response>",
        reply: ("<tool_response>\n", "\n</tool_response>"),
        form: "with one line for each tag:\n\
               <tool_call>\n<function=TOOL>\n<parameter=PARAMETER>\nVALUE\n</parameter>\n</function>\n</tool_call>",
    },
    // MiniMax, and what Claude writes without tools.
    Style {
        syntax: TextSyntax::Invoke,
        begin: "<invoke name=\"",
        grammar: Grammar::Parameters {
            name_end: "\">",
            open: "<parameter name=\"",
            key_end: "\">",
            close: "</parameter>",
        },
        end: "</invoke>",
        result: "<function_results>",
        reply: ("<function_results>\n", "\n</function_results>"),
        form: "with one tag for each parameter:\n\
               <invoke name=\"TOOL\">\n<parameter name=\"PARAMETER\">VALUE</parameter>\n</invoke>",
    },
    Style {
        syntax: TextSyntax::Mistral,
        begin: "[TOOL_CALLS]",
        grammar: Grammar::Named {
            after: "",
            separators: &["[ARGS]", "{"],
        },
        end: "</s>",
        result: "[TOOL_RESULTS]",
        reply: ("[TOOL_RESULTS]", "[/TOOL_RESULTS]"),
        form: "with a list of strict JSON:\n\
               [TOOL_CALLS][{\"name\": \"TOOL\", \"arguments\": {\"PARAMETER\": \"VALUE\"}}]",
    },
    // Llama.
    Style {
        syntax: TextSyntax::PythonTag,
        begin: "<|python_tag|>",
        grammar: Grammar::Python,
        end: "<|eo",
        result: "<|start_header_id|>ipython",
        reply: ("", ""),
        form: "with strict JSON:\n\
               <|python_tag|>{\"name\": \"TOOL\", \"parameters\": {\"PARAMETER\": \"VALUE\"}}",
    },
    Style {
        syntax: TextSyntax::Deepseek,
        begin: "<｜tool▁call▁begin｜>",
        grammar: Grammar::Named {
            after: "",
            separators: &["<｜tool▁sep｜>"],
        },
        end: "<｜tool▁call▁end｜>",
        result: "<｜tool▁output▁begin｜>",
        reply: ("<｜tool▁output▁begin｜>", "<｜tool▁output▁end｜>"),
        form: "with strict JSON:\n\
               <｜tool▁call▁begin｜>TOOL<｜tool▁sep｜>{\"PARAMETER\": \"VALUE\"}<｜tool▁call▁end｜>",
    },
    // Kimi.
    Style {
        syntax: TextSyntax::Kimi,
        begin: "<|tool_call_begin|>",
        grammar: Grammar::Named {
            after: "",
            separators: &["<|tool_call_argument_begin|>"],
        },
        end: "<|tool_call_end|>",
        result: "<|im_system|>tool",
        reply: ("", ""),
        form: "with strict JSON:\n\
               <|tool_call_begin|>functions.TOOL:0<|tool_call_argument_begin|>{\"PARAMETER\": \"VALUE\"}<|tool_call_end|>",
    },
    HARMONY,
    Style {
        begin: "<|start|>assistant",
        ..HARMONY
    },
];

/// gpt-oss.
const HARMONY: Style = Style {
    syntax: TextSyntax::Harmony,
    begin: "<|channel|>",
    grammar: Grammar::Named {
        after: "to=",
        separators: &["<|message|>"],
    },
    end: "<|call|>",
    result: "<|start|>functions.",
    reply: ("", ""),
    form: "with strict JSON:\n\
           <|channel|>commentary to=functions.TOOL <|constrain|>json<|message|>{\"PARAMETER\": \"VALUE\"}<|call|>",
};

/// Gemini and Gemma. The begin mark is the opening line of a fence.
pub(super) static TOOL_CODE: Style = Style {
    syntax: TextSyntax::ToolCode,
    begin: "```tool_code",
    grammar: Grammar::Python,
    end: "\n```",
    result: "```tool_output",
    reply: ("```tool_output\n", "\n```"),
    form: "with one call, whose arguments have names:\n```tool_code\nTOOL(PARAMETER=\"VALUE\")\n```",
};

/// Llama 3.2 and 4: the whole text is a list of calls.
pub(super) static PYTHONIC: Style = Style {
    syntax: TextSyntax::Pythonic,
    begin: "[",
    grammar: Grammar::Python,
    end: "]",
    result: "<|start_header_id|>ipython",
    reply: ("", ""),
    form: "with nothing else, and with names for the arguments:\n[TOOL(PARAMETER=\"VALUE\")]",
};

/// The style of this syntax. `None` for a syntax without marks.
pub(super) fn style_of(syntax: TextSyntax) -> Option<&'static Style> {
    let mut all = STYLES.iter().chain([&TOOL_CODE, &PYTHONIC]);
    all.find(|style| style.syntax == syntax)
}

/// Whether a call in this syntax cannot be anything else.
pub(super) fn is_explicit(syntax: TextSyntax) -> bool {
    style_of(syntax).is_some()
}

/// The text after white space and the opening line of a fence.
pub(super) fn skip_fence_opening(text: &str) -> &str {
    let text = text.trim_start();
    match text.strip_prefix("```") {
        Some(fenced) => fenced
            .trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '_')
            .trim_start(),
        None => text,
    }
}

/// The first position of the end mark of this syntax.
pub(super) fn find_end_mark(text: &str, syntax: TextSyntax) -> Option<usize> {
    let end = style_of(syntax)?.end;
    find_mark(text, |here| starts_with_mark(here, end))
}

/// The first position of a mark that begins a call.
pub(crate) fn find_begin_mark(text: &str) -> Option<usize> {
    find_mark(text, |here| begin_of(here).is_some())
}

/// The style of the call that begins here.
pub(super) fn begin_of(text: &str) -> Option<&'static Style> {
    let mut styles = STYLES.iter();
    styles.find(|style| starts_with_mark(text, style.begin))
}

fn find_mark(text: &str, is_here: impl Fn(&str) -> bool) -> Option<usize> {
    let mut candidates = text
        .bytes()
        .enumerate()
        .filter(|(_, b)| matches!(b, b'[' | b'<' | b'\n'));
    candidates
        .find(|(i, _)| is_here(&text[*i..]))
        .map(|(i, _)| i)
}

pub(super) fn starts_with_mark(text: &str, mark: &str) -> bool {
    text.as_bytes()
        .get(..mark.len())
        .is_some_and(|start| start.eq_ignore_ascii_case(mark.as_bytes()))
}
