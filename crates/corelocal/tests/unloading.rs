//! A shared object with critical sections that a program loads and unloads: threads that have been in
//! its sections sleep meanwhile, and wake up to a kernel that looks at what they left in `rseq_cs`.

use std::ffi::{CStr, CString, c_void};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::Barrier;
use std::time::Duration;

fn plugin() -> PathBuf {
    let test = std::env::current_exe().expect("a path of this test");
    test.ancestors().nth(2).expect("a target directory").join("examples").join("libplugin.so")
}

struct Plugin(*mut c_void);

// SAFETY: a handle of the dynamic linker belongs to no thread.
unsafe impl Sync for Plugin {}

impl Plugin {
    fn load() -> Plugin {
        let file = CString::new(plugin().as_os_str().as_bytes()).expect("a path without NUL");
        // SAFETY: the plugin's constructors do what this crate's own do.
        let handle = unsafe { libc::dlopen(file.as_ptr(), libc::RTLD_NOW) };
        // SAFETY: after a failure there is a message.
        let why = || unsafe { CStr::from_ptr(libc::dlerror()) };
        assert!(!handle.is_null(), "{:?}", why());
        Plugin(handle)
    }

    fn event(&self) -> i64 {
        // SAFETY: a loaded object and a function of this signature.
        unsafe {
            let event = libc::dlsym(self.0, c"plugin_event".as_ptr());
            assert!(!event.is_null());
            std::mem::transmute::<*mut c_void, extern "C" fn() -> i64>(event)()
        }
    }

    fn unload(&self) {
        // SAFETY: each handle is closed once.
        assert_eq!(unsafe { libc::dlclose(self.0) }, 0);
    }
}

fn is_there(test: &str) -> bool {
    let is_there = !cfg!(target_feature = "crt-static") && plugin().exists();
    if !is_there {
        println!(
            "skipped: unloading {test}: needs a dynamic program, and the example `plugin` built beside it (`cargo test` \
             without a choice of targets does that)"
        );
    }
    is_there
}

/// A library that starts a recording in its constructor, while the dynamic loader keeps new threads from running: the
/// constructor waits for none.
#[test]
#[cfg(feature = "std")]
fn loaded_while_the_environment_asks_for_a_recording() {
    let test = "loaded_while_the_environment_asks_for_a_recording";
    let dir = tempfile::tempdir().expect("a folder");
    if std::env::var_os("CORELOCAL_TEST_CHILD").is_some() {
        let plugin = Plugin::load();
        assert_eq!(plugin.event(), 1);
        return;
    }
    if !is_there(test) {
        return;
    }
    for value in ["on", "disk=plugin.%p.trace", "signal=USR2,dump=plugin.%n.trace"] {
        let mut child = std::process::Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", test])
            .env("CORELOCAL_TEST_CHILD", test)
            .env("CORELOCAL_TRACE", value)
            .current_dir(dir.path())
            .stdout(std::process::Stdio::null())
            .spawn()
            .expect("a child");
        let began = std::time::Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().expect("a child") {
                break status;
            }
            if began.elapsed() > Duration::from_secs(60) {
                child.kill().expect("a child");
                panic!("{value}: it hangs");
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        assert!(status.success(), "{value}: {status}");
    }
}

#[test]
fn sleeping_threads_survive_dlclose() {
    if !is_there("sleeping_threads_survive_dlclose") {
        return;
    }
    let plugin = Plugin::load();
    let sleepers = 4;
    let (counted, unloaded) = (Barrier::new(sleepers + 1), Barrier::new(sleepers + 1));
    std::thread::scope(|scope| {
        for _ in 0..sleepers {
            scope.spawn(|| {
                for _ in 0..1000 {
                    plugin.event();
                }
                counted.wait();
                // Asleep in the kernel while the object goes; it resumes this thread afterwards.
                unloaded.wait();
                std::thread::sleep(Duration::from_millis(1));
            });
        }
        counted.wait();
        plugin.unload();
        unloaded.wait();
    });
    // It never went, and neither did its count.
    let again = Plugin::load();
    assert_eq!(again.event(), 1000 * sleepers as i64 + 1);
    again.unload();
}
