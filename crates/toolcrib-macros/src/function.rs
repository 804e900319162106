//! Reads the function that becomes a tool: the parts of its definition, and the faults that prevent
//! one.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::visit::Visit;
use syn::{
    Attribute, Block, Error, FnArg, Ident, ItemFn, Meta, Pat, PatType, Result, ReturnType, Type,
    TypeImplTrait, TypeReference,
};

use crate::entries::check_faults;
use crate::values::{entry_key, entry_value, fail, parse_text};

/// Attributes of a parameter that are moved to its field.
const FIELD_ATTRIBUTES: [&str; 3] = ["doc", "serde", "schemars"];
/// Attributes that rustc allows on parameters.
const RUSTC_ATTRIBUTES: [&str; 5] = ["allow", "expect", "warn", "deny", "forbid"];

/// The function after reading.
pub(crate) struct Function {
    /// The function as written, without parameter attributes that rustc does not know.
    pub(crate) item: ItemFn,
    /// Its documentation up to the first heading.
    pub(crate) description: String,
    /// The parameters in the order of the source.
    pub(crate) parameters: Vec<Parameter>,
}

/// One parameter.
pub(crate) enum Parameter {
    /// A `ToolContext`, which the library supplies.
    Context,
    /// A value that the model supplies.
    Argument(Box<Argument>),
}

/// A value that the model supplies.
pub(crate) struct Argument {
    pub(crate) name: Ident,
    pub(crate) ty: Type,
    /// Attributes of the field: documentation, `serde`, `schemars`.
    pub(crate) attributes: Vec<Attribute>,
    /// Code for the value if the model supplies none.
    pub(crate) default: Option<TokenStream>,
}

impl Function {
    /// Reads the function.
    ///
    /// # Errors
    /// All faults at once.
    pub(crate) fn parse(mut item: ItemFn) -> Result<Self> {
        let mut faults: Vec<Error> = signature_faults(&item);
        let description = doc_text(&item.attrs).unwrap_or_else(|error| {
            faults.push(error);
            String::new()
        });
        let mut parameters = Vec::new();
        for input in &mut item.sig.inputs {
            let parameter = match input {
                FnArg::Receiver(receiver) => {
                    let message = "a tool is a free function without `self`; values that tools share come from \
                                   `ToolContext::service`";
                    fail(receiver, message)
                }
                FnArg::Typed(typed) => Parameter::parse(typed),
            };
            match parameter {
                Ok(Parameter::Context)
                    if parameters
                        .iter()
                        .any(|other| matches!(other, Parameter::Context)) =>
                {
                    faults.push(Error::new_spanned(&*input, "one `ToolContext` is enough"));
                }
                Ok(parameter) => parameters.push(parameter),
                Err(error) => faults.push(error),
            }
        }
        check_faults(faults)?;
        Ok(Self {
            item,
            description,
            parameters,
        })
    }

    /// Whether it takes the context of a call.
    pub(crate) fn takes_context(&self) -> bool {
        self.parameters
            .iter()
            .any(|parameter| matches!(parameter, Parameter::Context))
    }

    /// The function's name, which is the default name of the tool.
    pub(crate) fn name(&self) -> String {
        self.item.sig.ident.unraw().to_string()
    }

    /// The type of its result.
    pub(crate) fn output(&self) -> Type {
        match &self.item.sig.output {
            ReturnType::Default => syn::parse_quote!(()),
            ReturnType::Type(_, of) => (**of).clone(),
        }
    }
}

/// Faults of a signature that no tool can have.
fn signature_faults(item: &ItemFn) -> Vec<Error> {
    let signature = &item.sig;
    let mut faults = Vec::new();
    let mut fault = |at: &dyn ToTokens, message: &str| faults.push(Error::new_spanned(at, message));
    if !signature.generics.params.is_empty() {
        let message = "a tool cannot be generic: all calls share one input schema";
        fault(&signature.generics, message);
    } else if let Some(clause) = &signature.generics.where_clause {
        fault(clause, "a tool has no `where`: it cannot be generic");
    }
    if let syn::Safety::Unsafe(token) = &signature.safety {
        fault(
            token,
            "a tool cannot be unsafe: a model decides when it is called",
        );
    }
    if let Some(abi) = &signature.abi {
        fault(abi, "a tool is a plain Rust function");
    }
    if let Some(variadic) = &signature.variadic {
        fault(variadic, "a tool has a fixed number of parameters");
    }
    if let ReturnType::Type(_, of) = &signature.output {
        let mut odd = ForbiddenTypes::default();
        odd.visit_type(of);
        if let Some(found) = &odd.impl_trait {
            fault(
                found,
                "the output schema needs a type with a name, not `impl Trait`",
            );
        }
    }
    faults
}

impl Parameter {
    /// Reads a parameter, and removes attributes that rustc does not allow there.
    fn parse(typed: &mut PatType) -> Result<Self> {
        let name = match &*typed.pat {
            Pat::Ident(ident) if ident.by_ref.is_none() && ident.subpat.is_none() => {
                ident.ident.clone()
            }
            other => {
                let message =
                    "a parameter of a tool must be a plain name, because the model uses that name";
                return fail(other, message);
            }
        };
        let mut odd = ForbiddenTypes::default();
        odd.visit_type(&typed.ty);
        if let Some(found) = &odd.impl_trait {
            return fail(
                found,
                "a tool cannot be generic: all calls share one input schema",
            );
        }
        if let Some(found) = &odd.reference {
            return fail(found, reference_message(found));
        }
        let is_context = is_tool_context(&typed.ty);
        let (mut attributes, mut default) = (Vec::new(), None);
        for attribute in std::mem::take(&mut typed.attrs) {
            let is_one_of =
                |names: &[&str]| names.iter().any(|name| attribute.path().is_ident(name));
            if is_one_of(&RUSTC_ATTRIBUTES) {
                typed.attrs.push(attribute);
            } else if is_context && !is_one_of(&["doc"]) {
                return fail(
                    attribute,
                    "a `ToolContext` does not come from the model, so it takes no attributes",
                );
            } else if is_one_of(&FIELD_ATTRIBUTES) {
                attributes.push(attribute);
            } else if is_one_of(&["tool"]) {
                default = Some(parse_default(&attribute)?);
            } else {
                let message = "unknown attribute of a parameter; there are `#[tool(default = …)]`, `#[schemars(…)]`, \
                               `#[serde(…)]` and documentation";
                return fail(attribute, message);
            }
        }
        if is_context {
            return Ok(Self::Context);
        }
        Ok(Self::Argument(Box::new(Argument {
            name,
            ty: (*typed.ty).clone(),
            attributes,
            default,
        })))
    }
}

fn is_tool_context(of: &Type) -> bool {
    matches!(of, Type::Path(of) if of.path.segments.last().is_some_and(|last| last.ident == "ToolContext"))
}

/// Advice on what to write instead of a reference.
fn reference_message(found: &TypeReference) -> String {
    let owned = match &*found.elem {
        Type::Path(of) if of.path.is_ident("str") => "`String`",
        of if is_tool_context(of) => "`ToolContext`",
        Type::Slice(_) => "a `Vec`",
        _ => "the type itself",
    };
    format!("a tool owns its arguments, so they cannot be references: write {owned}")
}

/// The value of `#[tool(default)]` or `#[tool(default = …)]`.
fn parse_default(attribute: &Attribute) -> Result<TokenStream> {
    let entry: Meta = attribute.parse_args()?;
    let word = entry_key(&entry);
    if word != "default" {
        let message = format!("unknown key `{word}`; known: default");
        return fail(entry.path(), message);
    }
    if let Meta::Path(path) = &entry {
        return Ok(quote_spanned!(path.span()=> ::core::default::Default::default()));
    }
    let value = entry_value(&entry)?;
    Ok(match parse_text(value) {
        // A quoted text is a `&str`, and parameters are owned.
        Ok(_) => quote_spanned!(value.span()=> ::core::convert::Into::into(#value)),
        Err(_) => value.to_token_stream(),
    })
}

/// The documentation as text, up to its first heading. Headings such as `# Errors` are for readers
/// of the code.
fn doc_text(attributes: &[Attribute]) -> Result<String> {
    let mut lines: Vec<String> = Vec::new();
    for attribute in attributes
        .iter()
        .filter(|attribute| attribute.path().is_ident("doc"))
    {
        let Meta::NameValue(pair) = &attribute.meta else {
            continue;
        };
        let Ok(text) = parse_text(&pair.value) else {
            let message = "the description must be a literal text here: write it, or put the macro into `description = …`";
            return fail(&pair.value, message);
        };
        lines.extend(
            text.value()
                .split('\n')
                .map(|line| line.strip_prefix(' ').unwrap_or(line).trim_end().to_owned()),
        );
    }
    let end = lines
        .iter()
        .position(|line| line.starts_with("# "))
        .unwrap_or(lines.len());
    Ok(lines[..end].join("\n").trim().to_owned())
}

/// Types that a tool's parameters and result cannot have.
#[derive(Default)]
struct ForbiddenTypes {
    reference: Option<TypeReference>,
    impl_trait: Option<TypeImplTrait>,
}

impl<'ast> Visit<'ast> for ForbiddenTypes {
    fn visit_type_reference(&mut self, found: &'ast TypeReference) {
        self.reference.get_or_insert_with(|| found.clone());
    }

    fn visit_type_impl_trait(&mut self, found: &'ast TypeImplTrait) {
        self.impl_trait.get_or_insert_with(|| found.clone());
    }

    // The length of an array is not a type.
    fn visit_block(&mut self, _: &'ast Block) {}
}
