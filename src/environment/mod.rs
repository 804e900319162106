//! The variables with which the program was started, as a value, and hiding them from the programs
//! that tools start.
//!
//! No other code of the crate reads the environment of the process. An [`Environment`] can be a
//! copy: after [`conceal()`] the environment of the process itself is empty, so `/proc/PID/environ`
//! shows no variables.

mod conceal;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::sync::Arc;

pub(crate) use self::conceal::pass_to_child;
pub use self::conceal::{conceal, refuse_inspection};

/// Variables with their values. A clone shares them.
#[derive(Clone, Default)]
pub struct Environment {
    variables: Arc<BTreeMap<OsString, OsString>>,
    /// Whether the variables were removed from the environment of the process.
    is_concealed: bool,
}

impl Environment {
    /// The variables that the process has now.
    pub fn from_process() -> Self {
        #[expect(
            clippy::disallowed_methods,
            reason = "the one place where the environment is read"
        )]
        std::env::vars_os().collect()
    }

    /// The value of a variable.
    pub fn get(&self, name: impl AsRef<OsStr>) -> Option<&OsStr> {
        self.variables.get(name.as_ref()).map(OsString::as_os_str)
    }

    /// The value of a variable, if it is UTF-8.
    pub fn get_text(&self, name: &str) -> Option<&str> {
        self.get(name)?.to_str()
    }

    /// All variables, in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = (&OsStr, &OsStr)> {
        self.variables
            .iter()
            .map(|(name, value)| (name.as_os_str(), value.as_os_str()))
    }
}

impl<N: Into<OsString>, V: Into<OsString>> FromIterator<(N, V)> for Environment {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(variables: I) -> Self {
        let variables = variables
            .into_iter()
            .map(|(name, value)| (name.into(), value.into()));
        Self {
            variables: Arc::new(variables.collect()),
            is_concealed: false,
        }
    }
}
