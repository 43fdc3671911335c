//! Names of the kernel's interface, for systems that are not Linux: constants and types as Linux on x86-64 has them.
//! The stand-in for the kernel (`kernel.rs`) knows these numbers; no other system sees them.

#![allow(
    missing_docs,
    non_camel_case_types,
    non_upper_case_globals,
    dead_code,
    reason = "names and numbers of others"
)]

pub use core::ffi::{c_char, c_int, c_short, c_void};

pub type c_long = i64;
pub type c_ulong = u64;

pub const AT_FDCWD: i32 = -100;
pub const AT_PAGESZ: u64 = 6;
pub const AT_RANDOM: u64 = 25;
pub const AT_SECURE: u64 = 23;
pub const AT_SYMLINK_FOLLOW: i32 = 1024;
pub const AT_SYSINFO_EHDR: u64 = 33;
pub const CLOCK_BOOTTIME: i32 = 7;
pub const CLOCK_MONOTONIC: i32 = 1;
pub const CLOCK_MONOTONIC_COARSE: i32 = 6;
pub const CLOCK_REALTIME: i32 = 0;
pub const CLOCK_REALTIME_COARSE: i32 = 5;
pub const CLOCK_TAI: i32 = 11;
pub const ECANCELED: i32 = 125;
pub const EFAULT: i32 = 14;
pub const EIO: i32 = 5;
pub const ENOMEM: i32 = 12;
pub const ENOSYS: i32 = 38;
pub const ENOTRECOVERABLE: i32 = 131;
pub const EOWNERDEAD: i32 = 130;
pub const FUTEX_BITSET_MATCH_ANY: i32 = -1;
pub const FUTEX_CLOCK_REALTIME: i32 = 256;
pub const FUTEX_CMP_REQUEUE: i32 = 4;
pub const FUTEX_CMP_REQUEUE_PI: i32 = 12;
pub const FUTEX_LOCK_PI: i32 = 6;
pub const FUTEX_LOCK_PI2: i32 = 13;
pub const FUTEX_OWNER_DIED: u32 = 1073741824;
pub const FUTEX_PRIVATE_FLAG: i32 = 128;
pub const FUTEX_TID_MASK: u32 = 1073741823;
pub const FUTEX_TRYLOCK_PI: i32 = 8;
pub const FUTEX_UNLOCK_PI: i32 = 7;
pub const FUTEX_WAITERS: u32 = 2147483648;
pub const FUTEX_WAIT_BITSET: i32 = 9;
pub const FUTEX_WAIT_REQUEUE_PI: i32 = 11;
pub const FUTEX_WAKE: i32 = 1;
pub const F_ADD_SEALS: i32 = 1033;
pub const F_DUPFD_CLOEXEC: i32 = 1030;
pub const F_GETFD: i32 = 1;
pub const F_GET_SEALS: i32 = 1034;
pub const F_OFD_GETLK: i32 = 36;
pub const F_OFD_SETLK: i32 = 37;
pub const F_RDLCK: i32 = 0;
pub const F_SEAL_GROW: i32 = 4;
pub const F_SEAL_SEAL: i32 = 1;
pub const F_SEAL_SHRINK: i32 = 2;
pub const F_UNLCK: i32 = 2;
pub const F_WRLCK: i32 = 1;
pub const GRND_NONBLOCK: u32 = 1;
pub const MADV_DODUMP: i32 = 17;
pub const MADV_DONTDUMP: i32 = 16;
pub const MADV_DONTNEED: i32 = 4;
pub const MADV_FREE: i32 = 8;
pub const MADV_HUGEPAGE: i32 = 14;
pub const MADV_NOHUGEPAGE: i32 = 15;
pub const MADV_WIPEONFORK: i32 = 18;
pub const MAP_ANONYMOUS: i32 = 32;
pub const MAP_FIXED: i32 = 16;
pub const MAP_FIXED_NOREPLACE: i32 = 1048576;
pub const MAP_NORESERVE: i32 = 16384;
pub const MAP_PRIVATE: i32 = 2;
pub const MAP_SHARED: i32 = 1;
pub const MCL_FUTURE: i32 = 2;
pub const MFD_ALLOW_SEALING: u32 = 2;
pub const MFD_CLOEXEC: u32 = 1;
pub const MPOL_DEFAULT: i32 = 0;
pub const MPOL_PREFERRED: i32 = 1;
pub const MREMAP_FIXED: i32 = 2;
pub const MREMAP_MAYMOVE: i32 = 1;
pub const MS_ASYNC: i32 = 1;
pub const O_APPEND: i32 = 1024;
pub const O_CLOEXEC: i32 = 524288;
pub const O_CREAT: i32 = 64;
pub const O_EXCL: i32 = 128;
pub const O_NOCTTY: i32 = 256;
pub const O_NOFOLLOW: i32 = 131072;
pub const O_NONBLOCK: i32 = 2048;
pub const O_PATH: i32 = 2097152;
pub const O_RDONLY: i32 = 0;
pub const O_RDWR: i32 = 2;
pub const O_TMPFILE: i32 = 4259840;
pub const O_TRUNC: i32 = 512;
pub const O_WRONLY: i32 = 1;
pub const POLLIN: i16 = 1;
pub const POLLOUT: i16 = 4;
pub const PROT_NONE: i32 = 0;
pub const PROT_READ: i32 = 1;
pub const PROT_WRITE: i32 = 2;
pub const PR_GET_NAME: i32 = 16;
pub const PR_GET_THP_DISABLE: i32 = 42;
pub const PTHREAD_MUTEX_ROBUST: i32 = 1;
pub const PTHREAD_PROCESS_SHARED: i32 = 1;
pub const RENAME_NOREPLACE: u32 = 1;
pub const RLIM64_INFINITY: u64 = 18446744073709551615;
pub const RLIMIT_AS: u32 = 9;
pub const RTLD_LAZY: i32 = 1;
pub const RTLD_NODELETE: i32 = 4096;
pub const RTLD_NOLOAD: i32 = 4;
pub const SA_NODEFER: i32 = 1073741824;
pub const SA_ONSTACK: i32 = 134217728;
pub const SA_RESETHAND: i32 = -2147483648;
pub const SA_RESTART: i32 = 268435456;
pub const SA_SIGINFO: i32 = 4;
pub const SEEK_SET: i32 = 0;
pub const SIGBUS: i32 = 7;
pub const SIGHUP: i32 = 1;
pub const SIGKILL: i32 = 9;
pub const SIGQUIT: i32 = 3;
pub const SIGSEGV: i32 = 11;
pub const SIGSTOP: i32 = 19;
pub const SIGUSR1: i32 = 10;
pub const SIGUSR2: i32 = 12;
pub const SIGWINCH: i32 = 28;
pub const SIGXFSZ: i32 = 25;
pub const SIG_BLOCK: i32 = 0;
pub const SIG_SETMASK: i32 = 2;
pub const SIG_UNBLOCK: i32 = 1;
pub const SS_ONSTACK: i32 = 1;
pub const STA_NANO: i32 = 8192;
pub const STA_UNSYNC: i32 = 64;
pub const STDERR_FILENO: i32 = 2;
pub const SYS_clock_gettime: c_long = 228;
pub const SYS_close: c_long = 3;
pub const SYS_close_range: c_long = 436;
pub const SYS_fallocate: c_long = 285;
pub const SYS_fchmod: c_long = 91;
pub const SYS_fcntl: c_long = 72;
pub const SYS_fstatfs: c_long = 138;
pub const SYS_ftruncate: c_long = 77;
pub const SYS_futex: c_long = 202;
pub const SYS_futex_waitv: c_long = 449;
pub const SYS_get_mempolicy: c_long = 239;
pub const SYS_get_robust_list: c_long = 274;
pub const SYS_getcpu: c_long = 309;
pub const SYS_getpid: c_long = 39;
pub const SYS_getppid: c_long = 110;
pub const SYS_getrandom: c_long = 318;
pub const SYS_gettid: c_long = 186;
pub const SYS_kcmp: c_long = 312;
pub const SYS_madvise: c_long = 28;
pub const SYS_mbind: c_long = 237;
pub const SYS_membarrier: c_long = 324;
pub const SYS_memfd_create: c_long = 319;
pub const SYS_mincore: c_long = 27;
pub const SYS_mmap: c_long = 9;
pub const SYS_move_pages: c_long = 279;
pub const SYS_mprotect: c_long = 10;
pub const SYS_readlinkat: c_long = 267;
pub const SYS_mremap: c_long = 25;
pub const SYS_msync: c_long = 26;
pub const SYS_munlock: c_long = 150;
pub const SYS_munmap: c_long = 11;
pub const SYS_openat: c_long = 257;
pub const SYS_pidfd_getfd: c_long = 438;
pub const SYS_pidfd_open: c_long = 434;
pub const SYS_pipe2: c_long = 293;
pub const SYS_ppoll: c_long = 271;
pub const SYS_prctl: c_long = 157;
pub const SYS_pread64: c_long = 17;
pub const SYS_prlimit64: c_long = 302;
pub const SYS_process_vm_readv: c_long = 310;
pub const SYS_read: c_long = 0;
pub const SYS_renameat2: c_long = 316;
pub const SYS_rseq: c_long = 334;
pub const SYS_rt_sigpending: c_long = 127;
pub const SYS_rt_sigprocmask: c_long = 14;
pub const SYS_rt_sigtimedwait: c_long = 128;
pub const SYS_sched_getaffinity: c_long = 204;
pub const SYS_set_robust_list: c_long = 273;
pub const SYS_sigaltstack: c_long = 131;
pub const SYS_tgkill: c_long = 234;
pub const SYS_vfork: c_long = 58;
pub const SYS_write: c_long = 1;
pub const S_IFCHR: u32 = 8192;
pub const S_IFMT: u32 = 61440;
pub const S_IFREG: u32 = 32768;
pub const TFD_CLOEXEC: i32 = 524288;
pub const TFD_NONBLOCK: i32 = 2048;
pub const TFD_TIMER_ABSTIME: i32 = 1;
pub const TFD_TIMER_CANCEL_ON_SET: i32 = 2;
pub const TIME_DEL: i32 = 2;
pub const TIME_ERROR: i32 = 5;
pub const TIME_INS: i32 = 1;
pub const TIME_OOP: i32 = 3;
pub const TIME_WAIT: i32 = 4;
pub const _SC_PAGESIZE: i32 = 30;
pub const E2BIG: i32 = 7;
pub const EACCES: i32 = 13;
pub const EAGAIN: i32 = 11;
pub const EBADF: i32 = 9;
pub const EBUSY: i32 = 16;
pub const EDEADLK: i32 = 35;
pub const EEXIST: i32 = 17;
pub const EFBIG: i32 = 27;
pub const EINTR: i32 = 4;
pub const EINVAL: i32 = 22;
pub const ELOOP: i32 = 40;
pub const EMFILE: i32 = 24;
pub const ENAMETOOLONG: i32 = 36;
pub const ENFILE: i32 = 23;
pub const ENOENT: i32 = 2;
pub const ENOSPC: i32 = 28;
pub const ENOTDIR: i32 = 20;
pub const EPERM: i32 = 1;
pub const ESRCH: i32 = 3;
pub const ETIMEDOUT: i32 = 110;
pub const MAP_FAILED: *mut c_void = usize::MAX as *mut c_void;
pub const SIG_DFL: usize = 0;
pub const SIG_IGN: usize = 1;

pub type clockid_t = c_int;
pub type mode_t = u32;
pub type off_t = i64;
pub type pid_t = i32;
pub type pthread_key_t = u32;
pub type pthread_t = usize;
pub type time_t = i64;
pub type uid_t = u32;
pub type sighandler_t = usize;
pub type pthread_mutex_t = [u64; 5];
pub type pthread_mutexattr_t = u32;
pub type sigset_t = [u64; 16];

/// A struct of numbers, all of them 0 at first.
macro_rules! numbers {
    ($($name:ident { $($field:ident: $kind:ty),* })*) => { $(
        #[repr(C)]
        #[derive(Clone, Copy, Debug)]
        pub struct $name { $(pub $field: $kind),* }
    )* };
}
numbers! {
    timespec { tv_sec: time_t, tv_nsec: i64 }
    timeval { tv_sec: time_t, tv_usec: i64 }
    itimerspec { it_interval: timespec, it_value: timespec }
    iovec { iov_base: *mut c_void, iov_len: usize }
    pollfd { fd: c_int, events: c_short, revents: c_short }
    rlimit64 { rlim_cur: u64, rlim_max: u64 }
    sigaction { sa_sigaction: usize, sa_mask: sigset_t, sa_flags: c_int, sa_restorer: Option<extern "C" fn()> }
    siginfo_t { si_signo: c_int, si_errno: c_int, si_code: c_int, words: [u64; 14] }
    stack_t { ss_sp: *mut c_void, ss_flags: c_int, ss_size: usize }
    stat { st_dev: u64, st_ino: u64, st_mode: mode_t, st_nlink: u64, st_uid: uid_t, st_gid: u32, st_rdev: u64, st_size: i64 }
    statfs { f_type: i64, f_blocks: u64 }
    flock { l_type: c_short, l_whence: c_short, l_start: i64, l_len: i64, l_pid: pid_t }
    timex { modes: u32, offset: i64, freq: i64, maxerror: i64, esterror: i64, status: c_int, constant: i64, precision: i64,
        tolerance: i64, time: timeval, tick: i64 }
    utsname { sysname: [c_char; 65], nodename: [c_char; 65], release: [c_char; 65], version: [c_char; 65], machine: [c_char; 65] }
    Dl_info { dli_fname: *const c_char, dli_fbase: *mut c_void, dli_sname: *const c_char, dli_saddr: *mut c_void }
    dl_phdr_info { dlpi_addr: u64, dlpi_name: *const c_char }
}
pub const AT_PHDR: u64 = 3;
pub const AT_PHENT: u64 = 4;
pub const AT_PHNUM: u64 = 5;
