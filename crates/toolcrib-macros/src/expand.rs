//! Writes the code of the attribute: the unchanged function, and beside it a type of the same name
//! with `tool()`.
//!
//! The type is an enum without variants. It has no value, so it does not hide the function, and a
//! local variable may have the function's name. All paths begin at the library. So a program needs
//! no other dependency and may name its own items freely.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{Attribute, Error, Item, LitStr, Path, Result};

use crate::function::{Argument, Function, Parameter};
use crate::options::Options;
use crate::values::{NAME_RULE, fail, is_tool_name};

/// Expands the attribute.
///
/// # Errors
/// The reason why the function cannot be a tool, at the tokens that cause it.
pub(crate) fn expand(attribute: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let options = Options::parse(attribute);
    let function = match syn::parse2::<Item>(item)? {
        Item::Fn(function) => Function::parse(function),
        other => Err(Error::new(
            first_span(&other),
            "#[tool] is only for functions with a body",
        )),
    };
    let (options, function) = match (options, function) {
        (Ok(options), Ok(function)) => (options, function),
        (Err(mut one), Err(other)) => {
            one.combine(other);
            return Err(one);
        }
        (Err(error), _) | (_, Err(error)) => return Err(error),
    };
    let (name, description) = (
        tool_name(&options, &function)?,
        description_code(&options, &function)?,
    );
    let declared = options.context.as_ref();
    if let Some(context) =
        declared.filter(|context| !context.fields.is_empty() && !function.takes_context())
    {
        let message = "has no effect: the function has no parameter of the type `ToolContext`, which holds these fields";
        return fail(&context.entry, message);
    }
    let declared = declared.map(|context| context.fields.as_slice());
    let cache = options
        .cache
        .as_ref()
        .map(|cache| cache.builder_calls(function.takes_context(), declared))
        .transpose()?;
    let (root, calls) = (&options.root, &options.calls);
    let builder = quote!(#root::Tool::new(#name, #description) #(#calls)* #cache);
    let arguments = arguments_struct(&function, root);
    let runner = runner_code(&function, root, &builder);

    let (item, ident) = (&function.item, &function.item.sig.ident);
    let visibility = &item.vis;
    let conditions: Vec<&Attribute> = item
        .attrs
        .iter()
        .filter(|one| one.path().is_ident("cfg"))
        .collect();
    let plain = ident.unraw();
    let about = format!("The function [`{plain}`](fn@{plain}) as a tool: see `{plain}::tool`.");
    let makes = format!("The function [`{plain}`](fn@{plain}) as a tool.");
    Ok(quote! {
        #item

        #(#conditions)*
        #[doc = #about]
        #[allow(non_camel_case_types)]
        #visibility enum #ident {}

        #(#conditions)*
        #[automatically_derived]
        impl #ident {
            #[doc = #makes]
            #[allow(deprecated)]
            #visibility fn tool() -> #root::Tool {
                #arguments
                #runner
            }
        }
    })
}

/// The struct into which the model's arguments are deserialized.
fn arguments_struct(function: &Function, root: &Path) -> TokenStream {
    let private = quote!(#root::__private);
    let text =
        |path: TokenStream| LitStr::new(&path.to_string().replace(' ', ""), Span::call_site());
    let (serde, schemars) = (
        text(quote!(#private::serde)),
        text(quote!(#private::schemars)),
    );
    let (mut fields, mut defaults) = (Vec::new(), Vec::new());
    for Argument {
        name,
        ty: of,
        attributes,
        default,
    } in model_arguments(function)
    {
        let default = default.as_ref().map(|value| {
            let function = format_ident!("__default_of_{}", name.unraw());
            defaults.push(quote! {
                fn #function() -> #of {
                    #value
                }
            });
            let function = function.to_string();
            quote!(#[serde(default = #function)])
        });
        fields.push(quote!(#(#attributes)* #default #name: #of));
    }
    quote! {
        #(#defaults)*

        #[derive(#private::serde::Deserialize, #private::schemars::JsonSchema)]
        #[serde(crate = #serde)]
        #[schemars(crate = #schemars)]
        struct __Arguments {
            #(#fields,)*
        }
    }
}

/// Adds the runner to the tool.
fn runner_code(function: &Function, root: &Path, builder: &TokenStream) -> TokenStream {
    let signature = &function.item.sig;
    let ident = &signature.ident;
    let names: Vec<&Ident> = model_arguments(function)
        .map(|argument| &argument.name)
        .collect();
    let context = Ident::new("context", Span::mixed_site());
    let values = function.parameters.iter().map(|parameter| match parameter {
        Parameter::Context => &context,
        Parameter::Argument(argument) => &argument.name,
    });
    let output = function.output();
    // Faults of the result are faults of its type, so the compiler shows them there.
    let conversion =
        quote_spanned!(output.span()=> #root::__private::Returned::<#output>::new().conversion());
    let takes_context = function.takes_context();
    let fields = quote!(__Arguments { #(#names),* }: __Arguments);
    let call = quote!(#ident(#(#values),*));
    let method = if signature.asyncness.is_some() {
        format_ident!("call")
    } else {
        format_ident!("call_blocking")
    };
    quote_spanned! {ident.span()=>
        #[allow(unused_imports)]
        use #root::__private::Plain as _;
        #root::__private::#method(#builder, #conversion, #takes_context, |#fields, #context| #call)
    }
}

/// The parameters that the model supplies.
fn model_arguments(function: &Function) -> impl Iterator<Item = &Argument> {
    function
        .parameters
        .iter()
        .filter_map(|parameter| match parameter {
            Parameter::Context => None,
            Parameter::Argument(argument) => Some(&**argument),
        })
}

/// The tool's name: from the attribute, or else from the function.
fn tool_name(options: &Options, function: &Function) -> Result<String> {
    if let Some(name) = &options.name {
        return Ok(name.value());
    }
    let name = function.name();
    match is_tool_name(&name) {
        true => Ok(name),
        false => Err(Error::new(
            function.item.sig.ident.span(),
            format!("{NAME_RULE}: write `name = …`"),
        )),
    }
}

/// The tool's description: from the attribute, or else from the function's documentation.
fn description_code(options: &Options, function: &Function) -> Result<TokenStream> {
    if let Some(description) = &options.description {
        return Ok(description.to_token_stream());
    }
    let description = &function.description;
    if description.is_empty() {
        let message = "no description: a model cannot know when to use this tool. Write a documentation comment (`///`) before \
                       the function";
        return Err(Error::new(function.item.sig.ident.span(), message));
    }
    Ok(description.to_token_stream())
}

/// The first token of an item, without its attributes.
fn first_span(item: &Item) -> Span {
    match item {
        Item::Struct(item) => item.struct_token.span(),
        Item::Enum(item) => item.enum_token.span(),
        Item::Impl(item) => item.impl_token.span(),
        Item::Trait(item) => item.trait_token.span(),
        Item::Mod(item) => item.mod_token.span(),
        other => other.span(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded_code(attribute: &str, item: &str) -> String {
        let expanded = expand(attribute.parse().unwrap(), item.parse().unwrap());
        without_spaces(
            &expanded
                .unwrap_or_else(|error| panic!("{error}"))
                .to_string(),
        )
    }

    /// Removes white space, because the compiler may put spaces between any two tokens.
    fn without_spaces(code: &str) -> String {
        code.split_whitespace().collect()
    }

    const ADD: &str = "/// Adds.\npub fn add(/** The one */ one: i64, #[tool(default = 1)] other: i64) -> i64 { one + other }";

    #[test]
    fn expansion_keeps_the_function() {
        let code = expanded_code("", ADD);
        assert!(
            code.contains(&without_spaces(
                "pub fn add(one: i64, other: i64) -> i64 { one + other }"
            )),
            "{code}"
        );
        assert!(code.contains(&without_spaces("pub enum add {}")), "{code}");
        assert!(
            code.contains(&without_spaces("pub fn tool() -> ::toolcrib::Tool")),
            "{code}"
        );
    }

    #[test]
    fn paths_begin_at_the_library() {
        let attribute = "effect = \"read\", timeout = \"10s\", limits(calls = 3, per = \"day\", scope = \"caller\"), \
            cache(ttl = \"5m\", scope = \"shared\"), concurrency(max = 2), env(name = \"KEY\", default = \"x\"), \
            annotations(title = \"Add\"), idempotency = \"off\", capture = \"digest\", on_disconnect = \"finish\"";
        for (root, attribute) in [
            ("toolcrib", attribute.to_owned()),
            ("tools", format!("{attribute}, crate = ::tools")),
        ] {
            let code = expanded_code(&attribute, ADD);
            let is_inside = |at: usize| {
                code[..at].ends_with(|c: char| c.is_alphanumeric() || matches!(c, '_' | '>'))
            };
            for (at, _) in code.match_indices("::").filter(|(at, _)| !is_inside(*at)) {
                let rest = &code[at + 2..];
                assert!(
                    rest.starts_with(root) || rest.starts_with("core"),
                    "{}",
                    &rest[..60.min(rest.len())]
                );
            }
            assert!(
                code.contains(&format!("\"::{root}::__private::serde\"")),
                "{code}"
            );
        }
    }

    #[test]
    fn settings_become_builder_calls() {
        for (attribute, call) in [
            (
                "effect = \"read\"",
                ".effect(::toolcrib::call::Effect::Read)",
            ),
            (
                "timeout = \"1500ms\"",
                ".timeout(::core::time::Duration::new(1u64, 500000000u32))",
            ),
            (
                "deadline = \"1m\"",
                ".deadline(::core::time::Duration::new(60u64, 0u32))",
            ),
            ("effect = \"read\", retry(attempts = 3)", ".attempts(3)"),
            (
                "effect = \"read\", cache_ttl = \"5m\"",
                ".cache(::core::time::Duration::new(300u64, 0u32), &[])",
            ),
            (
                "effect = \"read\", cache(ttl = \"5m\", scope = \"shared\", context = [\"tenant\"])",
                ".cache(::core::time::Duration::new(300u64, 0u32), &[\"tenant\"]).cache_shared()",
            ),
            (
                "effect = \"read\", cache_ttl = \"5m\", should_cache = keep",
                ".should_cache(keep)",
            ),
            (
                "limits(calls = 3, per = \"run\")",
                ".limit(::toolcrib::Limit { calls: 3u64, per: ::toolcrib::Per::Run, scope: ::core::default::Default::default() })",
            ),
            (
                "concurrency(max = 2, wait = \"0s\", per_caller = 1)",
                ".concurrency(::toolcrib::call::Concurrency { max: 2, wait: ::core::time::Duration::new(0u64, 0u32), \
                 per_caller: ::core::option::Option::Some(1), ..::core::default::Default::default() })",
            ),
            (
                "on_disconnect = \"cancel\"",
                ".on_disconnect(::toolcrib::call::OnDisconnect::Cancel)",
            ),
            (
                "idempotency = \"required\"",
                ".idempotency(::toolcrib::call::Idempotency::Required)",
            ),
            (
                "capture = \"digest\"",
                ".capture(::toolcrib::call::Capture::Digest)",
            ),
            (
                "repeatable, strict = true, result_as_answer = false",
                ".repeatable().strict();",
            ),
            (
                "output_check = \"warn\"",
                ".output_check(::toolcrib::call::OutputCheckMode::Warn)",
            ),
            (
                "paging = \"model\"",
                ".paging(::toolcrib::call::Paging::Model)",
            ),
            (
                "tags = [\"a\", \"b\"], aliases = [\"sum\"]",
                ".tag(\"a\").tag(\"b\").alias(\"sum\")",
            ),
            (
                "annotations(title = \"Sum\", readOnlyHint = true)",
                ".annotation(\"title\", ::toolcrib::__private::json(\"Sum\")).annotation(\"readOnlyHint\", ::toolcrib::__private::json(true))",
            ),
        ] {
            let (code, call) = (
                expanded_code(attribute, ADD),
                without_spaces(call.trim_end_matches(';')),
            );
            assert!(code.contains(&call), "{call}\n{code}");
        }
        assert!(!expanded_code("result_as_answer = false", ADD).contains("result_as_answer"));
    }

    #[test]
    fn name_and_description_come_from_the_function() {
        let documented =
            "/// Finds orders.\n///\n///   Newest first.\n/// # Errors\n/// None.\nfn r#match() {}";
        let found = expanded_code("", documented);
        assert!(
            found.contains(&without_spaces(
                r#"Tool::new("match", "Finds orders.\n\n  Newest first.")"#
            )),
            "{found}"
        );
        let named = expanded_code(
            "name = \"find-orders\", description = concat!(\"Finds \", \"orders.\")",
            "fn find() {}",
        );
        assert!(
            named.contains(&without_spaces(
                r#"Tool::new("find-orders", concat!("Finds ", "orders."))"#
            )),
            "{named}"
        );
    }

    #[test]
    fn context_is_not_an_argument() {
        let code = expanded_code(
            "",
            "/// Waits.\nasync fn wait(call: toolcrib::ToolContext, seconds: u64) {}",
        );
        assert!(
            code.contains(&without_spaces("struct __Arguments { seconds: u64, }")),
            "{code}"
        );
        assert!(
            code.contains(&without_spaces(
                "true, |__Arguments { seconds }: __Arguments, context| wait(context, seconds)"
            )),
            "{code}"
        );
    }

    #[test]
    fn cfg_conditions_are_copied() {
        let code = expanded_code("", "/// Waits.\n#[cfg(unix)]\n#[inline]\nfn wait() {}");
        assert_eq!(
            code.matches(&without_spaces("#[cfg(unix)]")).count(),
            3,
            "{code}"
        );
        assert_eq!(code.matches("inline").count(), 1, "{code}");
    }
}
