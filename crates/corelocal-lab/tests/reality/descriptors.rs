//! 300 random descriptors of critical sections: which restart, which are cleared, which end the process.
//!
//! ```text
//!   child     rseq_cs = descriptor; start: waits in a loop; end: 0      abort handlers, one with the signature: 1
//!   parent    sends signals until the child has ended
//! ```
//! The loop is the section. The handler of the signal lets it end once it has interrupted it.

use std::arch::{asm, global_asm};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use corelocal::sys::Registration;
use corelocal_lab::sim::random::Numbers;
use corelocal_lab::sim::rseq::descriptor::{Checks, Descriptor, Fixup, fixup};

use crate::common::{agree, release, scaled};

const DESCRIPTORS: u32 = 300;
const SIGNATURE: u32 = 0x5305_3053;
/// The end of user space with page tables of five levels, which is beyond that with four, too.
const LIMIT: u64 = (1 << 56) - 4096;

/// `struct rseq_cs`.
#[repr(C, align(32))]
struct RseqCs {
    version: u32,
    flags: u32,
    start_ip: u64,
    post_commit_offset: u64,
    abort_ip: u64,
}

// rdi: the field rseq_cs; rsi: the descriptor; rdx: a word that ends the loop when it is not 0.
global_asm!(
    ".pushsection .text.corelocal_descriptors, \"ax\", @progbits",
    "corelocal_descriptors_run:",
    "mov qword ptr [rdi], rsi",
    "corelocal_descriptors_start:",
    "cmp dword ptr [rdx], 0",
    "je corelocal_descriptors_start",
    "corelocal_descriptors_end:",
    "xor eax, eax",
    "ret",
    ".byte 0x0f, 0xb9, 0x3d",
    ".long 0x53053053",
    "corelocal_descriptors_abort:",
    "mov eax, 1",
    "ret",
    ".byte 0x0f, 0xb9, 0x3d",
    ".long 0x53053054",
    "corelocal_descriptors_unsigned:",
    "mov eax, 1",
    "ret",
    "corelocal_descriptors_last:",
    ".popsection",
);

unsafe extern "C" {
    fn corelocal_descriptors_run(rseq_cs: *mut u64, of: *const RseqCs, ends: *const u32) -> u32;
    static corelocal_descriptors_start: u8;
    static corelocal_descriptors_end: u8;
    static corelocal_descriptors_abort: u8;
    static corelocal_descriptors_unsigned: u8;
    static corelocal_descriptors_last: u8;
}

fn start() -> u64 {
    (&raw const corelocal_descriptors_start) as u64
}

fn end() -> u64 {
    (&raw const corelocal_descriptors_end) as u64
}

/// Ends the loop of the child.
static ENDS: AtomicU32 = AtomicU32::new(0);

extern "C" fn handler(_: libc::c_int, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the context of the interrupted code, which the kernel has made.
    let ip =
        unsafe { (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs[libc::REG_RIP as usize] }
            as u64;
    if (start()..(&raw const corelocal_descriptors_last) as u64).contains(&ip) {
        ENDS.store(1, Ordering::Relaxed);
    }
}

#[test]
fn descriptors() {
    let registration = Registration::of_this_thread();
    let Some(offset) = registration.offset else {
        return eprintln!("skipped: descriptors: this thread has no rseq area");
    };
    let (major, minor) = release();
    let checks = Checks::of(major, minor);
    let mut numbers = Numbers(9);
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    let count = scaled(DESCRIPTORS);
    for nth in 0..count {
        let descriptor = draw(&mut numbers);
        let expected = fixup(checks, &descriptor, start(), LIMIT, signature_at, SIGNATURE);
        let mut kernel = run(offset, &descriptor);
        // What is kept is cleared by a preemption after the section, which the child may not see in time.
        for _ in 0..20 {
            if (kernel, expected) == (Fixup::Clear, Fixup::Keep) {
                kernel = run(offset, &descriptor);
            }
        }
        assert_eq!(
            kernel,
            expected,
            "descriptor {nth}, {checks:?}: {descriptor:x?}, section {:x}..{:x}",
            start(),
            end()
        );
        *seen.entry(format!("{kernel:?}")).or_default() += 1;
    }
    assert!(seen.len() >= 3, "little has happened: {seen:?}");
    let seen = seen
        .iter()
        .map(|(what, count)| format!("{} {count}", what.to_lowercase()))
        .collect::<Vec<_>>();
    agree(
        "descriptors of sections",
        count,
        "random descriptor",
        format_args!("{}", seen.join(", ")),
    );
}

/// The signature before an address in this function's code.
fn signature_at(address: u64) -> Option<u32> {
    let all = start()..(&raw const corelocal_descriptors_last) as u64;
    // SAFETY: code of this program.
    all.contains(&address).then(|| unsafe { (address as *const u32).read_unaligned() })
}

/// The right descriptor, of which up to two fields were changed.
fn draw(numbers: &mut Numbers) -> Descriptor {
    let (start, end) = (start(), end());
    let abort = (&raw const corelocal_descriptors_abort) as u64;
    let unsigned = (&raw const corelocal_descriptors_unsigned) as u64;
    let (version, flags) = (0, 0);
    let mut descriptor = Descriptor {
        version,
        flags,
        start_ip: start,
        post_commit_offset: end - start,
        abort_ip: abort,
    };
    for _ in 0..numbers.below(3) {
        let field = numbers.below(8);
        let mut one_of = |of: &[u64]| of[numbers.below(of.len())];
        match field {
            0 => descriptor.version = one_of(&[1, 2]) as u32,
            1 | 2 => descriptor.flags = one_of(&[1, 2, 4, 7, 8]) as u32,
            3 | 4 => descriptor.start_ip = one_of(&[end, start - 64, LIMIT, u64::MAX]),
            5 | 6 => {
                let offsets = [0, abort + 1 - start, LIMIT - start, u64::MAX];
                descriptor.post_commit_offset = one_of(&offsets);
            }
            _ => descriptor.abort_ip = one_of(&[unsigned, start, 0, 2, LIMIT, 1 << 63]),
        }
    }
    descriptor
}

/// What the kernel does with the section when a signal comes.
fn run(offset: isize, descriptor: &Descriptor) -> Fixup {
    // A signal waits until the child has its handler.
    // SAFETY: a set of signals; the child makes system calls and runs the function above.
    let child = unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigaddset(&mut set, libc::SIGUSR1);
        libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
        libc::fork()
    };
    assert!(child >= 0, "fork: {}", std::io::Error::last_os_error());
    if child == 0 {
        be_child(offset, descriptor);
    }
    let began = Instant::now();
    loop {
        let mut status = 0;
        // SAFETY: a child of ours; a status to write.
        if unsafe { libc::waitpid(child, &mut status, libc::WNOHANG) } == child {
            if libc::WIFSIGNALED(status) {
                assert_eq!(libc::WTERMSIG(status), libc::SIGSEGV);
                return Fixup::Kill;
            }
            return match libc::WEXITSTATUS(status) {
                0 => Fixup::Clear,
                1 => Fixup::Restart,
                2 => Fixup::Keep,
                other => panic!("the child ends with {other}"),
            };
        }
        assert!(began.elapsed() < Duration::from_secs(20), "the child does not end");
        // SAFETY: the child has not been waited for.
        unsafe { libc::kill(child, libc::SIGUSR1) };
        thread::sleep(Duration::from_micros(100));
    }
}

fn be_child(offset: isize, descriptor: &Descriptor) -> ! {
    let Descriptor { version, flags, start_ip, post_commit_offset, abort_ip } = *descriptor;
    let of = RseqCs { version, flags, start_ip, post_commit_offset, abort_ip };
    // SAFETY: system calls; the area is this thread's, and `of` lives until the end of the process. The instruction
    // pointer is set to an abort handler that returns from the function, or the process ends.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        libc::prctl(libc::PR_SET_DUMPABLE, 0);
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as extern "C" fn(_, _, _) as usize;
        action.sa_flags = libc::SA_SIGINFO;
        libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut());
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigaddset(&mut set, libc::SIGUSR1);
        libc::sigprocmask(libc::SIG_UNBLOCK, &set, std::ptr::null_mut());
        // The default, not the test harness's own message.
        libc::signal(libc::SIGSEGV, libc::SIG_DFL);
        let pointer: *mut u8;
        asm!("mov {}, fs:0", out(reg) pointer, options(nostack, preserves_flags, readonly));
        let rseq_cs = pointer.offset(offset + 8).cast::<u64>();
        let restarted = corelocal_descriptors_run(rseq_cs, &of, ENDS.as_ptr());
        let is_kept = restarted == 0 && rseq_cs.read_volatile() != 0;
        libc::_exit(if is_kept { 2 } else { restarted as i32 });
    }
}
