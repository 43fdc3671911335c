//! What the tables of read-write locks ask of one.

use corelocal::sync::{RwLock, Scope};

use crate::tables::locks::foreign::{Foreign, Library};

/// Two numbers that are equal whenever no writer is active.
#[derive(Default)]
pub struct Pair(u64, u64);

impl Pair {
    /// Adds one to both.
    #[inline(always)]
    pub fn add(&mut self) {
        self.0 += 1;
        self.1 += 1;
    }

    /// Returns the first one.
    pub fn first(&self) -> u64 {
        self.0
    }

    /// Returns `true` if a writer is active.
    #[inline(always)]
    pub fn is_torn(&self) -> bool {
        self.0 != self.1
    }

    /// Returns one in the middle of a write.
    #[cfg(test)]
    pub fn torn() -> Self {
        Pair(0, 1)
    }
}

/// Two numbers behind a lock for readers and writers.
pub trait ReadWrite: Sized + Send + Sync + 'static {
    /// # Errors
    /// There is no such lock here.
    fn new() -> anyhow::Result<Self>;

    /// Calls `f` on the numbers, locked for reading.
    fn read<R>(&self, f: impl FnOnce(&Pair) -> R) -> R;

    /// Calls `f` on the numbers, locked for writing.
    fn write(&self, f: impl FnOnce(&mut Pair));
}

impl ReadWrite for std::sync::RwLock<Pair> {
    fn new() -> anyhow::Result<Self> {
        Ok(Self::default())
    }

    #[inline]
    fn read<R>(&self, f: impl FnOnce(&Pair) -> R) -> R {
        f(&self.read().unwrap_or_else(std::sync::PoisonError::into_inner))
    }

    #[inline]
    fn write(&self, f: impl FnOnce(&mut Pair)) {
        f(&mut self.write().unwrap_or_else(std::sync::PoisonError::into_inner));
    }
}

macro_rules! read_write {
    ($Lock:ty $(, $param:ident: $Bound:path)?) => {
        impl$(<$param: $Bound>)? ReadWrite for $Lock {
            fn new() -> anyhow::Result<Self> {
                Ok(Self::default())
            }

            #[inline]
            fn read<R>(&self, f: impl FnOnce(&Pair) -> R) -> R {
                f(&self.read())
            }

            #[inline]
            fn write(&self, f: impl FnOnce(&mut Pair)) {
                f(&mut self.write());
            }
        }
    };
}

read_write!(parking_lot::RwLock<Pair>);
read_write!(usync::RwLock<Pair>);
read_write!(RwLock<Pair, S>, S: Scope);

impl<L: Library> ReadWrite for Foreign<Pair, L> {
    fn new() -> anyhow::Result<Self> {
        Foreign::new(Pair::default())
    }

    #[inline]
    fn read<R>(&self, f: impl FnOnce(&Pair) -> R) -> R {
        f(&self.read())
    }

    #[inline]
    fn write(&self, f: impl FnOnce(&mut Pair)) {
        f(&mut self.write());
    }
}
