//! Shared objects that a table loads: what must not run in every process of this command.
//!
//! Invariant: an object is loaded once and stays.

use std::ffi::c_void;

use anyhow::Context as _;

use crate::mallocs::library;

/// The object of `corelocal-rivals`.
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

/// A loaded object.
pub struct Object(*mut c_void);

#[cfg(not(target_feature = "crt-static"))]
impl Object {
    pub fn load(name: &str) -> anyhow::Result<Object> {
        let path = std::ffi::CString::new(name)?;
        // SAFETY: the name ends with NUL; constructors of these objects keep to themselves.
        let object = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        anyhow::ensure!(!object.is_null(), "{name} cannot be loaded");
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
