use super::parse::evaluate;

fn evaluate_to_text(expression: &str) -> String {
    match evaluate(expression) {
        Ok(number) => number.to_string(),
        Err(error) => format!("! {error}"),
    }
}

#[test]
fn arithmetic_is_as_in_python() {
    for (expression, expected) in [
        ("2+2", "4"),
        ("6*7", "42"),
        ("2 + 3 * 4 - 1", "13"),
        ("(2 + 3) * 4", "20"),
        ("-2**2", "-4"),
        ("(-2)^2", "4"),
        ("2**3**2", "512"),
        ("2**-1", "0.5"),
        ("2*-3", "-6"),
        ("--3", "3"),
        ("7/2", "3.5"),
        ("6/3", "2"),
        ("7//2", "3"),
        ("-7//2", "-4"),
        ("7//-2", "-4"),
        ("-7.5//2", "-4"),
        ("-7%3", "2"),
        ("7%-3", "-2"),
        ("5.5%2", "1.5"),
        ("-1%0.75", "0.5"),
        ("0.1+0.2", "0.3"),
        ("1.1*3", "3.3"),
        ("1/3", "0.333333333333333"),
        ("2/3", "0.666666666666667"),
        ("1_000 * 1_000.5", "1000500"),
        (".5 + 5.", "5.5"),
        ("1e3", "1000"),
        ("1.5E-7", "1.5e-7"),
        (
            "2e",
            "! an operator such as + or * is missing before `e` (at character 2)",
        ),
        ("6 × 7 − 84 ÷ 2", "0"),
        ("17 % 5 ** 2", "17"),
        ("9007199254740993 + 1", "9007199254740994"),
        ("2**100", "1267650600228229401496703205376"),
        ("2**126 * 2 - 1 - 0", "1.70141183460469e38"),
        ("2**126 - 1", "85070591730234615865843651857942052863"),
        ("10**30 / 10**28", "100"),
        ("2**200", "1.60693804425899e60"),
        ("3 - 3.0", "0"),
        ("1e300*1e-300", "1"),
    ] {
        assert_eq!(evaluate_to_text(expression), expected, "{expression}");
    }
}

#[test]
fn constants_and_functions_are_evaluated() {
    for (expression, expected) in [
        ("pi", "3.14159265358979"),
        ("tau / PI", "2"),
        ("e", "2.71828182845905"),
        ("sqrt(16)", "4"),
        ("sqrt(2) ** 2", "2"),
        ("abs(-3) + ABS(2.5)", "5.5"),
        ("round(2.5)", "3"),
        ("round(-2.5)", "-3"),
        ("round(2.675, 2)", "2.68"),
        ("round(1234567, -3)", "1235000"),
        ("round(1e300, 5)", "1e300"),
        ("round(0.1, 400)", "0.1"),
        ("floor(-1.5)", "-2"),
        ("ceil(1.2)", "2"),
        ("floor(0.29 * 100)", "29"),
        ("min(3, 1.5, 2)", "1.5"),
        ("max(2, 10**20)", "100000000000000000000"),
        ("sin(pi / 6)", "0.5"),
        ("cos(0) + tan(0)", "1"),
        ("asin(1) * 2 - acos(-1)", "0"),
        ("atan(1) * 4", "3.14159265358979"),
        ("log(e)", "1"),
        ("log(1000, 10)", "3"),
        ("ln(e ** 2)", "2"),
        ("log2(1024) + log10(1000)", "13"),
        ("exp(0)", "1"),
        ("factorial(20)", "2432902008176640000"),
        ("factorial(170)", "7.25741561530799e306"),
        ("pow(2, 10)", "1024"),
    ] {
        assert_eq!(evaluate_to_text(expression), expected, "{expression}");
    }
}

#[test]
fn errors_have_reason_and_position() {
    for (expression, expected) in [
        ("", "a number is missing at the end (at character 1)"),
        ("1 +", "a number is missing at the end (at character 4)"),
        ("1 + * 2", "a number is missing before `*` (at character 5)"),
        ("(1 + 2", "`)` is missing at the end (at character 7)"),
        ("1 + 2)", "there is no `(` for this `)` (at character 6)"),
        (
            "2 pi",
            "an operator such as + or * is missing before `p` (at character 3)",
        ),
        ("10 / (5 - 5)", "division by zero (at character 4)"),
        ("1 // 0.0", "division by zero (at character 3)"),
        ("1 % 0", "division by zero (at character 3)"),
        ("0 ** -1", "division by zero (at character 3)"),
        (
            "2 + sqroot(4)",
            "`sqroot` is unknown: did you mean `sqrt`? (at character 5)",
        ),
        (
            "sqrt(-1)",
            "there is no real square root of a negative number (at character 1)",
        ),
        ("(-8) ** 0.5", "there is no real result (at character 6)"),
        ("10 ** 400", "the result is too large (at character 4)"),
        ("1e999", "the result is too large (at character 1)"),
        (
            "1.2.3",
            "an operator such as + or * is missing before `.` (at character 4)",
        ),
        (".", "`.` is not a number (at character 1)"),
        ("sin", "`sin` is a function: write sin(…) (at character 1)"),
        ("sin(1, 2)", "`sin` takes one number (at character 1)"),
        (
            "factorial(2.5)",
            "`factorial` takes a whole number from 0 to 170 (at character 1)",
        ),
        (
            "log(0)",
            "a logarithm needs a number above zero (at character 1)",
        ),
        ("\u{e9}\u{e9} + 1", "`\u{e9}\u{e9}` is unknown"),
        ("__import__('os')", "`__import__` is unknown"),
    ] {
        let message = evaluate_to_text(expression);
        assert!(
            message.starts_with(&format!("! {expected}")),
            "{expression}: {message}"
        );
    }
}

#[test]
fn deep_and_long_expressions_are_bounded() {
    for piece in [
        "(",
        "-",
        "2**",
        "sin(",
        "9",
        "9**9**",
        "factorial(",
        "min(1,",
        "1_",
    ] {
        let message = evaluate_to_text(&piece.repeat(1000 / piece.len()));
        assert!(
            message.starts_with("! ") && message.len() < 200,
            "{piece}: {message}"
        );
    }
    let nested = format!("{}1{}", "(".repeat(99), ")".repeat(99));
    assert_eq!(evaluate_to_text(&nested), "1");
}

proptest::proptest! {
    #[test]
    fn arbitrary_text_never_panics(text in r"[0-9a-z.+\-*/%^(),_ eE×]{0,60}", any in ".{0,40}") {
        let _ = evaluate_to_text(&text);
        let _ = evaluate_to_text(&any);
    }

    #[test]
    fn integer_results_are_exact(a in -1_000_000_000_000_i128..1_000_000_000_000, b in 1_i128..1_000_000_000) {
        proptest::prop_assert_eq!(evaluate_to_text(&format!("{a} * {b}")), (a * b).to_string());
        proptest::prop_assert_eq!(evaluate_to_text(&format!("{a} // {b}")), a.div_euclid(b).to_string());
        proptest::prop_assert_eq!(evaluate_to_text(&format!("{a} % {b}")), a.rem_euclid(b).to_string());
        proptest::prop_assert_eq!(evaluate_to_text(&format!("({a}) // {b} * {b} + ({a}) % {b}")), a.to_string());
    }
}
