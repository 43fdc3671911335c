//! The public types of the library, and what safe code must not be able to do with them: a line each.
//!
//! A new type that has a parameter or a lifetime, or is no plain number, gets its line.

/// A type with a parameter, which stands as `{}` in its name; `'g` is its lifetime, if it has one.
pub struct Generic {
    pub name: &'static str,
    pub varies: Varies,
    pub send: Needs,
    pub sync: Needs,
}

/// What a type of `T` may become.
#[derive(Clone, Copy, PartialEq)]
pub enum Varies {
    /// One of what `T` is a subtype of: nothing can be put in through it.
    Covariantly,
    /// Nothing.
    Never,
    /// Nothing, and `T` is `'static`.
    NeverStatic,
}

/// What `T` has to be for the type to be `Send`, or `Sync`.
#[derive(Clone, Copy, Debug)]
pub enum Needs {
    Never,
    Send,
    Sync,
    Both,
}

use Needs::{Both, Never, Send, Sync};
use Varies::{Covariantly, NeverStatic};

const fn generic(name: &'static str, varies: Varies, send: Needs, sync: Needs) -> Generic {
    Generic { name, varies, send, sync }
}

pub const GENERICS: &[Generic] = &[
    generic("percpu::Queue<{}>", Varies::Never, Send, Send),
    generic("percpu::Stack<{}>", NeverStatic, Send, Send),
    generic("percpu::Batch<{}, 4>", Covariantly, Send, Sync),
    generic("percpu::Ring<{}, 8>", NeverStatic, Send, Send),
    generic("percpu::Pool<{}>", NeverStatic, Send, Send),
    generic("percpu::Pooled<'g, {}>", NeverStatic, Send, Both),
    generic("percpu::Lock<{}>", NeverStatic, Send, Send),
    generic("percpu::Guard<'g, {}>", NeverStatic, Never, Both),
    generic("percpu::Orphaned<percpu::Guard<'g, {}>>", NeverStatic, Never, Both),
    generic("percpu::PerCpu<{}>", NeverStatic, Both, Both),
    generic("percpu::Iter<'g, {}>", NeverStatic, Both, Both),
    generic("percpu::IterMut<'g, {}>", NeverStatic, Both, Both),
    generic("percpu::IntoIter<{}>", NeverStatic, Both, Both),
    generic("sync::Mutex<{}>", Varies::Never, Send, Send),
    generic("sync::MutexGuard<'g, {}>", Varies::Never, Never, Sync),
    generic("sync::MappedMutexGuard<'g, {}>", Varies::Never, Never, Sync),
    generic("sync::Orphaned<sync::MutexGuard<'g, {}>>", Varies::Never, Never, Sync),
    generic("sync::Orphaned<sync::RwLockWriteGuard<'g, {}>>", Varies::Never, Never, Sync),
    generic("sync::Orphaned<sync::RobustMutexGuard<'g, {}>>", Varies::Never, Never, Sync),
    generic("sync::RwLock<{}>", Varies::Never, Send, Both),
    generic("sync::RwLockReadGuard<'g, {}>", Covariantly, Never, Sync),
    generic("sync::RwLockWriteGuard<'g, {}>", Varies::Never, Never, Sync),
    generic("sync::MappedRwLockWriteGuard<'g, {}>", Varies::Never, Never, Sync),
    generic("sync::RwLockUpgradableGuard<'g, {}>", Varies::Never, Never, Sync),
    generic("sync::RobustMutex<{}>", Varies::Never, Send, Send),
    generic("sync::RobustMutexGuard<'g, {}>", Varies::Never, Never, Sync),
    generic("sync::Recovered<'g, {}>", Varies::Never, Never, Sync),
    generic("sync::PiMutex<{}>", Varies::Never, Send, Send),
    generic("sync::PiMutexGuard<'g, {}>", Varies::Never, Never, Sync),
    generic("sync::RobustPiMutex<{}>", Varies::Never, Send, Send),
    generic("sync::ReentrantMutex<{}>", Varies::Never, Send, Send),
    generic("sync::ReentrantMutexGuard<'g, {}>", Varies::Never, Never, Sync),
    generic("sync::Orphaned<sync::ReentrantMutexGuard<'g, {}>>", Varies::Never, Never, Sync),
    generic("sync::OnceLock<{}>", Varies::Never, Send, Both),
    generic("sync::LazyLock<{}>", Varies::Never, Send, Both),
    generic("sync::shared::SharedMutex<{}>", Varies::Never, Send, Send),
    generic("sync::shared::SharedRwLock<{}>", Varies::Never, Send, Both),
    generic("sync::shared::SharedRobustMutex<{}>", Varies::Never, Send, Send),
    generic("sync::shared::SharedPiMutex<{}>", Varies::Never, Send, Send),
    generic("sync::shared::SharedRobustPiMutex<{}>", Varies::Never, Send, Send),
    generic("sync::MutexGuard<'g, {}, sync::Shared>", Varies::Never, Never, Sync),
    generic("sync::MappedMutexGuard<'g, {}, sync::Shared>", Varies::Never, Never, Sync),
    generic("sync::RwLockReadGuard<'g, {}, sync::Shared>", Covariantly, Never, Sync),
    generic("sync::RwLockWriteGuard<'g, {}, sync::Shared>", Varies::Never, Never, Sync),
    generic("trace::Around<{}>", Covariantly, Send, Sync),
    generic("sync::RobustMutexGuard<'g, {}, sync::Shared>", Varies::Never, Never, Sync),
    generic("sync::PiMutexGuard<'g, {}, sync::Shared>", Varies::Never, Never, Sync),
];

/// Those of the feature `std`.
pub const GENERICS_OF_STD: &[Generic] = &[
    generic("sync::Poison<{}>", Covariantly, Send, Sync),
    generic("sync::PoisonGuard<'g, {}>", Varies::Never, Send, Sync),
    generic("sync::Poisoned<{}>", Covariantly, Send, Sync),
    generic("rcu::Rcu<Box<{}>>", Varies::Never, Both, Both),
    generic("rcu::Rcu<Option<std::sync::Arc<{}>>>", Varies::Never, Both, Both),
    generic("rcu::LazyRcu<Box<{}>>", Varies::Never, Both, Both),
    generic("rcu::RcuCopy<{}>", Varies::Never, Send, Send),
    generic("rcu::RcuHashMap<{}, u8>", Varies::Never, Both, Both),
    generic("rcu::RcuHashMap<u8, {}>", Varies::Never, Both, Both),
    generic("rcu::Occupied<'g, {}>", Covariantly, Both, Sync),
    generic("rcu::Operation<{}>", Covariantly, Send, Sync),
    generic("rcu::NotCurrent<'g, Box<{}>>", Varies::Never, Both, Sync),
    generic("trace::DumpIfSlow<{}>", Covariantly, Send, Sync),
    generic("sync::ArcMutexGuard<{}>", Varies::Never, Never, Both),
    generic("sync::ArcMutexGuard<{}, sync::Shared>", Varies::Never, Never, Both),
    generic("sync::Orphaned<sync::ArcMutexGuard<{}>>", Varies::Never, Never, Both),
    generic("sync::ArcRwLockReadGuard<{}>", Varies::Never, Never, Both),
    generic("sync::ArcRwLockWriteGuard<{}>", Varies::Never, Never, Both),
    generic("sync::ArcRwLockWriteGuard<{}, sync::Shared>", Varies::Never, Never, Both),
    generic("sync::Orphaned<sync::ArcRwLockWriteGuard<{}>>", Varies::Never, Never, Both),
    generic("sync::ArcRwLockUpgradableGuard<{}>", Varies::Never, Never, Both),
];

/// As [`PLAIN`], of the feature `std`.
pub const PLAIN_OF_STD: &[(&str, bool, bool)] = &[
    ("sync::ArcPermit", true, true),
    ("rcu::Cache<&'static rcu::Rcu<std::sync::Arc<u8>>, std::sync::Arc<u8>>", true, true),
    ("rcu::Iter<'g, u8, u8>", true, true),
    ("rcu::Compute<'g, u8, u8>", true, true),
    ("rcu::Compute<'g, std::cell::Cell<u8>, u8>", false, false),
    ("rcu::Keys<'g, u8, u8>", true, true),
    ("rcu::Values<'g, u8, u8>", true, true),
    ("rcu::Iter<'g, std::cell::Cell<u8>, u8>", false, false),
    ("rcu::Iter<'g, u8, std::cell::Cell<u8>>", false, false),
];

/// Types without a parameter, or with a certain one, and whether they are `Send` and `Sync`.
pub const PLAIN: &[(&str, bool, bool)] = &[
    ("percpu::Counter", true, true),
    ("percpu::CounterVec<4>", true, true),
    ("percpu::Gauge", true, true),
    ("percpu::Max", true, true),
    ("percpu::Min", true, true),
    ("percpu::Histogram", true, true),
    ("percpu::histogram::Snapshot", true, true),
    ("percpu::Word", true, true),
    ("percpu::Area<2>", true, true),
    ("percpu::area::Cell<'g, 2>", true, true),
    ("percpu::area::CellWord<'g, 2>", true, true),
    ("cid::Frozen", false, false),
    ("cid::Frozen<cid::NodeCid>", false, false),
    ("rseq::slice::Extension", false, false),
    ("sync::Condvar", true, true),
    ("sync::PiCondvar", true, true),
    ("sync::Semaphore", true, true),
    ("sync::Barrier", true, true),
    ("sync::Latch", true, true),
    ("sync::WaitGroup", true, true),
    ("sync::Task<'g>", true, true),
    ("sync::Permit<'g>", true, true),
    ("percpu::InFlight<'g>", true, true),
    ("sync::Parker", true, true),
    ("sync::AutoEvent", true, true),
    ("sync::ManualEvent", true, true),
    ("sync::Once", true, true),
    ("sync::shared::SharedBox<sync::shared::SharedMutex<u64>>", true, true),
    ("sync::shared::SharedBox<sync::shared::SharedPiMutex<u64>>", true, true),
    ("clock::Watcher", true, true),
    ("clock::Converter", true, true),
    ("clock::Instant", true, true),
    ("clock::SystemClocks", true, true),
    ("clock::MockClocks", true, true),
    ("clock::page::Subscriber<clock::page::vmclock::Page>", true, true),
    ("clock::page::Publisher<clock::page::vmclock::Page>", true, true),
    ("alloc::CoreLocal", true, true),
    ("rcu::Domain", true, true),
    ("rcu::Guard", false, false),
    ("rcu::QuiescentReader", false, false),
    ("rcu::Ticket", true, false),
    ("rcu::Stall", true, true),
    ("trace::Options<'g>", true, true),
    ("trace::Site", true, true),
    ("trace::Span", false, false),
    ("trace::TaskSpan", true, true),
    ("trace::Entered<'g>", false, false),
    ("trace::TraceParent", true, true),
];

/// As [`REFUSED`], of the feature `std`.
pub const REFUSED_OF_STD: &[(&str, &str)] = &[
    // A version outlives its guard, or the pointer to it.
    (
        "E0597",
        "let r = rcu::Rcu::new(Box::new(1)); let x; { let g = rcu::read(); x = r.load(&g); } drop(x);",
    ),
    (
        "E0597",
        "let g = rcu::read(); let x; { let r = rcu::Rcu::new(Box::new(1)); x = r.load(&g); } drop(x);",
    ),
    (
        "E0505",
        "let r = rcu::Rcu::new(Box::new(1)); let g = rcu::read(); let x = r.load(&g); drop(g); drop(x);",
    ),
    (
        "E0597",
        "let m = rcu::RcuHashMap::<u8, u8>::new(); let x; { let g = rcu::read(); x = m.get(&1, &g); } drop(x);",
    ),
    (
        "E0597",
        "let g = rcu::read(); let x; { let m = rcu::RcuHashMap::<u8, u8>::new(); x = m.get(&1, &g); } drop(x);",
    ),
    (
        "E0505",
        "let m = rcu::RcuHashMap::<u8, u8>::new(); let g = rcu::read(); let i = m.iter(&g); drop(g); drop(i);",
    ),
    // A version outlives its task, or a renewed guard, or is changed beside a reader.
    (
        "E0502",
        "let r = rcu::Rcu::new(Box::new(1)); let mut q = rcu::quiescent_reader(); let x = r.load(&q); q.quiescent(); drop(x);",
    ),
    (
        "E0502",
        "let r = rcu::Rcu::new(Box::new(1)); let mut q = rcu::quiescent_reader(); let x = r.load(&q); q.offline(|| drop(x));",
    ),
    (
        "E0502",
        "let r = rcu::Rcu::new(Box::new(1)); let mut g = rcu::read(); let x = r.load(&g); g.repin(); drop(x);",
    ),
    (
        "E0502",
        "let mut r = rcu::Rcu::new(Box::new(1)); let g = rcu::read(); let x = r.load(&g); *r.get_mut() = 2; drop(x);",
    ),
    // A version escapes from a change.
    (
        "E0521",
        "let r = rcu::Rcu::new(Box::new(1)); let mut x = None; r.rcu(|old| { x = Some(old); Box::new(2) }); drop(x);",
    ),
    // What is deferred borrows.
    ("E0597", "let x = 1; let y = &x; rcu::defer(move || drop(y));"),
];

/// Programs that do not compile, each with the error it has.
pub const REFUSED: &[(&str, &str)] = &[
    // A span ends while a thread is in it.
    ("E0597", "let e; { let s = task_span!(a::b); e = s.enter(); } drop(e);"),
    ("E0505", "let s = task_span!(a::b); let e = s.enter(); drop(s); drop(e);"),
    // A guard, an iterator or a reference outlives what it borrows.
    ("E0597", "let x; { let l = sync::Mutex::new(1); x = l.lock(); } drop(x);"),
    ("E0597", "let x; { let l = sync::RwLock::new(1); x = l.read(); } drop(x);"),
    ("E0597", "let x; { let l = sync::RwLock::new(1); x = l.write(); } drop(x);"),
    ("E0597", "let x; { let l = sync::PiMutex::new(1); x = l.lock(); } drop(x);"),
    ("E0597", "let x; { let l = unsafe { sync::RobustMutex::new(1) }; x = l.lock(); } drop(x);"),
    ("E0597", "let x; { let l = sync::OnceLock::new(); x = l.get_or_init(|| 1); } drop(x);"),
    ("E0597", "let x; { let l = sync::LazyLock::new(|| 1); x = &*l; } drop(x);"),
    (
        "E0597",
        "let x; { let l: percpu::Lock<u8> = percpu::Lock::new(|| 1); x = l.lock(); } drop(x);",
    ),
    (
        "E0597",
        "let x; { let p: percpu::PerCpu<u8> = percpu::PerCpu::new(|| 1); x = p.get(); } drop(x);",
    ),
    (
        "E0597",
        "let x; { let p: percpu::PerCpu<u8> = percpu::PerCpu::new(|| 1); x = p.iter(); } drop(x);",
    ),
    (
        "E0597",
        "let x; { let p: percpu::PerCpu<u8> = percpu::PerCpu::new(|| 1); x = p.shards(); } drop(x);",
    ),
    (
        "E0597",
        "let x; { let mut p: percpu::PerCpu<u8> = percpu::PerCpu::new(|| 1); x = p.iter_mut(); } drop(x);",
    ),
    (
        "E0597",
        "let x; { let p: percpu::Pool<u8> = percpu::Pool::new(|| 1); x = p.lend(); } drop(x);",
    ),
    (
        "E0597",
        "let x; { let q: percpu::Queue<u8> = percpu::Queue::new(); x = q.drain(); } drop(x);",
    ),
    (
        "E0597",
        "let x; { let a: percpu::Area<2> = percpu::Area::new(); x = a.take().unwrap(); } drop(x);",
    ),
    (
        "E0597",
        "let a: percpu::Area<2> = percpu::Area::new(); let x; { let c = a.take().unwrap(); x = c.iter(); } drop(x);",
    ),
    (
        "E0597",
        "let a: percpu::Area<2> = percpu::Area::new(); let x; { let c = a.take().unwrap(); x = c.at::<0>(); } x.add(1);",
    ),
    (
        "E0597",
        "let a: percpu::Area<2> = percpu::Area::new(); let x; { let c = a.take().unwrap(); x = c.at::<0>().iter(); } drop(x);",
    ),
    // What was pushed outlives what it refers to.
    (
        "E0597",
        "let q: percpu::Queue<&str> = percpu::Queue::new(); { let s = String::new(); q.push(s.as_str()).unwrap(); } q.try_pop();",
    ),
    (
        "E0597",
        "let m = sync::Mutex::new(\"\"); { let s = String::new(); *m.lock() = s.as_str(); } drop(m.lock());",
    ),
    (
        "E0597",
        "let o = sync::OnceLock::new(); { let s = String::new(); o.set(s.as_str()).unwrap(); } drop(o.get());",
    ),
    (
        "E0597",
        "let mut b = percpu::Batch::<&str, 4>::new(); { let s = String::new(); b.push(s.as_str()).unwrap(); } b.pop();",
    ),
    // Clocks outlive the mock that they are a reference to.
    (
        "E0597",
        "fn keep<C: clock::Clocks>(c: C) -> C { c } let x; { let m = clock::MockClocks::new(); x = keep(&m); } drop(x);",
    ),
    (
        "E0597",
        "let x: Box<dyn clock::Clocks>; { let m = clock::MockClocks::new(); x = Box::new(&m); } drop(x);",
    ),
    // Two exclusive references to the same.
    (
        "E0499",
        "let mut s: percpu::Stack<u8> = percpu::Stack::new(); let a = s.drain_mut(); let b = s.drain_mut(); drop((a, b));",
    ),
    (
        "E0502",
        "let mut s: percpu::Stack<u8> = percpu::Stack::new(); let d = s.drain_mut(); s.push(1).unwrap(); drop(d);",
    ),
    (
        "E0499",
        "let mut l: percpu::Lock<u8> = percpu::Lock::default(); let a = l.iter_mut(); let b = l.iter_mut(); drop((a, b));",
    ),
    (
        "E0499",
        "let mut p: percpu::PerCpu<u8> = percpu::PerCpu::default(); let a = p.iter_mut(); let b = p.iter_mut(); drop((a, b));",
    ),
    (
        "E0502",
        "let mut p: percpu::PerCpu<u8> = percpu::PerCpu::default(); let a = p.get(); for b in &mut p { *b = *a; }",
    ),
    // A reentrant mutex gives shared references, since there may be several guards.
    ("E0594", "let m = sync::ReentrantMutex::new(1); *m.lock() = 2;"),
    ("E0597", "let x; { let l = sync::ReentrantMutex::new(1); x = l.lock(); } drop(x);"),
    // A reference leaves its guard, or is kept over a time without the lock.
    (
        "E0521",
        "let m = sync::Mutex::new(1); let mut x = None; let g: sync::MappedMutexGuard<u8> = sync::MutexGuard::map(m.lock(), |s| { x = Some(s); loop {} }); drop((x, g));",
    ),
    (
        "E0521",
        "let m = sync::Mutex::new(1); let mut x = None; let g = sync::MutexGuard::filter_map(m.lock(), |s| { x = Some(s); None::<&mut u8> }); drop((x, g));",
    ),
    (
        "E0505",
        "let m = sync::Mutex::new([1]); let mut g = sync::MutexGuard::filter_map(m.lock(), |s| s.get_mut(0)).unwrap(); let x = &mut *g; drop(g); *x = 1;",
    ),
    (
        "E0597",
        "let x; { let m = sync::Mutex::new([1]); x = sync::MutexGuard::filter_map(m.lock(), |s| s.get_mut(0)); } drop(x);",
    ),
    (
        "E0597",
        "let x; { let l = sync::RwLock::new([1]); let g = sync::RwLockWriteGuard::map(l.write(), |s| s); x = sync::MappedRwLockWriteGuard::filter_map(g, |s| s.get_mut(0)); } drop(x);",
    ),
    (
        "E0499",
        "let m = sync::Mutex::new(1); let mut g = m.lock(); let x = &mut *g; sync::MutexGuard::unlocked(&mut g, || ()); *x = 1;",
    ),
    (
        "E0499",
        "let (m, c) = (sync::Mutex::new(1), sync::Condvar::new()); let mut g = m.lock(); let x = &mut *g; c.wait(&mut g); *x = 1;",
    ),
    (
        "E0502",
        "let (m, c) = (sync::Mutex::new(1), sync::Condvar::new()); let mut g = m.lock(); let x = &*g; c.wait(&mut g); drop(*x);",
    ),
    ("E0505", "let m = sync::Mutex::new(1); let g = m.lock(); let x = &*g; drop(g); drop(*x);"),
    ("E0505", "let m = sync::RwLock::new(1); let g = m.read(); let x = &*g; drop(g); drop(*x);"),
    (
        "E0505",
        "let p: percpu::Pool<u8> = percpu::Pool::new(|| 1); let g = p.lend(); let x = &*g; percpu::Pooled::detach(g); drop(*x);",
    ),
    ("E0505", "let m = sync::Mutex::new(1); let g = m.lock(); drop(m); drop(g);"),
    // An initialiser outlives what it refers to, or its value does.
    ("E0597", "let l; { let s = String::new(); l = sync::LazyLock::new(|| s.len()); } drop(*l);"),
    (
        "E0597",
        "let l; { let s = String::new(); let r = &s; l = sync::LazyLock::new(move || r); } drop(l.len());",
    ),
    (
        "E0506",
        "let mut m = sync::Mutex::new(1); let g = m.get_mut(); m = sync::Mutex::new(2); *g = 1;",
    ),
];

/// Programs that do not compile for what a type is not.
pub const REFUSED_TYPES: &[(&str, &str)] = &[
    // Closures that do not travel.
    (
        "E0277",
        "let r = Rc::new(1); fn sync<T: core::marker::Sync>(_: T) {} sync(sync::LazyLock::new(move || *r));",
    ),
    // What a panic may leave half done, seen from outside: no lock is left that would tell.
    ("E0277", "unwinds::<&sync::OnceLock<Cell<u8>>>();"),
    ("E0277", "unwinds::<sync::OnceLock<&mut u8>>();"),
    ("E0277", "unwinds::<&sync::ReentrantMutex<Cell<u8>>>();"),
    ("E0277", "unwinds::<sync::ReentrantMutexGuard<Cell<u8>>>();"),
    ("E0277", "unwinds::<&sync::LazyLock<Cell<u8>>>();"),
    ("E0277", "unwinds::<&percpu::Stack<Cell<u8>>>();"),
    ("E0277", "unwinds::<&percpu::Pool<Cell<u8>>>();"),
    ("E0277", "unwinds::<&percpu::Ring<Cell<u8>, 8>>();"),
    ("E0277", "unwinds::<&percpu::Lock<Cell<u8>>>();"),
    ("E0277", "unwinds::<percpu::Guard<Cell<u8>>>();"),
    ("E0277", "unwinds::<sync::LazyLock<u8, &mut u8>>();"),
    // Traits that are the library's to implement.
    ("E0277", "struct S; impl cid::SlotIndex for S {}"),
    ("E0277", "struct S; impl cid::Revocable for S {}"),
    ("E0277", "struct S; impl sync::Waitable for S {}"),
    ("E0277", "struct S; impl sync::CondvarGuard for S {}"),
    // And theirs to call.
    ("E0624", "fn assigned<I: cid::SlotIndex>() { I::assign(8192); }"),
    ("E0624", "fn given_back<W: sync::Waitable>(it: &W) { it.give_back(); }"),
    ("E0624", "fn adopted<G: sync::CondvarGuard>(it: &G) { it.adopt(&mut |_, _| 5); }"),
    ("E0133", "fn leaked<G: sync::OrphanedGuard>(it: &G) { it.keep(); }"),
    // What may not be shared between processes.
    ("E0277", "fn safe<T: sync::shared::SharedSafe>() {} safe::<sync::Mutex<u8>>();"),
    (
        "E0277",
        "fn safe<T: sync::shared::SharedSafe>() {} safe::<sync::shared::SharedMutex<Vec<u8>>>();",
    ),
    (
        "E0277",
        "fn safe<T: sync::shared::SharedSafe>() {} safe::<sync::shared::SharedMutex<&'static u8>>();",
    ),
    ("E0277", "fn safe<T: sync::shared::SharedSafe>() {} safe::<&'static u8>();"),
    ("E0277", "fn safe<T: sync::shared::SharedSafe>() {} safe::<sync::OnceLock<u8>>();"),
    ("E0277", "let x: sync::shared::SharedBox<Cell<u8>>;"),
    // A mock that was copied would go on by itself.
    ("E0277", "fn copied<T: Clone>() {} copied::<clock::MockClocks>();"),
    // What points to no clocks is none.
    ("E0277", "fn clocks<T: clock::Clocks>() {} clocks::<clock::Instant>();"),
    ("E0277", "fn clocks<T: clock::Clocks>() {} clocks::<&'static clock::Instant>();"),
    ("E0277", "send::<std::rc::Rc<clock::MockClocks>>();"),
    // A cpu's slot is not taken from it.
    ("E0277", "cid::freeze_of::<cid::CpuId>(0).unwrap();"),
    (
        "E0599",
        "let w: percpu::Word<cid::CpuId> = percpu::Word::new(); w.drain(|_, _| ()).unwrap();",
    ),
];

/// Programs that compile.
pub const ACCEPTED: &[&str] = &[
    "let m: &sync::Mutex<dyn Fn()> = &sync::Mutex::new(|| ()); (m.lock())();",
    "let r: &sync::RwLock<[u8]> = &sync::RwLock::new([1, 2]); r.read();",
    "let q: percpu::Queue<()> = percpu::Queue::new(); q.push(()).unwrap();",
    "let s = String::new(); let q: percpu::Queue<&str> = percpu::Queue::new(); q.push(s.as_str()).unwrap(); q.try_pop();",
    "let s = String::new(); let m = sync::Mutex::new(s.as_str()); *m.lock() = \"\";",
    // An initialiser that one thread runs.
    "let c = Cell::new(1); fn sync<T: core::marker::Sync>(_: T) {} sync(sync::LazyLock::new(move || c.into_inner()));",
    "let a: percpu::Area<2> = percpu::Area::new(); let c = a.take().unwrap(); c.at::<0>().add(1);",
    "static A: percpu::Area<2> = percpu::Area::new(); std::thread::spawn(|| A.take().unwrap());",
    "static M: clock::MockClocks = clock::MockClocks::new(); std::thread::spawn(|| clock::Clocks::now(&&M));",
    "fn clocks<T: clock::Clocks>() {} clocks::<std::sync::Arc<dyn clock::Clocks>>(); clocks::<&&clock::SystemClocks>();",
    "struct Mine; impl clock::Clocks for Mine { fn monotonic(&self) -> u64 { 0 } fn realtime(&self) -> u64 { 0 } \
     fn boottime(&self) -> u64 { 0 } fn tai(&self) -> u64 { 0 } fn epoch(&self) -> u64 { 0 } \
     fn now_bounded(&self) -> Result<clock::Bounded, clock::Unbounded> { Err(clock::Unbounded::Unsynchronised) } } \
     clock::Clocks::now(&Box::new(Mine));",
];
