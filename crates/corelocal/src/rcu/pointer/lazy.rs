//! A pointer whose first version is made at its first use.

use core::fmt;
use core::ops::Deref;

use super::kinds::Pointer;
use super::rcu::Rcu;
use crate::rcu::domain::Domain;
use crate::rcu::global::GLOBAL;
use crate::sync::OnceLock;

/// An [`Rcu`] for statics, whose first version is made at its first use.
///
/// It stands for the `Rcu` wherever one is asked for, and has its methods. Each use is one load and a comparison more.
/// What happens when several threads use it first, or when a fork leaves the thread behind that makes the version, is
/// said at [`OnceLock`].
///
/// ```
/// use std::sync::Arc;
/// use corelocal::rcu::{self, LazyRcu};
///
/// static ROUTES: LazyRcu<Arc<Vec<u32>>> = LazyRcu::new(|| Arc::new(vec![1, 2]));
///
/// assert_eq!(ROUTES.load(&rcu::read()).len(), 2);
/// ROUTES.store(Arc::new(vec![3]));
/// assert_eq!(ROUTES.load_full()[0], 3);
/// ```
///
/// # Panics
/// A panic of `make` reaches the caller, and the next use calls it again.
pub struct LazyRcu<P: Pointer> {
    cell: OnceLock<Rcu<P>>,
    make: fn() -> P,
    domain: &'static Domain,
}

impl<P: Pointer> LazyRcu<P> {
    /// Creates a pointer whose first version `make` will make, for guards of the global domain.
    pub const fn new(make: fn() -> P) -> LazyRcu<P> {
        LazyRcu::new_in(make, &GLOBAL)
    }

    /// Creates a pointer whose first version `make` will make, for guards of this domain.
    pub const fn new_in(make: fn() -> P, domain: &'static Domain) -> LazyRcu<P> {
        LazyRcu { cell: OnceLock::new(), make, domain }
    }
}

impl<P: Pointer> Deref for LazyRcu<P> {
    type Target = Rcu<P>;

    #[inline]
    fn deref(&self) -> &Rcu<P> {
        self.cell.get_or_init(|| Rcu::new_in((self.make)(), self.domain))
    }
}

impl<P: Pointer> fmt::Debug for LazyRcu<P>
where
    Rcu<P>: fmt::Debug,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.cell.get() {
            Some(rcu) => rcu.fmt(f),
            None => f.write_str("LazyRcu(<not made yet>)"),
        }
    }
}
