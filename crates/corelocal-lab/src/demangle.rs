//! Demangling of symbols from files that other users may have made.
//!
//! Invariant: a name has at most [`LONGEST`] bytes. Mangled names refer to parts of themselves, so the demangled form
//! of 200 bytes may have gigabytes. Such a symbol keeps its mangled name.

use std::fmt::{self, Write};

use cpp_demangle::BorrowedSymbol;

/// The maximum length of a name, in bytes.
pub(crate) const LONGEST: usize = 4096;

/// The maximum length of a symbol that is demangled, in bytes.
pub(crate) const LONGEST_SYMBOL: usize = 4 * LONGEST;

/// Returns the demangled name, or the symbol itself if it is not mangled or its name would be too long.
pub(crate) fn demangled(symbol: &str) -> String {
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

/// The first [`LONGEST`] bytes of a text.
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
mod tests {
    use super::*;

    #[test]
    fn names_of_languages() {
        for (symbol, name) in [
            ("_ZN4core3fmt5write17h0123456789abcdefE", "core::fmt::write"),
            ("_RNvC6_123foo3bar", "123foo::bar"),
            ("_ZN5space3fooEibc", "space::foo(int, bool, char)"),
            ("malloc", "malloc"),
            // C functions, not types.
            ("f", "f"),
            ("i", "i"),
        ] {
            assert_eq!(demangled(symbol), name);
        }
    }

    /// A function each of whose parameters is a pair of the previous one.
    fn doubling(levels: usize) -> String {
        const DIGITS: &[u8] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
        let mut symbol = "_Z1f1AIiiE".to_owned();
        for digit in DIGITS[..levels].iter().map(|digit| char::from(*digit)) {
            symbol += &format!("S_IS{digit}_S{digit}_E");
        }
        symbol
    }

    #[test]
    fn a_name_that_would_be_too_long_stays_mangled() {
        assert!(demangled(&doubling(3)).contains("A<A<A<int, int>, A<int, int> >"));
        assert_eq!(demangled(&doubling(30)), doubling(30));
        assert_eq!(demangled(&rust_doubling(2)), "a::f::<((i32, i32), (i32, i32))>");
        assert!(rustc_demangle::try_demangle(&rust_doubling(30)).is_ok());
        assert_eq!(demangled(&rust_doubling(30)), rust_doubling(30));
        // Longer symbols are not shown in full.
        assert_eq!(demangled(&"é".repeat(LONGEST)).len(), LONGEST);
        assert_eq!(demangled(&format!("a{}", "é".repeat(LONGEST))).len(), LONGEST - 1);
    }

    /// A function whose argument is a pair of pairs of pairs.
    fn rust_doubling(levels: usize) -> String {
        let mut symbol = "_RINvC1a1f".to_owned();
        // Each pair except the first is twice the previous one: `T`, that pair, and a back reference to it.
        symbol += &"T".repeat(levels);
        symbol += "ll";
        for level in 1..levels {
            symbol += &format!("EB{}_", base_62("INvC1a1f".len() + levels - level));
        }
        symbol + "EE"
    }

    /// In the encoding of back references: one less, and no digits for 0.
    fn base_62(mut number: usize) -> String {
        const DIGITS: &[u8] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
        let mut digits = String::new();
        if number == 0 {
            return digits;
        }
        number -= 1;
        loop {
            digits.insert(0, char::from(DIGITS[number % 62]));
            number /= 62;
            if number == 0 {
                return digits;
            }
        }
    }
}
