//! Lint: arguments of a command that are meant for a shell. The program gets them, because no shell reads them.

use super::{Lints, Located};
use crate::manifest::parsed::ParsedTool;
use crate::manifest::rule::Rule;

/// What joins commands in a shell.
const SHELL_WORDS: [&str; 9] = ["|", "||", "&&", ";", "&", ">", ">>", "<", "2>&1"];

/// Checks the arguments of a command.
pub(super) fn check_shell_syntax(parsed: &ParsedTool, lints: &mut Lints) {
    let entry = Located::new(&parsed.entry, &parsed.path);
    for item in entry.items("command").into_iter().skip(1) {
        let word = item.text();
        if SHELL_WORDS.contains(&word) {
            let message = format!(
                "no shell reads this, so the program gets `{word}` as an argument; for a pipeline, write \
                 [sh, -c, \"… {word} …\"] without placeholders in the script"
            );
            lints.hint(Rule::ShellSyntax, &item.node.location, item.path, message);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::finding_lines;

    #[test]
    fn words_for_a_shell_are_hints() {
        let findings = |command: &str| {
            let text = format!(
                "tools:\n  t:\n    kind: command\n    description: Counts the lines of all orders of a day.\n    command: {command}\n"
            );
            finding_lines(&text, &[])
        };
        assert_eq!(
            findings("[cat, a.txt, '|', wc, -l]"),
            ["hint shell-syntax tools.t.command.2 5"]
        );
        assert_eq!(findings("[sh, -c, 'cat a.txt | wc -l']"), [""; 0]);
        assert_eq!(findings("[awk, '-F|', a.txt]"), [""; 0]);
    }
}
