//! Reads variables that stand for options of the command line.
//!
//! clap would read them from the environment of the process, which is empty if it was concealed. It
//! would also take them for options that were given, so that a variable could conflict with an
//! option.

use std::ffi::OsString;

use clap::builder::Resettable;
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command, CommandFactory as _, FromArgMatches as _, Parser as _};

use super::arguments::Cli;
use crate::environment::Environment;

/// Parses arguments, with the variables of options that were not given.
///
/// # Errors
/// The arguments are invalid, or ask for help.
pub(super) fn parse(
    arguments: Vec<OsString>,
    environment: &Environment,
) -> Result<Cli, clap::Error> {
    let arguments = add_variables(arguments, environment);
    match without_variables(Cli::command()).try_get_matches_from(&arguments) {
        Ok(matches) => Cli::from_arg_matches(&matches),
        // Help names the variables.
        Err(error) if error.kind() == ErrorKind::DisplayHelp => Cli::try_parse_from(&arguments),
        Err(error) => Err(error),
    }
}

/// The command without the names of variables, so that clap reads none.
fn without_variables(command: Command) -> Command {
    command
        .mut_args(|arg| arg.env(Resettable::Reset))
        .mut_subcommands(without_variables)
}

/// Returns the arguments, with the variables of options that were not given. Invalid arguments are
/// returned unchanged, so that clap reports them.
fn add_variables(mut arguments: Vec<OsString>, environment: &Environment) -> Vec<OsString> {
    let command = Cli::command();
    let Ok(matches) = without_variables(command.clone()).try_get_matches_from(&arguments) else {
        return arguments;
    };
    let mut added = options_from_variables(&command, &matches, environment);
    let (mut outer, mut given) = (&command, &matches);
    while let Some((name, matches)) = given.subcommand()
        && let Some(command) = outer.find_subcommand(name)
    {
        added.extend(options_from_variables(command, matches, environment));
        (outer, given) = (command, matches);
    }
    // Options may be anywhere before `--`. After it there are none.
    let end = arguments
        .iter()
        .position(|argument| argument == "--")
        .unwrap_or(arguments.len());
    arguments.splice(end..end, added);
    arguments
}

/// `--option=VALUE` for each option of a command that was not given, from its variable. An option
/// that conflicts with another one gives way to it: a variable is not meant for one command alone.
fn options_from_variables(
    command: &Command,
    matches: &ArgMatches,
    environment: &Environment,
) -> Vec<OsString> {
    let mut used: Vec<&Arg> = command
        .get_arguments()
        .filter(|arg| is_given(arg, matches))
        .collect();
    let mut options = Vec::new();
    for arg in command.get_arguments() {
        let Some(option) = option_from_variable(arg, matches, environment) else {
            continue;
        };
        if used.iter().any(|other| is_conflict(command, arg, other)) {
            continue;
        }
        used.push(arg);
        options.push(option);
    }
    options
}

fn is_given(arg: &Arg, matches: &ArgMatches) -> bool {
    matches
        .value_source(arg.get_id().as_str())
        .is_some_and(|source| source != ValueSource::DefaultValue)
}

/// Whether two arguments exclude each other. Either of them may declare it.
fn is_conflict(command: &Command, one: &Arg, other: &Arg) -> bool {
    let declares = |arg: &Arg, other: &Arg| {
        command
            .get_arg_conflicts_with(arg)
            .iter()
            .any(|conflict| conflict.get_id() == other.get_id())
    };
    one.get_id() != other.get_id() && (declares(one, other) || declares(other, one))
}

/// `--option=VALUE` for an option that was not given, from its variable.
fn option_from_variable(
    arg: &Arg,
    matches: &ArgMatches,
    environment: &Environment,
) -> Option<OsString> {
    let value = environment.get(arg.get_env()?)?;
    let mut option = OsString::from(format!("--{}=", arg.get_long()?));
    option.push(value);
    (!is_given(arg, matches)).then_some(option)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completed(arguments: &str, variables: &[(&str, &str)]) -> String {
        let arguments = arguments.split(' ').map(OsString::from).collect();
        let completed = add_variables(
            arguments,
            &Environment::from_iter(variables.iter().copied()),
        );
        completed
            .iter()
            .map(|argument| argument.to_str().unwrap())
            .collect::<Vec<_>>()
            .join(" ")
    }

    #[test]
    fn variables_replace_missing_options() {
        let listen = ("TOOLCRIB_LISTEN", "127.0.0.1:1");
        let log = ("TOOLCRIB_LOG", "debug");
        for (arguments, variables, expected) in [
            (
                "toolcrib serve",
                &[listen, log][..],
                "toolcrib serve --log=debug --listen=127.0.0.1:1",
            ),
            (
                "toolcrib serve --listen x",
                &[listen],
                "toolcrib serve --listen x",
            ),
            (
                "toolcrib --log warn serve",
                &[log],
                "toolcrib --log warn serve",
            ),
            (
                "toolcrib serve --log warn",
                &[log],
                "toolcrib serve --log warn",
            ),
            (
                "toolcrib serve",
                &[("TOOLCRIB_LEDGER", "")],
                "toolcrib serve --ledger=",
            ),
            (
                "toolcrib serve",
                &[("TOOLCRIB_SERVER", "http://x")],
                "toolcrib serve",
            ),
            (
                "toolcrib call -- -x",
                &[("TOOLCRIB_KEY", "a b")],
                "toolcrib call --key=a b -- -x",
            ),
            (
                "toolcrib serve --nonsense",
                &[log],
                "toolcrib serve --nonsense",
            ),
            (
                "toolcrib check x.yaml",
                &[("TOOLCRIB_MANIFEST", "y.yaml")],
                "toolcrib check x.yaml",
            ),
            (
                "toolcrib check",
                &[("TOOLCRIB_MANIFEST", "y.yaml")],
                "toolcrib check --manifest=y.yaml",
            ),
            (
                "toolcrib usage --ledger x",
                &[("TOOLCRIB_SERVER", "http://x")],
                "toolcrib usage --ledger x",
            ),
        ] {
            assert_eq!(completed(arguments, variables), expected);
        }
    }

    #[test]
    fn options_with_variables_have_long_names() {
        let command = Cli::command();
        let all = command
            .get_subcommands()
            .flat_map(clap::Command::get_arguments)
            .chain(command.get_arguments());
        let variables: Vec<&Arg> = all.filter(|arg| arg.get_env().is_some()).collect();
        assert!(variables.len() > 5 && variables.iter().all(|arg| arg.get_long().is_some()));
    }
}
