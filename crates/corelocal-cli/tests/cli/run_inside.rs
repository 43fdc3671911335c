//! `corelocal run` where another malloc is there already: preloaded, or in the program.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::run::{MALLOC, library};
use crate::{Call, Done, corelocal, skip};

/// With this value of `LD_PRELOAD`.
fn preloaded(value: &str, args: &[&str]) -> Done {
    Call::new(&[&["run"], args].concat()).env("LD_PRELOAD", value).done()
}

/// A library without a malloc.
fn other(folder: &Path) -> PathBuf {
    let (source, library) = (folder.join("other.c"), folder.join("libother.so"));
    fs::write(&source, "int other(void) { return 1; }\n").expect("a new file");
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source);
    assert!(compiler.status().expect("cc, which made a malloc").success());
    library
}

/// Says which malloc it has, and what is preloaded.
const SAYS: &str = "grep -o 'libm-test[.]so' /proc/self/maps | sort -u; echo \"[$LD_PRELOAD]\"";

#[test]
fn a_malloc_that_is_preloaded_is_not_libcs() {
    let Some((folder, library)) = library("a_malloc_that_is_preloaded_is_not_libcs") else {
        return;
    };
    let other_library = other(folder.path());
    let (library, other_library) =
        (library.to_str().expect("text"), other_library.to_str().expect("text"));
    for value in [library.to_owned(), format!("{other_library} {library}")] {
        for args in [&["--malloc", "libc"][..], &["--compare", "--malloc", library]] {
            let done = preloaded(&value, &[args, &["sh", "-c", SAYS]].concat());
            assert_eq!((done.code, done.out.as_str()), (Some(125), ""), "{}", done.whole());
            let says = format!("gives programs that of {library}");
            assert!(done.err.contains(&says), "{}", done.whole());
        }
    }
    // What is no malloc is nothing to speak of.
    let done = preloaded(other_library, &["--malloc", "libc", "sh", "-c", SAYS]);
    assert_eq!(done.out, format!("[{other_library}]\n"), "{}", done.whole());
    assert!(!done.err.contains("LD_PRELOAD"), "{}", done.whole());
    // A program that is given a malloc has it, and the others behind it.
    let done = preloaded(library, &["--malloc", library, "sh", "-c", SAYS]);
    assert_eq!(done.out, format!("libm-test.so\n[{library}:{library}]\n"), "{}", done.whole());
}

#[test]
fn a_program_with_its_own_malloc_is_refused() {
    const TEST: &str = "a_program_with_its_own_malloc_is_refused";
    let Some((folder, library)) = library(TEST) else { return };
    let library = library.to_str().expect("text");
    let program = |name: &str, malloc: &str, main: &str| {
        let (source, program) = (folder.path().join("p.c"), folder.path().join(name));
        fs::write(&source, format!("{malloc}\n#include <stdlib.h>\n{main}")).expect("a new file");
        let mut compiler = Command::new("cc");
        let done =
            compiler.args(["-O0", "-s", "-no-pie", "-o"]).arg(&program).arg(&source).status();
        done.is_ok_and(|status| status.success()).then(|| program.to_str().map(str::to_owned))?
    };
    const PLAIN: &str = "int main(void) { free(malloc(9)); return 5; }";
    // It asks where malloc is, so that it has an address for it, and does not define it.
    const ASKS: &str =
        "void *(*volatile m)(size_t); int main(void) { m = malloc; free(m(9)); return 5; }";
    let (Some(own), Some(asks)) = (program("own", MALLOC, PLAIN), program("asks", "", ASKS)) else {
        return skip(TEST, "cc makes no program");
    };
    for options in [&["--malloc", library][..], &["--compare", "--malloc", "libc"]] {
        let call = Call::new(&[&["run"], options, &[own.as_str()]].concat());
        let done = call.env("CORELOCAL_MALLOCS", library).done();
        assert_eq!(done.code, Some(126), "{}", done.whole());
        assert!(done.err.contains("has a built-in malloc"), "{}", done.whole());
    }
    // It runs as it is, and that is said.
    let done = corelocal(&["run", "--malloc", "libc", &own]);
    assert_eq!(done.code, Some(5), "{}", done.whole());
    assert!(done.err.contains("note: ") && done.err.contains("built-in malloc"), "{}", done.err);
    let done = corelocal(&["run", "--malloc", library, &asks]);
    assert_eq!(done.code, Some(5), "{}", done.whole());
}
