//! Which mallocs this machine has. The dynamic loader is asked: a child process preloads a library by
//! its name and tells where its `malloc` is. So what `ld.so.conf`, `LD_LIBRARY_PATH` and the loader's
//! own directories say holds here as well, and a library that cannot be preloaded is none. Mallocs that
//! are Rust crates are where `rivals/build` leaves them.
//!
//! Invariants:
//! - A command that is linked without a dynamic loader can ask none. It takes files by their path alone, if `malloc` is
//!   among their symbols.
//! - An error is a sentence that says what to do.
//! - What the user names is used as it is.

use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use serde_json::Value;

use super::carried::{self, OURS};
use super::{CAN_ASK, Malloc, elf, symbols};
use crate::output::{one_line, path_line};
use crate::process::child;

/// The variable that names the library of corelocal's malloc.
pub const VARIABLE: &str = "CORELOCAL_MALLOC_LIBRARY";
/// The variable that names more libraries to measure, with colons between.
pub const MORE: &str = "CORELOCAL_MALLOCS";
const BUILD: &str = "cargo build --release -p corelocal-malloc";

/// The child process that tells where its malloc is.
pub const BODY: child::Named = ("malloc-where", child);
/// Far more than a process takes that only starts.
const LIMIT: Duration = Duration::from_secs(20);

/// A malloc by its name.
pub struct Known {
    /// See [`Malloc`].
    pub id: &'static str,
    /// See [`Malloc`].
    pub label: &'static str,
    /// The names by which the loader finds it, newest first; or the file that `rivals/build` makes.
    sonames: &'static [&'static str],
    /// The source of the malloc.
    source: Source,
}

/// The source of a malloc.
enum Source {
    /// A package of Debian and its relatives, which the loader finds.
    Package(&'static str),
    /// A crate, which `rivals/build` builds.
    Crate(&'static str),
}

/// Mallocs of others that distributions have, or that are Rust crates.
pub const KNOWN: &[Known] = &[
    Known {
        id: "jemalloc",
        label: "jemalloc",
        sonames: &["libjemalloc.so.2", "libjemalloc.so.1"],
        source: Source::Package("libjemalloc2"),
    },
    Known {
        id: "mimalloc",
        label: "mimalloc",
        sonames: &["libmimalloc.so.3", "libmimalloc.so.2", "libmimalloc.so.2.0", "libmimalloc.so"],
        source: Source::Package("libmimalloc3 or libmimalloc2.0"),
    },
    Known {
        id: "tcmalloc",
        label: "tcmalloc (gperftools)",
        sonames: &["libtcmalloc_minimal.so.4", "libtcmalloc_minimal.so"],
        source: Source::Package("libtcmalloc-minimal4"),
    },
    Known {
        id: "mimalloc3",
        label: "mimalloc 3 (crate)",
        sonames: &["rival-mimalloc3.so"],
        source: Source::Crate("libmimalloc-sys"),
    },
    Known {
        id: "snmalloc",
        label: "snmalloc (crate)",
        sonames: &["rival-snmalloc.so"],
        source: Source::Crate("snmalloc-sys"),
    },
    Known {
        id: "rpmalloc",
        label: "rpmalloc 1.4 (crate)",
        sonames: &["rival-rpmalloc.so"],
        source: Source::Crate("rpmalloc-sys"),
    },
    Known {
        id: "tcmalloc-better",
        label: "tcmalloc (Google's, crate)",
        sonames: &["rival-tcmalloc-better.so"],
        source: Source::Crate("libtcmalloc-sys"),
    },
];

impl Known {
    /// Returns the malloc of this name on this machine.
    ///
    /// # Errors
    /// When it is not installed, or not built: how to.
    pub fn find(&self) -> anyhow::Result<Malloc> {
        let library = match self.source {
            Source::Package(package) => self.installed(package)?,
            Source::Crate(name) => self.built(name, |file| beside_this_program(&RIVALS, file))?,
        };
        let (id, label) = (self.id.to_owned(), self.label.to_owned());
        Ok(Malloc { id, label, ours: false, library: Some(library) })
    }

    fn installed(&self, package: &str) -> anyhow::Result<PathBuf> {
        let found = self.sonames.iter().find_map(|soname| loaded(soname).ok());
        found.with_context(|| {
            format!(
                "not installed: the dynamic loader does not find {}; `apt install {package}`, or add its folder \
                 to LD_LIBRARY_PATH",
                self.sonames[0]
            )
        })
    }

    fn built(&self, name: &str, find: impl Fn(&str) -> Option<PathBuf>) -> anyhow::Result<PathBuf> {
        if let Some(library) = find(self.sonames[0]) {
            return checked(&library);
        }
        // What `rivals/build` leaves where it could not build one.
        let reason = Path::new(self.sonames[0]).with_extension("txt");
        let reason = find(&reason.to_string_lossy());
        match reason.and_then(|path| std::fs::read_to_string(path).ok()) {
            Some(why) => bail!("not built: {}; `rivals/build` tries again", why.trim()),
            None => bail!(
                "not built: there is no {} beside this program; `rivals/build` builds it from the crate {name}, \
                 in target/rivals/",
                self.sonames[0]
            ),
        }
    }
}

/// Returns what a reader means by `--malloc`: a name, or a file.
///
/// # Errors
/// When there is none: which names there are, or what is wrong with the file.
pub fn named(name: &str) -> anyhow::Result<Malloc> {
    let is_file = name.contains('/') || name.contains(".so");
    match name {
        "corelocal" => ours(),
        "libc" | "glibc" | "musl" | "none" => Ok(Malloc::of_libc()),
        _ if is_file => file(Path::new(name)),
        _ => match KNOWN.iter().find(|known| known.id == name) {
            Some(known) => known.find().with_context(|| format!("no malloc `{name}`")),
            None => {
                let names: Vec<&str> = KNOWN.iter().map(|known| known.id).collect();
                bail!(
                    "unknown malloc `{name}` (known: corelocal, libc, {}, or the path of a library)",
                    names.join(", ")
                )
            }
        },
    }
}

/// Returns the one of corelocal: the file that [`VARIABLE`] names, else the one that this command carries. A debug
/// build carries none, and takes the one that cargo made beside it.
///
/// # Errors
/// When there is none, or it cannot be unpacked or preloaded: what to do.
pub fn ours() -> anyhow::Result<Malloc> {
    let library = match std::env::var_os(VARIABLE).filter(|path| !path.is_empty()) {
        Some(path) => given(Path::new(&path)).with_context(|| format!("in {VARIABLE}"))?,
        None if carried::is_there() => match carried::installed().map(|path| checked(&path)) {
            Some(Ok(path)) => path,
            _ => checked(&carried::unpacked()?)
                .context("the command's own malloc; XDG_CACHE_HOME names another folder for it")?,
        },
        None => {
            let found = beside_this_program(&["", "deps"], OURS).with_context(|| {
                format!(
                    "this command carries no malloc ({}), and there is no {OURS} beside it: `{BUILD}` builds one, in \
                     target/release/; set {VARIABLE} to its path",
                    carried::WHY_NOT
                )
            })?;
            checked(&found)?
        }
    };
    Ok(Malloc {
        id: "corelocal".to_owned(),
        label: "corelocal".to_owned(),
        ours: true,
        library: Some(library),
    })
}

/// The folders in which `rivals/build` leaves what it makes, as seen from `release/`, and from `release/deps/` and
/// `TRIPLE/release/`; and the one of an installation.
const RIVALS: [&str; 3] = ["../rivals", "../../rivals", "../lib/corelocal/rivals"];

/// Returns the first file of this name in folders relative to that of this program, resolved.
pub fn beside_this_program(places: &[&str], name: &str) -> Option<PathBuf> {
    let program = std::env::current_exe().and_then(|path| path.canonicalize()).ok()?;
    let folder = program.parent()?;
    let mut found =
        places.iter().filter_map(|place| folder.join(place).join(name).canonicalize().ok());
    found.find(|path| path.is_file())
}

/// Returns a library that the user names.
///
/// # Errors
/// What is wrong with it.
pub fn file(path: &Path) -> anyhow::Result<Malloc> {
    let library = given(path)?;
    let name = one_line(library.file_name().unwrap_or_default().to_string_lossy().into_owned());
    // With whatever version behind.
    let is_of = |soname: &&str| {
        name.strip_prefix(soname).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    let known = KNOWN.iter().find(|known| known.sonames.iter().any(is_of));
    let ours = name == OURS;
    let (id, label) = match known {
        Some(known) => (known.id.to_owned(), known.label.to_owned()),
        None if ours => ("corelocal".to_owned(), "corelocal".to_owned()),
        None => (name.clone(), name),
    };
    Ok(Malloc { id, label, ours, library: Some(library) })
}

/// Returns the library that a path or a name leads to. A bare name is for the loader to find, as in `LD_PRELOAD`: in a
/// folder that is not the user's own the file of that name is not what is meant.
fn given(path: &Path) -> anyhow::Result<PathBuf> {
    if path.as_os_str().as_bytes().contains(&b'/') {
        return checked(path);
    }
    let name = path.to_string_lossy();
    loaded(&name).with_context(|| match path.exists() {
        true => format!(
            "{name} is a name for the dynamic loader; for the file in this folder give ./{name}"
        ),
        false => format!("cannot use the malloc {name}"),
    })
}

/// Returns the mallocs that [`MORE`] names.
pub fn more() -> Vec<anyhow::Result<Malloc>> {
    let paths = std::env::var_os(MORE).unwrap_or_default();
    std::env::split_paths(&paths)
        .filter(|path| !path.as_os_str().is_empty())
        .map(|path| file(&path).with_context(|| format!("in {MORE}")))
        .collect()
}

/// Returns a file that can be preloaded and brings a malloc.
fn checked(path: &Path) -> anyhow::Result<PathBuf> {
    let name = path_line(path);
    let whole =
        path.canonicalize().map_err(|error| anyhow!("cannot use the malloc {name}: {error}"))?;
    let found = elf::read(&whole).with_context(|| format!("cannot read the malloc {name}"))?;
    let found =
        found.with_context(|| format!("{name} is not a shared library (not an ELF file)"))?;
    if let Ok(Some(this)) = elf::read(Path::new("/proc/self/exe")) {
        if !this.fits(&found) {
            bail!(
                "{name} is for another processor ({}) than programs here ({})",
                found.kind(),
                this.kind()
            );
        }
    }
    if !found.is_dynamic {
        bail!("{name} is not a shared library: it can be linked, but not preloaded");
    }
    let text = whole.to_string_lossy();
    if text.contains([':', ' ']) || whole.to_str().is_none() {
        bail!(
            "the path of {name} contains a colon, a space or invalid text, which LD_PRELOAD cannot contain; \
             copy it elsewhere"
        );
    }
    if !CAN_ASK {
        return match symbols::defines(&whole, "malloc") {
            Ok(true) => Ok(whole),
            _ => bail!("{name} defines no malloc"),
        };
    }
    loaded(&text)
}

/// Returns where the malloc of a process is that preloads this, which is a path or a name.
fn loaded(preload: &str) -> anyhow::Result<PathBuf> {
    if !CAN_ASK {
        bail!("this program was linked without a dynamic loader and cannot ask one for {preload}");
    }
    let path = with_preload(preload)?;
    // A name may lead to any path.
    let wanted = match preload.contains('/') {
        true => Path::new(preload).canonicalize().unwrap_or_else(|_| path.clone()),
        false => path.clone(),
    };
    if path.as_os_str().is_empty() || path != wanted || is_libc(&path) {
        bail!(
            "a process with {preload} preloaded has its malloc from {}; `LD_PRELOAD={preload} true` shows the \
             dynamic loader's message",
            path_line(&path)
        );
    }
    Ok(path)
}

/// Returns where the malloc of a process is with this value of `LD_PRELOAD`, whatever it is.
///
/// # Errors
/// When the process does not run.
pub fn with_preload(preload: &str) -> anyhow::Result<PathBuf> {
    let env = [("LD_PRELOAD", preload)];
    let answer = child::run(BODY.0, &[], &env, LIMIT)
        .with_context(|| format!("a process with {preload} preloaded does not run"))?;
    Ok(PathBuf::from(answer.as_str().unwrap_or_default()))
}

/// Returns `true` if a file is libc itself, glibc or musl.
pub fn is_libc(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    ["libc.so", "libc-2", "ld-musl", "libc.musl"].iter().any(|libc| name.starts_with(libc))
}

/// Runs in the child.
fn child(_: &[String]) -> anyhow::Result<Value> {
    Ok(Value::from(super::of_this_process().to_string_lossy().into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_there_are_not() {
        let error = named("fastmalloc").unwrap_err().to_string();
        for name in ["`fastmalloc`", "corelocal", "libc", "jemalloc", "path"] {
            assert!(error.contains(name), "{error}");
        }
        assert_eq!(named("glibc").unwrap(), Malloc::of_libc());
    }

    #[test]
    fn files_that_are_no_library() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("libx.so");
        let said = |path: &Path| format!("{:#}", file(path).unwrap_err());
        assert!(said(&path).contains("No such file"), "{}", said(&path));
        std::fs::write(&path, "text").unwrap();
        assert!(said(&path).contains("not an ELF file"), "{}", said(&path));
        assert!(said(dir.path()).contains("not a regular file"), "{}", said(dir.path()));
        let spaced = dir.path().join("a b.so");
        std::fs::copy("/proc/self/exe", &spaced).unwrap();
        let text = said(&spaced);
        assert!(
            text.contains("LD_PRELOAD cannot contain") || text.contains("not a shared"),
            "{text}"
        );
    }

    #[test]
    fn what_is_not_installed_says_how_to() {
        let source = Source::Package("libno");
        let known = Known { id: "x", label: "x", sonames: &["libno_such.so.9"], source };
        // The child of a test is the test program, which has no such command: not installed either.
        let error = format!("{:#}", known.find().unwrap_err());
        assert!(
            error.contains("apt install libno") && error.contains("libno_such.so.9"),
            "{error}"
        );
    }

    #[test]
    fn what_is_not_built_says_how_to_or_why() {
        let source = Source::Crate("no-such-sys");
        let known = Known { id: "x", label: "x", sonames: &["no_such_rival.so"], source };
        let error = format!("{:#}", known.find().unwrap_err());
        assert!(error.contains("`rivals/build`") && error.contains("no-such-sys"), "{error}");

        let dir = tempfile::tempdir().unwrap();
        let find = |name: &str| Some(dir.path().join(name)).filter(|path| path.is_file());
        std::fs::write(dir.path().join("no_such_rival.txt"), "cmake is missing: install it\n")
            .unwrap();
        let error = format!("{:#}", known.built("no-such-sys", find).unwrap_err());
        assert_eq!(error, "not built: cmake is missing: install it; `rivals/build` tries again");
        // What is there is looked at.
        std::fs::write(dir.path().join("no_such_rival.so"), "text").unwrap();
        let error = format!("{:#}", known.built("no-such-sys", find).unwrap_err());
        assert!(error.contains("not an ELF file"), "{error}");
    }
}
