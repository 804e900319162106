//! Names of tools and of arguments.

use std::collections::HashSet;

/// The longest name that the APIs of all model providers accept.
const LONGEST: usize = 64;

/// The name of an operation: its `operationId`, else its method and the words of its path.
pub(super) fn name_operation(id: Option<&str>, method: &str, path: &str) -> String {
    let name = match id.map(keep_plain).filter(|name| !name.is_empty()) {
        Some(name) => name,
        None => keep_plain(&format!("{method}_{}", path.replace(['{', '}'], ""))),
    };
    shorten(name)
}

/// The name of the tool for an `operationId`.
pub fn tool_name(id: &str) -> String {
    name_operation(Some(id), "", "")
}

/// The pattern of tools' names for a pattern of operationIds. The wildcards stay.
pub fn name_pattern(pattern: &str) -> String {
    pattern.replace(
        |c: char| !(c.is_ascii_alphanumeric() || "-_*?".contains(c)),
        "_",
    )
}

/// The name with a number, if it is taken. It still has at most 64 characters.
pub(super) fn make_distinct(name: String, taken: &mut HashSet<String>) -> String {
    let mut free = name.clone();
    for number in 2.. {
        if taken.insert(free.clone()) {
            break;
        }
        let end = format!("_{number}");
        let start = name.floor_char_boundary(LONGEST - end.len());
        free = format!("{}{end}", &name[..start]);
    }
    free
}

/// The name of an argument for a parameter or property with this name.
pub(super) fn name_argument(name: &str) -> String {
    let name = shorten(keep_plain(name));
    if name.is_empty() {
        "value".into()
    } else {
        name
    }
}

/// Letters, digits, `-` and `_` stay; anything else becomes one `_`.
fn keep_plain(text: &str) -> String {
    let mut name = String::new();
    for c in text.chars() {
        match c {
            c if c.is_ascii_alphanumeric() || c == '-' || c == '_' => name.push(c),
            _ if name.is_empty() || name.ends_with('_') => {}
            _ => name.push('_'),
        }
    }
    name.trim_end_matches('_').into()
}

/// A long name becomes its beginning and a checksum of the whole, so that it stays distinct.
fn shorten(name: String) -> String {
    if name.len() <= LONGEST {
        return name;
    }
    let sum = format!("{:08x}", crc32fast::hash(name.as_bytes()));
    format!("{}_{sum}", &name[..LONGEST - 1 - sum.len()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbered_names_stay_short() {
        let mut taken = HashSet::new();
        let long = "a".repeat(LONGEST);
        let names: Vec<String> = (0..11)
            .map(|_| make_distinct(long.clone(), &mut taken))
            .collect();
        assert!(names.iter().all(|name| name.len() == LONGEST), "{names:?}");
        assert_eq!((taken.len(), &names[10][60..]), (11, "a_11"));
        assert_eq!(make_distinct("b".into(), &mut taken), "b");
        assert_eq!(make_distinct("b".into(), &mut taken), "b_2");
    }
}
