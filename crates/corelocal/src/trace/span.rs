//! Spans: what a thread or a task does from one moment to another, in another span.
//!
//! # Invariants
//! 1. Two spans of a process that are open at once have different ids: a thread's number, and how many spans that thread
//!    has begun before. A thread begins 2^32 spans before an id comes again.
//! 2. A thread's current span is in its static TLS. Signal handlers leave it as they found it.
//! 3. A [`Span`] stays on the thread that began it. A [`TaskSpan`] is current on a thread only while it is
//!    [entered](TaskSpan::enter) there.

use core::future::Future;
use core::marker::PhantomData;
use core::pin::Pin;
use core::sync::atomic::{AtomicU64, Ordering};
use core::task::{Context, Poll};

use super::encode::Encoder;
use super::format::{CURRENT, SPAN_END};
use super::recorder::record_as;
use super::site::Site;
use crate::sys::arch::{self, own_words};
use crate::sys::thread_serial;

/// The id of a span; or of none, which is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SpanId(u64);

impl SpanId {
    /// No span.
    pub const NONE: SpanId = SpanId(0);

    /// As a number, to be passed on.
    #[must_use]
    pub const fn as_raw(self) -> u64 {
        self.0
    }

    /// From such a number.
    #[must_use]
    pub const fn from_raw(raw: u64) -> SpanId {
        SpanId(raw)
    }

    /// A new one.
    #[inline(always)]
    fn draw() -> SpanId {
        // Threads without words of their own share the numbers of thread 0.
        static OTHERS: AtomicU64 = AtomicU64::new(1);
        match thread_serial::current() {
            Some(thread) => {
                let nth = arch::take_number_of_own_word::<{ own_words::SPANS_BEGUN }>();
                SpanId(thread << 32 | u64::from(nth))
            }
            None => SpanId(OTHERS.fetch_add(1, Ordering::Relaxed)),
        }
    }
}

/// The word with the calling thread's span. `None` where threads have no words of their own.
#[inline(always)]
fn word() -> Option<&'static AtomicU64> {
    arch::own_word_pair(own_words::SPAN)
}

/// The span that the calling thread is in. Async-signal-safe.
///
/// Another thread's span has it as its parent by `span!(parent: id; …)`. Always none on processors other than x86-64.
#[inline]
#[must_use]
pub fn current() -> SpanId {
    SpanId(word().map_or(0, |word| word.load(Ordering::Relaxed)))
}

/// Makes the span current. Returns the one before.
#[inline(always)]
fn set_current(span: SpanId) -> SpanId {
    let Some(word) = word() else { return SpanId::NONE };
    let before = word.load(Ordering::Relaxed);
    word.store(span.0, Ordering::Relaxed);
    SpanId(before)
}

/// A span that was begun, for the macros.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Begun {
    site: &'static Site,
    id: SpanId,
}

impl Begun {
    /// Draws an id, and begins a record with it and its parent's: by default the span that the thread is in.
    #[inline(always)]
    pub fn new(site: &'static Site, parent: Option<SpanId>, encoder: &mut Encoder) -> Begun {
        let id = SpanId::draw();
        let parent = parent.unwrap_or_else(current);
        encoder.put(id.0.to_le_bytes());
        encoder.put(parent.0.to_le_bytes());
        Begun { site, id }
    }

    /// Its id.
    pub fn id(&self) -> SpanId {
        self.id
    }

    /// Makes it the current span of the calling thread. Returns the one before.
    pub fn enter(&self) -> SpanId {
        let before = set_current(self.id);
        self.note_current(self.id);
        before
    }

    /// Makes that one current again.
    pub fn leave(&self, before: SpanId) {
        set_current(before);
        self.note_current(before);
    }

    /// Records its end, and in which span the thread goes on.
    #[inline(always)]
    pub fn end(self, goes_on: SpanId) {
        // A span that was begun ends, although its site may be off by now.
        let Some(number) = self.site.any_number() else { return };
        let mut encoder = Encoder::new();
        encoder.put(self.id.0.to_le_bytes());
        encoder.put(goes_on.0.to_le_bytes());
        record_as(self.site, number | SPAN_END, &mut encoder);
    }

    /// Records that the thread goes on in this span.
    #[inline(always)]
    fn note_current(self, span: SpanId) {
        let mut encoder = Encoder::new();
        encoder.put(span.0.to_le_bytes());
        record_as(self.site, CURRENT, &mut encoder);
    }
}

/// A span of one thread, which ends when this is dropped: see [`span!`](crate::span). Neither `Send` nor `Sync`.
///
/// ```compile_fail
/// let span = corelocal::span!(server::request);
/// std::thread::spawn(move || drop(span));
/// ```
#[derive(Debug)]
#[must_use = "the span ends when this is dropped: bind it to a name, as in `let _span = …`"]
pub struct Span {
    begun: Option<Begun>,
    before: SpanId,
    of_this_thread: PhantomData<*mut ()>,
}

impl Span {
    /// Of a site that is off.
    #[doc(hidden)]
    #[inline(always)]
    pub const fn off() -> Span {
        Span { begun: None, before: SpanId::NONE, of_this_thread: PhantomData }
    }

    /// Makes a span that was begun current.
    #[doc(hidden)]
    #[inline(always)]
    pub fn new(begun: Begun) -> Span {
        if !begun.site.is_on() {
            // It was registered now, and there is no recording.
            return Span::off();
        }
        let before = set_current(begun.id);
        Span { begun: Some(begun), before, of_this_thread: PhantomData }
    }

    /// Its id, for spans of other threads that have it as their parent. None if the site is off.
    #[must_use]
    pub fn id(&self) -> SpanId {
        self.begun.map_or(SpanId::NONE, |begun| begun.id)
    }
}

impl Drop for Span {
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(begun) = self.begun {
            set_current(self.before);
            begun.end(self.before);
        }
    }
}

/// A span of a task, which may go from thread to thread, and ends when this is dropped: see
/// [`task_span!`](crate::task_span).
#[derive(Debug)]
#[must_use = "the span ends when this is dropped"]
pub struct TaskSpan {
    begun: Option<Begun>,
}

impl TaskSpan {
    /// Of a site that is off.
    #[doc(hidden)]
    #[inline(always)]
    pub const fn off() -> TaskSpan {
        TaskSpan { begun: None }
    }

    /// A span that was begun.
    #[doc(hidden)]
    #[inline(always)]
    pub fn new(begun: Begun) -> TaskSpan {
        // Off, if it was registered now, and there is no recording.
        TaskSpan { begun: begun.site.is_on().then_some(begun) }
    }

    /// Its id, for spans that have it as their parent. None if the site is off.
    #[must_use]
    pub fn id(&self) -> SpanId {
        self.begun.map_or(SpanId::NONE, |begun| begun.id)
    }

    /// Makes it the current span of the calling thread, until the guard is dropped: events and spans of the thread are in
    /// it.
    #[inline]
    pub fn enter(&self) -> Entered<'_> {
        let before = self.begun.map_or(SpanId::NONE, |begun| begun.enter());
        Entered { span: self, before, of_this_thread: PhantomData }
    }

    /// A future that is in this span whenever it runs. The span ends when the future is dropped.
    ///
    /// ```
    /// # async fn query() -> u32 { 1 }
    /// let future = corelocal::task_span!(db::query, table = "users").around(query());
    /// # drop(future);
    /// ```
    pub fn around<F: Future>(self, future: F) -> Around<F> {
        Around { future, span: self }
    }
}

impl Drop for TaskSpan {
    #[inline]
    fn drop(&mut self) {
        if let Some(begun) = self.begun {
            begun.end(current());
        }
    }
}

/// A [`TaskSpan`] is current on this thread. Neither `Send` nor `Sync`.
///
/// ```compile_fail
/// fn is_send<T: Send>(_: T) {}
/// is_send(corelocal::task_span!(db::query).enter());
/// ```
#[derive(Debug)]
#[must_use = "the thread leaves the span when this is dropped"]
pub struct Entered<'a> {
    span: &'a TaskSpan,
    before: SpanId,
    of_this_thread: PhantomData<*mut ()>,
}

impl Drop for Entered<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(begun) = self.span.begun {
            begun.leave(self.before);
        }
    }
}

/// A future in a span: see [`TaskSpan::around`].
#[derive(Debug)]
pub struct Around<F> {
    // First: the future is dropped before its span ends.
    future: F,
    span: TaskSpan,
}

impl<F: Future> Future for Around<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        // SAFETY: `future` is pinned as this is, and is moved nowhere; `span` is not pinned.
        let this = unsafe { self.get_unchecked_mut() };
        let _entered = this.span.enter();
        // SAFETY: as this is pinned, so is its field.
        unsafe { Pin::new_unchecked(&mut this.future) }.poll(cx)
    }
}

/// Begins a span of the calling thread, if a recording was [started](crate::trace::start) and the site is on. Returns a
/// [`Span`], which ends it when it is dropped.
///
/// Name and fields are those of [`event!`](crate::event). Its parent is the span that the thread is in, unless another id
/// is given.
///
/// ```
/// let _span = corelocal::span!(server::request, bytes = 512_u32);
/// let parent = corelocal::trace::current_span();
/// std::thread::spawn(move || {
///     let _span = corelocal::span!(parent: parent; server::worker, number = 1_u32);
/// });
/// ```
#[macro_export]
macro_rules! span {
    (parent: $parent:expr; $($span:tt)+) => {
        $crate::trace::__begin!(Span, Some($parent); $($span)+)
    };
    ($($span:tt)+) => {
        $crate::trace::__begin!(Span, None; $($span)+)
    };
}

/// Begins a span of a task, as [`span!`] does for a thread: returns a [`TaskSpan`], which is `Send`.
///
/// ```
/// let span = corelocal::task_span!(db::query, table = "users");
/// std::thread::spawn(move || {
///     let _entered = span.enter();
///     corelocal::event!(db::row, number = 1_u32); // in the span
/// });
/// ```
#[macro_export]
macro_rules! task_span {
    (parent: $parent:expr; $($span:tt)+) => {
        $crate::trace::__begin!(TaskSpan, Some($parent); $($span)+)
    };
    ($($span:tt)+) => {
        $crate::trace::__begin!(TaskSpan, None; $($span)+)
    };
}

/// For [`span!`] and [`task_span!`].
#[doc(hidden)]
#[macro_export]
macro_rules! __begin {
    ($kind:ident, $parent:expr; $name:path $(, $field:ident = $value:expr)* $(,)?) => {{
        static SITE: $crate::trace::Site =
            $crate::trace::Site::new($crate::trace::format::Kind::$kind, stringify!($name));
        if SITE.is_wanted() {
            let mut encoder = $crate::trace::Encoder::new();
            let begun = $crate::trace::Begun::new(&SITE, $parent, &mut encoder);
            $crate::trace::__record!(SITE, encoder $(, $field = $value)*);
            $crate::trace::$kind::new(begun)
        } else {
            $crate::trace::$kind::off()
        }
    }};
}

#[doc(hidden)]
pub use __begin;
