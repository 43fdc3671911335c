//! How much stack it takes to make values that are nearly as long as a core's part may be: they are moved from
//! where their initialiser returns them into their place, in a debug build too.

use std::ffi::c_void;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::{hint, mem, ptr};

use corelocal::percpu::{Lock, PerCpu};

const LEN: usize = (1 << 20) - 64;
type Value = [u8; LEN];

fn make() -> Value {
    [3; LEN]
}

/// Whether `make` is not longer in this build than it has to be. What it needs is the caller's: one value.
fn make_one() {
    hint::black_box(&make());
}

/// The bytes from the beginning of a thread's stack to the last page that `body` touched.
fn depth_of(body: fn()) -> usize {
    extern "C" fn run(body: *mut c_void) -> *mut c_void {
        // SAFETY: made of a `fn()` below.
        let body: fn() = unsafe { mem::transmute(body) };
        body();
        ptr::null_mut()
    }
    let len = 64 * LEN.next_power_of_two();
    // SAFETY: a fresh mapping; the thread that has it as its stack is waited for, and then it goes.
    unsafe {
        let page = libc::sysconf(libc::_SC_PAGESIZE) as usize;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let stack = libc::mmap(ptr::null_mut(), len, access, flags, -1, 0);
        assert_ne!(stack, libc::MAP_FAILED, "mmap: {}", std::io::Error::last_os_error());
        // A huge page would be touched as a whole.
        libc::madvise(stack, len, libc::MADV_NOHUGEPAGE);
        let (mut attributes, mut thread) = (mem::zeroed(), mem::zeroed());
        assert_eq!(libc::pthread_attr_init(&mut attributes), 0);
        assert_eq!(libc::pthread_attr_setstack(&mut attributes, stack, len), 0);
        let started = libc::pthread_create(&mut thread, &attributes, run, body as *mut c_void);
        assert_eq!(started, 0);
        assert_eq!(libc::pthread_join(thread, ptr::null_mut()), 0);
        libc::pthread_attr_destroy(&mut attributes);
        let mut pages = vec![0u8; len / page];
        assert_eq!(libc::mincore(stack, len, pages.as_mut_ptr().cast()), 0);
        libc::munmap(stack, len);
        let untouched = pages.iter().position(|page| page & 1 != 0).unwrap_or(pages.len());
        len - untouched * page
    }
}

static VALUES: PerCpu<Value> = PerCpu::new(make);
static TRIED: PerCpu<Value> = PerCpu::new(make);
static LOCKED: Lock<Value> = Lock::new(make);
static LOCK_TRIED: Lock<Value> = Lock::new(make);

/// A value that is being made, and what functions in between need besides.
const MOST: usize = 2 * LEN + LEN / 2;

fn is_made_with(name: &str, most: usize, body: fn()) {
    let depth = depth_of(body);
    assert!(depth >= LEN, "{name}: the initialiser's value is nowhere in {depth} bytes");
    assert!(depth <= most, "{name}: {depth} bytes of stack for a value of {LEN}");
}

#[test]
fn a_value_is_on_the_stack_once() {
    // A compiler that needs more for the initialiser itself gets it.
    let most = MOST.max(depth_of(make_one) + LEN + LEN / 2);
    is_made_with("PerCpu::get", most, || assert_eq!(VALUES.get()[LEN - 1], 3));
    is_made_with("PerCpu::try_get", most, || _ = TRIED.try_get().expect("memory"));
    is_made_with("Lock::lock", most, || assert_eq!(LOCKED.lock()[LEN - 1], 3));
    is_made_with("Lock::try_lock", most, || assert!(LOCK_TRIED.try_lock().is_some()));
}

/// What has a drop of its own is dropped where it is.
struct Dropped(Value);

impl Drop for Dropped {
    fn drop(&mut self) {
        assert_eq!(hint::black_box(&self.0)[9], 3);
        DROPS.fetch_add(1, Ordering::Relaxed);
    }
}

static DROPS: AtomicU32 = AtomicU32::new(0);
/// Objects with a value in them, to be dropped on another stack than the one they were made on.
static HELD: Mutex<Vec<Box<dyn Send>>> = Mutex::new(Vec::new());

#[test]
fn a_value_is_dropped_in_place() {
    fn hold() {
        let values: Box<PerCpu<Dropped>> = Box::new(PerCpu::new(|| Dropped(make())));
        let locks: Box<Lock<Dropped>> = Box::new(Lock::new(|| Dropped(make())));
        values.get();
        drop(locks.lock());
        HELD.lock().unwrap().extend([values as Box<dyn Send>, locks]);
    }
    depth_of(hold);
    let depth = depth_of(|| HELD.lock().unwrap().clear());
    assert_eq!(DROPS.load(Ordering::Relaxed), 2);
    assert!(depth < LEN, "{depth} bytes of stack to drop values of {LEN}");
}
