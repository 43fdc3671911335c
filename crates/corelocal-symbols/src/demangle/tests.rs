//! Tests of `demangle.rs`.

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
