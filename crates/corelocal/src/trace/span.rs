//! Spans: what a thread or a task does from one moment to another, in another span.
//!
//! Invariant: a [`Span`] stays on the thread that began it. A [`TaskSpan`] is current on a thread only while it is
//!    [entered](TaskSpan::enter) there.

use core::future::Future;
use core::marker::PhantomData;
use core::pin::Pin;
use core::task::{Context, Poll};

use super::context::{self, Entry};
use super::encode::{Encoder, Fields};
use super::format::{CURRENT, SPAN_END};
use super::recorder::record_as;
use super::site::{Site, Wanted};
use super::span_id::SpanId;

/// Returns the span that the calling thread is in. Async-signal-safe.
///
/// Another thread's span has it as its parent by `span!(parent: id; …)`. Always none on processors other than x86-64 and
/// aarch64.
#[inline]
#[must_use]
pub fn current() -> SpanId {
    context::span()
}

/// A span that was begun.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Begun {
    site: &'static Site,
    id: SpanId,
}

/// The place of a [`Begun`] span in the calling thread, until it is left.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Place {
    site: &'static Site,
    entry: Entry,
}

impl Begun {
    /// Draws an id, and begins a record with it and its parent's: by default the span that the thread is in. For code
    /// that encodes fields by itself, and records them then.
    pub fn new(site: &'static Site, parent: Option<SpanId>, encoder: &mut Encoder) -> Begun {
        let id = SpanId::draw();
        let parent = parent.unwrap_or_else(current);
        encoder.put(id.as_raw().to_le_bytes());
        encoder.put(parent.as_raw().to_le_bytes());
        Begun { site, id }
    }

    /// Returns its id.
    pub fn id(&self) -> SpanId {
        self.id
    }

    /// Takes the calling thread into the span, until the place is left.
    pub fn enter(&self) -> Place {
        Place::new(self.site, self.id)
    }

    /// Records its end, and in which span the thread goes on.
    #[inline(always)]
    pub fn end(self, goes_on: SpanId) {
        // A span that was begun ends, although its site may be off by now.
        let Some(number) = self.site.any_number() else { return };
        record_as(self.site, number | SPAN_END, (&self.id.as_raw(), (&goes_on.as_raw(), ())));
    }
}

impl Place {
    /// Takes the calling thread into this span, or into none. The record is one of this site, which is registered.
    pub fn new(site: &'static Site, span: SpanId) -> Place {
        let entry = Entry::new(span);
        record_as(site, CURRENT, (&span.as_raw(), ()));
        Place { site, entry }
    }

    /// Takes the thread out again.
    pub fn leave(self) {
        let goes_on = self.entry.leave();
        record_as(self.site, CURRENT, (&goes_on.as_raw(), ()));
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
    open: Option<(Begun, Entry)>,
    of_this_thread: PhantomData<*mut ()>,
}

impl Span {
    /// Returns the span of a site that is off.
    #[doc(hidden)]
    #[inline(always)]
    pub const fn off() -> Span {
        Span { open: None, of_this_thread: PhantomData }
    }

    /// Begins a span of a registered site.
    #[doc(hidden)]
    #[inline(always)]
    pub fn begin<F: Fields>(
        site: &'static Site,
        wanted: Wanted,
        parent: Option<SpanId>,
        fields: F,
    ) -> Span {
        // It is off if it was registered now, and there is no recording.
        let Some(number) = wanted.number() else { return Span::off() };
        let id = SpanId::draw();
        let parent = parent.unwrap_or_else(current);
        // Before the record: a span of a signal handler that comes now ends in this one.
        let entry = Entry::new(id);
        record_as(site, number, (&id.as_raw(), (&parent.as_raw(), fields)));
        Span { open: Some((Begun { site, id }, entry)), of_this_thread: PhantomData }
    }

    /// Returns its id, for spans of other threads that have it as their parent. None if the site is off.
    #[must_use]
    pub fn id(&self) -> SpanId {
        self.open.map_or(SpanId::NONE, |(begun, _)| begun.id)
    }
}

impl Drop for Span {
    #[inline(always)]
    fn drop(&mut self) {
        if let Some((begun, entry)) = self.open {
            begun.end(entry.leave());
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
    /// Returns the span of a site that is off.
    #[doc(hidden)]
    #[inline(always)]
    pub const fn off() -> TaskSpan {
        TaskSpan { begun: None }
    }

    /// Begins a span of a registered site.
    #[doc(hidden)]
    #[inline(always)]
    pub fn begin<F: Fields>(
        site: &'static Site,
        wanted: Wanted,
        parent: Option<SpanId>,
        fields: F,
    ) -> TaskSpan {
        // It is off if it was registered now, and there is no recording.
        let Some(number) = wanted.number() else { return TaskSpan::off() };
        let id = SpanId::draw();
        let parent = parent.unwrap_or_else(current);
        record_as(site, number, (&id.as_raw(), (&parent.as_raw(), fields)));
        TaskSpan { begun: Some(Begun { site, id }) }
    }

    /// Returns its id, for spans that have it as their parent. None if the site is off.
    #[must_use]
    pub fn id(&self) -> SpanId {
        self.begun.map_or(SpanId::NONE, |begun| begun.id)
    }

    /// Makes it the current span of the calling thread, until the guard is dropped: events and spans of the thread are
    /// in it.
    #[inline]
    pub fn enter(&self) -> Entered<'_> {
        let place = self.begun.map(|begun| begun.enter());
        Entered { place, of_span: PhantomData, of_this_thread: PhantomData }
    }

    /// Returns a future that is in this span whenever it runs. The span ends when the future is dropped.
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
    place: Option<Place>,
    of_span: PhantomData<&'a TaskSpan>,
    of_this_thread: PhantomData<*mut ()>,
}

impl Drop for Entered<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(place) = self.place {
            place.leave();
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

/// Begins a span of the calling thread, if a recording was [started](fn@crate::trace::start) and the site is on. Returns a
/// [`Span`], which ends it when it is dropped.
///
/// Name and fields are those of [`event!`](crate::event). Its parent is the span that the thread is in, unless another
/// id is given.
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

/// The part that [`span!`] and [`task_span!`] share.
#[doc(hidden)]
#[macro_export]
macro_rules! __begin {
    ($kind:ident, $parent:expr; level: $level:ident; $name:path $(, $($fields:tt)*)?) => {
        $crate::trace::__begin!(
            $kind, $parent, [.with_level($crate::trace::Level::$level)]; $name $(, $($fields)*)?
        )
    };
    ($kind:ident, $parent:expr; $name:path $(, $($fields:tt)*)?) => {
        $crate::trace::__begin!($kind, $parent, []; $name $(, $($fields)*)?)
    };
    ($kind:ident, $parent:expr, [$($level:tt)*]; $name:path $(, $($fields:tt)*)?) => {{
        static SITE: $crate::trace::Site =
            $crate::trace::Site::new($crate::trace::format::Kind::$kind, stringify!($name)) $($level)*;
        if let Some(wanted) = SITE.wanted() {
            $crate::trace::__with_fields!(
                (SITE, wanted, fields, { $crate::trace::$kind::begin(&SITE, wanted, $parent, fields) })
                [] $($($fields)*)?,
            )
        } else {
            $crate::trace::$kind::off()
        }
    }};
}

#[doc(hidden)]
pub use __begin;
