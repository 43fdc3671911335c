//! Demangling of symbols from files that other users may have made.
//!
//! Invariant: a name has at most [`LONGEST`] bytes. Mangled names refer to parts of themselves, so the demangled form
//! of 200 bytes may have gigabytes. Such a symbol keeps its mangled name.

use std::fmt::{self, Write};

use cpp_demangle::BorrowedSymbol;

/// The maximum length of a name, in bytes.
pub const LONGEST: usize = 4096;

/// The maximum length of a symbol that is demangled, in bytes.
pub(crate) const LONGEST_SYMBOL: usize = 4 * LONGEST;

/// Returns the demangled name, or the symbol itself if it is not mangled or its name would be too long.
pub fn demangled(symbol: &str) -> String {
    let name = (symbol.len() <= LONGEST_SYMBOL).then(|| rust(symbol).or_else(|| cpp(symbol)));
    name.flatten().unwrap_or_else(|| cut(symbol))
}

fn rust(symbol: &str) -> Option<String> {
    let name = rustc_demangle::try_demangle(symbol).ok()?;
    let mut short = Short(String::new());
    write!(short, "{name:#}").ok()?;
    Some(short.0)
}

fn cpp(symbol: &str) -> Option<String> {
    // Without a prefix the symbol would be taken for a type: `f` for `float`.
    if !["_Z", "__Z", "___Z", "____Z", "_GLOBAL_"].iter().any(|it| symbol.starts_with(it)) {
        return None;
    }
    let name = BorrowedSymbol::new(symbol.as_bytes()).ok()?;
    let mut short = Short(String::new());
    name.structured_demangle(&mut short, &Default::default()).ok()?;
    Some(short.0)
}

/// Returns the first [`LONGEST`] bytes of a text.
pub(crate) fn cut(text: &str) -> String {
    let mut end = LONGEST.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_owned()
}

/// A text of at most [`LONGEST`] bytes.
struct Short(String);

impl Write for Short {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > LONGEST {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
