//! Shared objects that a table loads: code that must not run in every process of this command, and libraries that the
//! machine may lack.
//!
//! # Invariants
//! 1. An object is loaded once and stays.
//! 2. This command starts without any of the libraries.

use std::ffi::c_void;
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context as _, bail};

use corelocal_support::mallocs::library;

/// Returns the object of `corelocal-rivals`.
///
/// # Errors
/// When it is not where a build leaves it, or cannot be loaded.
pub fn rivals() -> anyhow::Result<Object> {
    // Where cargo puts it, beside the command's dependencies; the tests are there themselves.
    let name = "libcorelocal_rivals.so";
    let path = library::beside_this_program(&["deps", ""], name).with_context(|| {
        format!("{name} is not beside this program: run the one that `cargo build` left in target/")
    })?;
    Object::load(&path.to_string_lossy())
}

/// C or C++ that is compiled when a table runs, against a library that this machine may have.
pub struct Source {
    /// Names and contents of files. The first one is compiled.
    pub files: &'static [(&'static str, &'static str)],
    /// The compiler's flags: the library, and definitions.
    pub flags: &'static [&'static str],
    /// Debian's packages.
    pub packages: &'static str,
}

impl Source {
    /// Compiles and loads it.
    ///
    /// # Errors
    /// The compiler or the library is missing: what to install.
    pub fn load(&self) -> anyhow::Result<Object> {
        self.compile()?.load()
    }

    /// Compiles it.
    ///
    /// # Errors
    /// As for `load`.
    pub fn compile(&self) -> anyhow::Result<Compiled> {
        self.compile_with(&[])
    }

    /// Compiles it with further flags.
    ///
    /// # Errors
    /// As for `load`.
    pub fn compile_with(&self, flags: &[String]) -> anyhow::Result<Compiled> {
        let compiled = Compiled(tempfile::tempdir()?);
        let folder = compiled.0.path();
        for (name, text) in self.files {
            let path = folder.join(name);
            std::fs::create_dir_all(path.parent().unwrap_or(folder))?;
            std::fs::write(path, text)?;
        }
        let source = self.files.first().map_or("", |(name, _)| name);
        let (variable, usual) = match source.ends_with(".cc") {
            true => ("CXX", "c++"),
            false => ("CC", "cc"),
        };
        let compiler = std::env::var_os(variable).unwrap_or_else(|| usual.into());
        let mut command = Command::new(&compiler);
        // As cheap as in a program that is linked to the library.
        command.args(["-O2", "-shared", "-fPIC", "-fno-plt", "-ftls-model=initial-exec", "-I."]);
        if cfg!(target_arch = "x86_64") {
            // Laid out as the Rust code beside it: see `.cargo/config.toml`.
            command.arg("-Wa,-mbranches-within-32B-boundaries");
        }
        command.args([source, "-o", OBJECT]).args(self.flags).args(flags).current_dir(folder);
        let made = command.output();
        let packages = self.packages;
        match made {
            Ok(ended) if ended.status.success() => Ok(compiled),
            Ok(_) => bail!("not installed: {usual} cannot compile {source}; install {packages}"),
            Err(_) => bail!("not installed: there is no {usual}; install it and {packages}"),
        }
    }
}

/// The functions of a loaded source, or the reason why it cannot be loaded.
pub type Loaded<T> = OnceLock<Result<T, String>>;

/// Loads it at the first call.
///
/// # Errors
/// As at the first call.
pub fn once<T: Clone>(
    loaded: &Loaded<T>,
    load: impl FnOnce() -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let load = || load().map_err(|why| format!("{why:#}"));
    loaded.get_or_init(load).clone().map_err(anyhow::Error::msg)
}

/// The name of a compiled object.
const OBJECT: &str = "object.so";

/// A compiled object, in a folder that is removed with this.
pub struct Compiled(tempfile::TempDir);

impl Compiled {
    /// Loads it.
    ///
    /// # Errors
    /// A library that it needs cannot be loaded.
    pub fn load(&self) -> anyhow::Result<Object> {
        Object::load(&self.0.path().join(OBJECT).to_string_lossy())
    }
}

/// A loaded object.
pub struct Object(*mut c_void);

// SAFETY: a handle of the loader's, which any thread may use.
unsafe impl Send for Object {}
// SAFETY: as above.
unsafe impl Sync for Object {}

#[cfg(not(target_feature = "crt-static"))]
impl Object {
    pub fn load(name: &str) -> anyhow::Result<Object> {
        let path = std::ffi::CString::new(name)?;
        // SAFETY: the name ends with NUL; constructors of these objects keep to themselves.
        let object = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if object.is_null() {
            // SAFETY: a text that ends with NUL, until the thread's next call, or null.
            let why = unsafe { libc::dlerror() };
            anyhow::ensure!(!why.is_null(), "{name} cannot be loaded");
            // SAFETY: as above.
            let why = unsafe { std::ffi::CStr::from_ptr(why) }.to_string_lossy().into_owned();
            anyhow::bail!("the dynamic loader: {}", corelocal_support::output::one_line(why));
        }
        Ok(Object(object))
    }

    pub fn symbol(&self, name: &str) -> anyhow::Result<*mut c_void> {
        let symbol = std::ffi::CString::new(name)?;
        // SAFETY: an object that stays loaded (1); the name ends with NUL.
        let symbol = unsafe { libc::dlsym(self.0, symbol.as_ptr()) };
        anyhow::ensure!(!symbol.is_null(), "there is no {name} in it");
        Ok(symbol)
    }
}

#[cfg(target_feature = "crt-static")]
impl Object {
    pub fn load(_: &str) -> anyhow::Result<Object> {
        anyhow::bail!("a static program loads no shared objects")
    }

    pub fn symbol(&self, _: &str) -> anyhow::Result<*mut c_void> {
        Ok(self.0)
    }
}

#[cfg(all(test, not(target_feature = "crt-static")))]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_missing_says_what_to_install() {
        let source = Source {
            files: &[("none.c", "#include <no_such_library.h>\n")],
            flags: &[],
            packages: "libno-dev",
        };
        let error = source.load().err().expect("no such library").to_string();
        assert!(error.starts_with("not installed: ") && error.contains("libno-dev"), "{error}");
    }

    #[test]
    fn a_function_is_compiled_and_called() {
        let source = Source {
            files: &[("three.c", "int corelocal_three(void) { return 3; }\n")],
            flags: &[],
            packages: "gcc",
        };
        let object = match source.load() {
            Err(why) => return eprintln!("skipped: a_function_is_compiled_and_called: {why}"),
            Ok(object) => object,
        };
        let three = object.symbol("corelocal_three").unwrap();
        // SAFETY: a function of this type, above.
        let three = unsafe { std::mem::transmute::<*mut c_void, extern "C" fn() -> i32>(three) };
        assert_eq!(three(), 3);
        assert!(object.symbol("corelocal_four").is_err());
    }
}
