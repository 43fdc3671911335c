//! Names of fields, as formats need them: without repetitions, and without those that a format has for itself.
//!
//! # Invariants
//! 1. The fields of a site have different names. The first one of a name keeps it.
//! 2. A name depends on its site alone, or, in a table of all sites, on the sites together: not on their order.

/// Returns the names, with a number behind those that are taken: by an earlier one, or by one of these.
pub(crate) fn unique<'n>(
    names: impl IntoIterator<Item = &'n str>,
    taken: &[&str],
    is_same: fn(&str, &str) -> bool,
) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for name in names {
        let is_taken = |name: &str| {
            let mut others = taken.iter().copied().chain(found.iter().map(String::as_str));
            others.any(|other| is_same(other, name))
        };
        let numbered = (2_u64..).map(|nth| format!("{name}_{nth}"));
        let mut candidates = std::iter::once(name.to_owned()).chain(numbered);
        found.extend(candidates.find(|name| !is_taken(name)));
    }
    found
}

/// Returns `true` if names are the same: all their bytes are.
pub(crate) fn exactly(a: &str, b: &str) -> bool {
    a == b
}

/// Returns `true` if names are the same, or differ in the case of ASCII letters only, as in SQL.
#[cfg(feature = "export")]
pub(crate) fn but_for_case(a: &str, b: &str) -> bool {
    a.eq_ignore_ascii_case(b)
}

/// Returns a name of ASCII letters, digits and underscores, which does not begin with a digit.
pub(crate) fn identifier(name: &str) -> String {
    let is_allowed = |c: char| c.is_ascii_alphanumeric();
    let mut name: String = name.chars().map(|c| if is_allowed(c) { c } else { '_' }).collect();
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
        name.insert(0, '_');
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique() {
        let names = unique(["a", "a", "a_2", "cpu", "A"], &["cpu"], exactly);
        assert_eq!(names, ["a", "a_2", "a_2_2", "cpu_2", "A"]);
        assert_eq!(["größe", "1x", "", "a b"].map(identifier), ["gr__e", "_1x", "_", "a_b"]);
    }
}
