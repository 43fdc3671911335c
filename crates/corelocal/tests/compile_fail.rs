//! What must not compile, since it would let safe code break memory, and what must.
//!
//! Programs of a line each are made from the tables in `soundness/`: lifetimes in a type shortened, lengthened and
//! made higher-ranked; the type sent and shared with each kind of parameter; dropped after what it refers to.
//! All those of a kind are one crate, so that the compiler runs few times.

mod compiler;
mod soundness;

use compiler::{Compiler, LIFETIME};
use soundness::{
    ACCEPTED, GENERICS, GENERICS_OF_STD, Generic, Needs, PLAIN, PLAIN_OF_STD, REFUSED,
    REFUSED_OF_STD, REFUSED_TYPES, Varies,
};

/// A program of one line, and the errors of which it has one.
struct Program {
    text: String,
    errors: &'static [&'static str],
}

const PRELUDE: &str = "#![allow(warnings)] use core::cell::Cell; use std::rc::Rc; use corelocal::*; \
     pub struct Drops<'a>(&'a String); impl Drop for Drops<'_> { fn drop(&mut self) { drop(self.0.len()); } } \
     type SyncAlone = std::sync::MutexGuard<'static, u8>; \
     fn unwinds<T: std::panic::UnwindSafe>() {} fn send<T: Send>() {} fn sync<T: Sync>() {} fn make<A, R>(_: A) -> R { loop {} }\n";

/// Compiles the programs as one crate, and says which have another error than expected, or none.
fn check(compiler: &Compiler, name: &str, programs: &[Program]) -> Vec<String> {
    let lines = programs.iter().enumerate();
    let lines =
        lines.map(|(n, program)| format!("mod p{n} {{ use super::*; {} }}\n", program.text));
    let source: String = core::iter::once(PRELUDE.to_owned()).chain(lines).collect();
    let errors = compiler.errors(name, &source);
    let mut wrong = Vec::new();
    for (n, program) in programs.iter().enumerate() {
        // Lines are counted from 1, and the first one is the prelude.
        let here = || errors.iter().filter(|error| error.line == n + 2);
        let is_expected = |code: &str| program.errors.contains(&code);
        if program.errors.is_empty() != (here().count() == 0) {
            let found = if program.errors.is_empty() { "does not compile" } else { "compiles" };
            wrong.push(format!("{found}: {}", program.text));
        }
        for error in here().filter(|error| !is_expected(&error.code)) {
            wrong.push(format!("{}: {}: {}", error.code, error.message, program.text));
        }
    }
    let elsewhere = errors.iter().filter(|error| !(2..programs.len() + 2).contains(&error.line));
    wrong.extend(elsewhere.map(|error| format!("not in a program: {error:?}")));
    wrong
}

fn generics() -> impl Iterator<Item = &'static Generic> {
    GENERICS.iter().chain(if cfg!(feature = "std") { GENERICS_OF_STD } else { &[] })
}

/// Whatever the compiler calls a lifetime that does not fit.
const OUTLIVES: &[&str] = &[LIFETIME, "E0308", "E0521"];

/// Variance and drop check: what borrow checking refuses.
fn of_lifetimes() -> Vec<Program> {
    const ANY: &str = "for<'x> fn(&'x str)";
    const ONE: &str = "fn(&'static str)";
    let mut programs = Vec::new();
    let mut add = |text, errors| programs.push(Program { text, errors });
    for Generic { name, varies, .. } in generics() {
        let of = |parameter: &str| name.replace("{}", parameter);
        let becomes = |from: &str, to: &str| {
            format!("fn f<'a: 'g, 'g>(x: {}) -> {} {{ x }}", of(from), of(to))
        };
        let narrowed = if *varies == Varies::Covariantly { &[] } else { OUTLIVES };
        if *varies != Varies::NeverStatic {
            add(becomes("&'static str", "&'a str"), narrowed);
            add(becomes("&'a str", "&'static str"), OUTLIVES);
            let made = format!("fn m<'g>(x: Drops<'g>) -> {} {{ loop {{}} }}", of("Drops<'g>"));
            add(
                format!("{made} fn f() {{ let x; let s = String::new(); x = m(Drops(&s)); }}"),
                &["E0597"],
            );
        }
        add(becomes(ANY, ONE), narrowed);
        add(becomes(ONE, ANY), OUTLIVES);
        if name.contains("'g") {
            let (short, long) = (of("u8"), of("u8").replace("'g", "'static"));
            add(format!("fn f<'g>(x: {short}) -> {long} {{ x }}"), OUTLIVES);
        } else if *varies == Varies::NeverStatic {
            let put = format!("fn put<'a>(_: &{}, _: &'a u8) {{}}", of("&'a u8"));
            let made = format!("let x: {} = make(());", of("&u8"));
            add(format!("{put} fn f() {{ let s = 1u8; {made} put(&x, &s); }}"), &["E0597"]);
        }
    }
    for name in PLAIN.iter().map(|plain| plain.0).filter(|name| name.contains("'g")) {
        let long = name.replace("'g", "'static");
        add(format!("fn f<'g>(x: {name}) -> {long} {{ x }}"), OUTLIVES);
    }
    let of_std = if cfg!(feature = "std") { REFUSED_OF_STD } else { &[] };
    for (error, text) in REFUSED.iter().chain(of_std) {
        add(format!("fn f() {{ {text} }}"), core::slice::from_ref(error));
    }
    programs
}

/// What may be sent and shared, and what type checking refuses.
fn of_types() -> Vec<Program> {
    let mut programs = Vec::new();
    let mut add = |text, is_right: bool| {
        let errors: &[&str] = if is_right { &[] } else { &["E0277"] };
        programs.push(Program { text, errors });
    };
    for Generic { name, send, sync, .. } in generics() {
        // A parameter; whether it is `Send`, and `Sync`.
        let parameters = [
            ("u8", true, true),
            ("Cell<u8>", true, false),
            ("SyncAlone", false, true),
            ("Rc<u8>", false, false),
        ];
        for (parameter, is_send, is_sync) in parameters {
            let name = name.replace("{}", parameter).replace("'g", "'static");
            let is_met = |needs| match needs {
                Needs::Never => false,
                Needs::Send => is_send,
                Needs::Sync => is_sync,
                Needs::Both => is_send && is_sync,
            };
            add(format!("fn f() {{ send::<{name}>() }}"), is_met(*send));
            add(format!("fn f() {{ sync::<{name}>() }}"), is_met(*sync));
        }
    }
    let of_std = if cfg!(feature = "std") { PLAIN_OF_STD } else { &[] };
    for (name, is_send, is_sync) in PLAIN.iter().chain(of_std) {
        let name = name.replace("'g", "'static");
        add(format!("fn f() {{ send::<{name}>() }}"), *is_send);
        add(format!("fn f() {{ sync::<{name}>() }}"), *is_sync);
    }
    for (error, text) in REFUSED_TYPES {
        let text = format!("fn f() {{ {text} }}");
        programs.push(Program { text, errors: core::slice::from_ref(error) });
    }
    programs
}

fn of_what_compiles() -> Vec<Program> {
    let program = |text: &&str| Program { text: format!("fn f() {{ {text} }}"), errors: &[] };
    ACCEPTED.iter().map(program).collect()
}

/// Compiles the programs, all of which have errors, or none.
fn examine(test: &str, programs: impl Iterator<Item = Program>) {
    let compiler = match Compiler::find() {
        Ok(compiler) => compiler,
        Err(why) => {
            eprintln!("skipped: {test}: {why}");
            return;
        }
    };
    let programs: Vec<Program> = programs.collect();
    let wrong = check(&compiler, test, &programs);
    let (all, wrong_ones) = (programs.len(), wrong.len());
    assert!(wrong.is_empty(), "{wrong_ones} of {all} programs:\n{}", wrong.join("\n"));
}

#[test]
fn lifetimes_stay_as_they_are() {
    let is_refused = |program: &Program| !program.errors.is_empty();
    examine("lifetimes_stay_as_they_are", of_lifetimes().into_iter().filter(is_refused));
}

/// Apart from the others: types are checked first, and lifetimes not at all where that fails.
#[test]
fn what_may_not_be_sent_or_shared_is_not() {
    let is_refused = |program: &Program| !program.errors.is_empty();
    examine("what_may_not_be_sent_or_shared_is_not", of_types().into_iter().filter(is_refused));
}

#[test]
fn what_is_sound_compiles() {
    let is_sound = |program: &Program| program.errors.is_empty();
    let all = of_types().into_iter().chain(of_lifetimes()).chain(of_what_compiles());
    examine("what_is_sound_compiles", all.filter(is_sound));
}
