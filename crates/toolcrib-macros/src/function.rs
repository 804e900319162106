//! The function that becomes a tool: what of it is the definition, and what cannot be one.

use proc_macro2::Span;
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::visit::Visit;
use syn::{
    Attribute, Block, Error, Expr, FnArg, Ident, ItemFn, Meta, Pat, PatType, Result, ReturnType, Type, TypeImplTrait,
    TypeReference,
};

use crate::values::{key, value};

/// Attributes of a parameter that are for the field that it becomes.
const OF_FIELDS: [&str; 3] = ["doc", "serde", "schemars"];
/// Attributes that rustc has for parameters.
const OF_PARAMETERS: [&str; 5] = ["allow", "expect", "warn", "deny", "forbid"];

/// The function, read.
pub(crate) struct Function {
    /// As it was written, without the attributes of parameters that rustc does not know.
    pub(crate) item: ItemFn,
    /// Its documentation up to the first heading.
    pub(crate) description: String,
    /// In the order in which they are written.
    pub(crate) parameters: Vec<Parameter>,
}

/// One parameter.
pub(crate) enum Parameter {
    /// A `ToolContext`: handed over by the library.
    Context,
    /// A value that the model gives.
    Argument(Box<Argument>),
}

/// A value that the model gives.
pub(crate) struct Argument {
    /// Its name.
    pub(crate) name: Ident,
    /// Its type.
    pub(crate) of: Type,
    /// Attributes of the field: documentation, `serde`, `schemars`.
    pub(crate) attributes: Vec<Attribute>,
    /// What stands for a value that is not given.
    pub(crate) default: Option<DefaultValue>,
}

/// `#[tool(default)]` or `#[tool(default = …)]`.
pub(crate) enum DefaultValue {
    /// The type's own.
    OfType(Span),
    /// This one.
    Given(Expr),
}

impl Function {
    /// Reads the function.
    ///
    /// # Errors
    /// All faults at once.
    pub(crate) fn read(mut item: ItemFn) -> Result<Self> {
        let mut faults: Vec<Error> = signature_faults(&item);
        let description = description(&item.attrs).unwrap_or_else(|error| {
            faults.push(error);
            String::new()
        });
        let mut parameters = Vec::new();
        for input in &mut item.sig.inputs {
            let parameter = match input {
                FnArg::Receiver(receiver) => {
                    let message = "a tool is a free function, it has no `self`; values that tools share come from \
                                   `ToolContext::service`";
                    Err(Error::new_spanned(receiver, message))
                }
                FnArg::Typed(typed) => Parameter::read(typed),
            };
            match parameter {
                Ok(Parameter::Context) if parameters.iter().any(|other| matches!(other, Parameter::Context)) => {
                    faults.push(Error::new_spanned(&*input, "one `ToolContext` is enough"));
                }
                Ok(parameter) => parameters.push(parameter),
                Err(error) => faults.push(error),
            }
        }
        let all = faults.into_iter().reduce(|mut all, fault| {
            all.combine(fault);
            all
        });
        all.map_or(Ok(Self { item, description, parameters }), Err)
    }

    /// Whether it asks for the context of a call.
    pub(crate) fn takes_context(&self) -> bool {
        self.parameters.iter().any(|parameter| matches!(parameter, Parameter::Context))
    }

    /// The name that the tool has by itself.
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

/// What no tool can be.
fn signature_faults(item: &ItemFn) -> Vec<Error> {
    let signature = &item.sig;
    let mut faults = Vec::new();
    let mut fault = |at: &dyn quote::ToTokens, message: &str| faults.push(Error::new_spanned(at, message));
    if !signature.generics.params.is_empty() {
        let message = "a tool cannot be generic: its input schema is one for all calls";
        fault(&signature.generics, message);
    } else if let Some(clause) = &signature.generics.where_clause {
        fault(clause, "a tool has no `where`: it cannot be generic");
    }
    if let syn::Safety::Unsafe(token) = &signature.safety {
        fault(token, "a tool cannot be unsafe: a model decides when it is called");
    }
    if let Some(abi) = &signature.abi {
        fault(abi, "a tool is a plain Rust function");
    }
    if let Some(variadic) = &signature.variadic {
        fault(variadic, "a tool has a fixed number of parameters");
    }
    if let ReturnType::Type(_, of) = &signature.output {
        let mut odd = Odd::default();
        odd.visit_type(of);
        if let Some(found) = &odd.of_impl {
            fault(found, "the output schema needs a type with a name, not `impl Trait`");
        }
    }
    faults
}

impl Parameter {
    /// Reads a parameter and takes away what rustc does not let stand there.
    fn read(typed: &mut PatType) -> Result<Self> {
        let name = match &*typed.pat {
            Pat::Ident(ident) if ident.by_ref.is_none() && ident.subpat.is_none() => ident.ident.clone(),
            other => {
                let message = "a parameter of a tool is a plain name, which the model is told";
                return Err(Error::new_spanned(other, message));
            }
        };
        let mut odd = Odd::default();
        odd.visit_type(&typed.ty);
        if let Some(found) = &odd.of_impl {
            return Err(Error::new_spanned(found, "a tool cannot be generic: its input schema is one for all calls"));
        }
        if let Some(found) = &odd.reference {
            return Err(Error::new_spanned(found, reference_message(found)));
        }
        let is_context = matches!(&*typed.ty, Type::Path(of) if of.path.segments.last().is_some_and(|last| last.ident == "ToolContext"));
        let (mut attributes, mut default) = (Vec::new(), None);
        for attribute in std::mem::take(&mut typed.attrs) {
            let is_one_of = |names: &[&str]| names.iter().any(|name| attribute.path().is_ident(name));
            if is_one_of(&OF_PARAMETERS) {
                typed.attrs.push(attribute);
            } else if is_context && !is_one_of(&["doc"]) {
                return Err(Error::new_spanned(
                    attribute,
                    "the model does not give a `ToolContext`: it has no attributes",
                ));
            } else if is_one_of(&OF_FIELDS) {
                attributes.push(attribute);
            } else if is_one_of(&["tool"]) {
                default = Some(read_default(&attribute)?);
            } else {
                let message = "unknown attribute of a parameter; there are `#[tool(default = …)]`, `#[schemars(…)]`, \
                               `#[serde(…)]` and documentation";
                return Err(Error::new_spanned(attribute, message));
            }
        }
        if is_context {
            return Ok(Self::Context);
        }
        Ok(Self::Argument(Box::new(Argument { name, of: (*typed.ty).clone(), attributes, default })))
    }
}

/// What to write in the place of a reference.
fn reference_message(found: &TypeReference) -> String {
    let owned = match &*found.elem {
        Type::Path(of) if of.path.is_ident("str") => "`String`",
        Type::Path(of) if of.path.segments.last().is_some_and(|last| last.ident == "ToolContext") => "`ToolContext`",
        Type::Slice(_) => "a `Vec`",
        _ => "the type itself",
    };
    format!("arguments belong to the function, there is nothing to refer to: write {owned}")
}

fn read_default(attribute: &Attribute) -> Result<DefaultValue> {
    let entry: Meta = attribute.parse_args()?;
    match (key(&entry).as_str(), &entry) {
        ("default", Meta::Path(path)) => Ok(DefaultValue::OfType(path.span())),
        ("default", pair) => Ok(DefaultValue::Given(value(pair)?.clone())),
        (word, _) => Err(Error::new_spanned(entry.path(), format!("unknown key `{word}`; known: default"))),
    }
}

/// The documentation as text, up to its first heading: headings such as `# Errors` are for people who read the code.
fn description(attributes: &[Attribute]) -> Result<String> {
    let mut lines: Vec<String> = Vec::new();
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("doc")) {
        let Meta::NameValue(pair) = &attribute.meta else { continue };
        let Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) = &pair.value else {
            let message =
                "the description must be readable here: write it out, or put the macro into `description = …`";
            return Err(Error::new_spanned(&pair.value, message));
        };
        lines.extend(text.value().split('\n').map(|line| line.strip_prefix(' ').unwrap_or(line).trim_end().to_owned()));
    }
    let end = lines.iter().position(|line| line.starts_with("# ")).unwrap_or(lines.len());
    Ok(lines[..end].join("\n").trim().to_owned())
}

/// Types that a tool's parameters and result cannot have.
#[derive(Default)]
struct Odd {
    reference: Option<TypeReference>,
    of_impl: Option<TypeImplTrait>,
}

impl<'ast> Visit<'ast> for Odd {
    fn visit_type_reference(&mut self, found: &'ast TypeReference) {
        self.reference.get_or_insert_with(|| found.clone());
    }

    fn visit_type_impl_trait(&mut self, found: &'ast TypeImplTrait) {
        self.of_impl.get_or_insert_with(|| found.clone());
    }

    // A length of an array is no type.
    fn visit_block(&mut self, _: &'ast Block) {}
}
