//! Checks the syntax tree of an expression before it is compiled.

use std::slice::from_ref;

use minijinja::Error;
use minijinja::machinery::ast::{BinOp, BinOpKind, Call, CallArg, Expr, UnaryOpKind};
use minijinja::machinery::parse_expr;

use super::filters::{FILTERS, NUMERIC, TESTS};

/// Maximum number of slices (`x[1:]`) in one expression, because each slice makes a copy.
const MAX_SLICES: usize = 4;

/// The names that an expression holds.
#[derive(Default)]
pub struct Names {
    /// The paths below `args`.
    pub arguments: Vec<Vec<String>>,
    /// The texts that `caller` is compared with.
    pub callers: Vec<String>,
}

/// Checks that the text is an expression of the language. Returns the names in it.
///
/// # Errors
/// A sentence about what is invalid or unknown, and what is allowed.
pub(super) fn check_syntax(
    text: &str,
    variables: &'static [&'static str],
) -> Result<Names, String> {
    let expression = parse_expr(text).map_err(|error| syntax_error(&error))?;
    let mut check = Check {
        variables,
        slices: 0,
        names: Names::default(),
    };
    if text_of(&expression).is_some() {
        return Err("a text in quotes is no condition: leave the quotes around it out".into());
    }
    check_node(&expression, &mut check)?;
    if check.slices > MAX_SLICES {
        return Err(format!(
            "an expression has at most {MAX_SLICES} slices such as `x[1:]`"
        ));
    }
    Ok(check.names)
}

/// The message for a text that is not an expression.
pub(super) fn syntax_error(error: &Error) -> String {
    let why = error
        .detail()
        .map_or_else(|| error.kind().to_string(), str::to_owned);
    format!("not an expression: {why}; an example is `result.temperature is defined`")
}

/// The state of a check.
struct Check {
    /// The variables that the expression may use; none: any names.
    variables: &'static [&'static str],
    /// The number of slices so far.
    slices: usize,
    /// The names so far.
    names: Names,
}

impl Check {
    /// Keeps the texts with which `caller` is compared.
    fn note_callers(&mut self, operation: &BinOp<'_>) {
        let is_caller = |side: &Expr<'_>| matches!(side, Expr::Var(name) if name.id == "caller");
        let others = match (operation.op, &operation.left, &operation.right) {
            (BinOpKind::Eq | BinOpKind::Ne, left, other) if is_caller(left) => from_ref(other),
            (BinOpKind::Eq | BinOpKind::Ne, other, right) if is_caller(right) => from_ref(other),
            (BinOpKind::In, left, Expr::List(list)) if is_caller(left) => &list.items[..],
            (BinOpKind::In, left, Expr::Tuple(tuple)) if is_caller(left) => &tuple.items[..],
            _ => return,
        };
        let names = others.iter().filter_map(text_of);
        self.names.callers.extend(names.map(str::to_owned));
    }
}

/// The constant text.
fn text_of<'e>(expression: &'e Expr<'_>) -> Option<&'e str> {
    match expression {
        Expr::Const(constant) => constant.value.as_str(),
        _ => None,
    }
}

/// The path below `args`.
fn argument_path(expression: &Expr<'_>) -> Option<Vec<String>> {
    let (of, name) = match expression {
        Expr::Var(variable) if variable.id == "args" => return Some(Vec::new()),
        Expr::GetAttr(field) => (&field.expr, field.name),
        Expr::GetItem(item) => (&item.expr, text_of(&item.subscript_expr)?),
        _ => return None,
    };
    let mut path = argument_path(of)?;
    path.push(name.to_owned());
    Some(path)
}

/// A name with `-` that was read as a difference, such as `args.to-name`, up to its end in
/// brackets.
fn dashed_name(expression: &Expr<'_>, variables: &[&str]) -> Option<String> {
    match expression {
        Expr::GetAttr(field) => match &field.expr {
            Expr::Var(variable) => Some(format!("{}['{}", variable.id, field.name)),
            _ => None,
        },
        Expr::BinOp(operation) => match &operation.right {
            Expr::Var(end)
                if matches!(operation.op, BinOpKind::Sub) && !variables.contains(&end.id) =>
            {
                Some(format!(
                    "{}-{}",
                    dashed_name(&operation.left, variables)?,
                    end.id
                ))
            }
            _ => None,
        },
        _ => None,
    }
}

fn check_node(expression: &Expr<'_>, check: &mut Check) -> Result<(), String> {
    match expression {
        Expr::Const(_) => Ok(()),
        Expr::Var(name) if check.variables.is_empty() || check.variables.contains(&name.id) => {
            Ok(())
        }
        Expr::Var(name) => Err(unknown_name_error(name.id, check.variables)),
        Expr::Slice(slice) => {
            check.slices += 1;
            let bounds = [&slice.start, &slice.stop, &slice.step]
                .into_iter()
                .flatten();
            check_nodes(std::iter::once(&slice.expr).chain(bounds), check)
        }
        Expr::UnaryOp(operation) => check_node(&operation.expr, check),
        Expr::BinOp(operation) => {
            if let Some(name) = dashed_name(expression, check.variables) {
                return Err(format!("a name with `-` stands in brackets: `{name}']`"));
            }
            check.note_callers(operation);
            check_nodes([&operation.left, &operation.right], check)?;
            check_operator(operation.op, &operation.left, &operation.right)
        }
        Expr::Compare(comparison) => check_nodes(
            std::iter::once(&comparison.expr).chain(comparison.ops.iter().map(|next| &next.expr)),
            check,
        ),
        Expr::IfExpr(choice) => check_nodes(
            [&choice.test_expr, &choice.true_expr]
                .into_iter()
                .chain(&choice.false_expr),
            check,
        ),
        Expr::Filter(filter) => {
            check_known("filter", filter.name, FILTERS)?;
            check_nodes(&filter.expr, check)?;
            check_arguments(&filter.args, check)
        }
        Expr::Test(test) => {
            check_known("test", test.name, TESTS)?;
            check_node(&test.expr, check)?;
            check_arguments(&test.args, check)
        }
        Expr::GetAttr(field) if matches!(&field.expr, Expr::Var(name) if matches!(name.id, "caller" | "run")) => {
            Err("`caller` and `run` are texts without fields: write `caller == 'alice'`".into())
        }
        Expr::GetAttr(field) => {
            check.names.arguments.extend(argument_path(expression));
            check_node(&field.expr, check)
        }
        Expr::GetItem(item) => {
            check.names.arguments.extend(argument_path(expression));
            check_nodes([&item.expr, &item.subscript_expr], check)
        }
        Expr::Call(call) => Err(call_error(call, check.variables)),
        Expr::List(list) => check_constants(&list.items),
        Expr::Tuple(tuple) => check_constants(&tuple.items),
        Expr::Map(map) => check_constants(&map.keys).and_then(|()| check_constants(&map.values)),
    }
}

fn check_nodes<'e>(
    expressions: impl IntoIterator<Item = &'e Expr<'e>>,
    check: &mut Check,
) -> Result<(), String> {
    expressions
        .into_iter()
        .try_for_each(|expression| check_node(expression, check))
}

fn check_arguments(arguments: &[CallArg<'_>], check: &mut Check) -> Result<(), String> {
    arguments.iter().try_for_each(|argument| match argument {
        CallArg::Pos(value) | CallArg::Kwarg(_, value) => check_node(value, check),
        CallArg::PosSplat(_) | CallArg::KwargSplat(_) => {
            Err("`*` and `**` before an argument: write it out".into())
        }
    })
}

/// Accepts only constants in a list. Variables could make the list many times as large as their
/// values.
fn check_constants(items: &[Expr<'_>]) -> Result<(), String> {
    fn is_constant(item: &Expr<'_>) -> bool {
        match item {
            Expr::Const(_) => true,
            Expr::UnaryOp(operation) => is_constant(&operation.expr),
            Expr::List(list) => list.items.iter().all(is_constant),
            Expr::Tuple(tuple) => tuple.items.iter().all(is_constant),
            _ => false,
        }
    }
    match items.iter().all(is_constant) {
        true => Ok(()),
        false => {
            Err("a list or map holds constants only, such as `args.unit in ['C', 'F']`".into())
        }
    }
}

/// Refuses operators that may join or repeat texts and lists. `+` fails on a number and any other
/// type, so one number is enough. `*` repeats a text by a number, so both operands must be numbers.
fn check_operator(operator: BinOpKind, left: &Expr<'_>, right: &Expr<'_>) -> Result<(), String> {
    let (sign, is_bounded) = match operator {
        BinOpKind::Add => ("+", is_number(left) || is_number(right)),
        BinOpKind::Mul => ("*", is_number(left) && is_number(right)),
        BinOpKind::Concat => {
            return Err(
                "texts are not joined (`~`): an expression compares, it builds nothing".into(),
            );
        }
        _ => return Ok(()),
    };
    match is_bounded {
        true => Ok(()),
        false => Err(format!(
            "`{sign}` takes numbers: convert with a filter, e.g. `args.a|float {sign} args.b|float`"
        )),
    }
}

/// Whether the value, if there is one, is always a number. Only the expression itself is examined.
fn is_number(expression: &Expr<'_>) -> bool {
    match expression {
        Expr::Const(constant) => constant.value.is_number(),
        Expr::UnaryOp(operation) => matches!(operation.op, UnaryOpKind::Neg),
        // The remaining arithmetic operators fail on any other type.
        Expr::BinOp(operation) => matches!(
            operation.op,
            BinOpKind::Add
                | BinOpKind::Sub
                | BinOpKind::Mul
                | BinOpKind::Div
                | BinOpKind::FloorDiv
                | BinOpKind::Rem
                | BinOpKind::Pow
        ),
        // With arguments, the filter may return a default of another type.
        Expr::Filter(filter) => NUMERIC.contains(&filter.name) && filter.args.is_empty(),
        _ => false,
    }
}

fn unknown_name_error(name: &str, variables: &[&str]) -> String {
    format!(
        "there is no `{name}`: an expression knows {}",
        variables.join(" and ")
    )
}

fn call_error(call: &Call<'_>, variables: &[&str]) -> String {
    match &call.expr {
        Expr::Var(name) if !variables.contains(&name.id) => unknown_name_error(name.id, variables),
        Expr::GetAttr(field) => format!(
            "values have no methods, and so no `{}()`: use a filter",
            field.name
        ),
        _ => "values cannot be called".into(),
    }
}

fn check_known(what: &str, name: &str, all: &[&str]) -> Result<(), String> {
    match all.contains(&name) {
        true => Ok(()),
        false => Err(format!(
            "there is no {what} `{name}`: there are {}",
            all.join(", ")
        )),
    }
}
