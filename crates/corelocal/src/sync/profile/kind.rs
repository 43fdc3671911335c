//! Kinds of objects that threads wait for.
//!
//! Invariant: numbers are part of the page's layout (`page.rs`). They are not 0, below 64, and never change.

/// The kind of object that a thread waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// A [`Mutex`](crate::sync::Mutex).
    Mutex = 1,
    /// An [`RwLock`](crate::sync::RwLock), by readers.
    Read = 2,
    /// An [`RwLock`](crate::sync::RwLock), by writers and upgradable readers.
    Write = 3,
    /// A [`RobustMutex`](crate::sync::RobustMutex).
    RobustMutex = 4,
    /// A `PiMutex`, or a robust mutex with priority inheritance.
    PiMutex = 5,
    /// A [`Once`](crate::sync::Once) or a type based on it, while another thread ran it.
    Once = 6,
    /// A [`Semaphore`](crate::sync::Semaphore).
    Semaphore = 7,
    /// A [`Barrier`](crate::sync::Barrier).
    Barrier = 8,
    /// A [`Condvar`](crate::sync::Condvar) or a `PiCondvar`, until notified.
    Condvar = 9,
    /// An [`AutoEvent`](crate::sync::AutoEvent) or a [`ManualEvent`](crate::sync::ManualEvent).
    Event = 10,
    /// A [`Latch`](crate::sync::Latch) or a [`WaitGroup`](crate::sync::WaitGroup).
    Latch = 11,
    /// A [`Parker`](crate::sync::Parker).
    Parker = 12,
}

/// All kinds, by number.
const ALL: [Kind; 12] = [
    Kind::Mutex,
    Kind::Read,
    Kind::Write,
    Kind::RobustMutex,
    Kind::PiMutex,
    Kind::Once,
    Kind::Semaphore,
    Kind::Barrier,
    Kind::Condvar,
    Kind::Event,
    Kind::Latch,
    Kind::Parker,
];

impl Kind {
    /// Returns the name, of one or two words.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Mutex => "mutex",
            Kind::Read => "rwlock read",
            Kind::Write => "rwlock write",
            Kind::RobustMutex => "robust mutex",
            Kind::PiMutex => "PI mutex",
            Kind::Once => "once",
            Kind::Semaphore => "semaphore",
            Kind::Barrier => "barrier",
            Kind::Condvar => "condvar",
            Kind::Event => "event",
            Kind::Latch => "latch",
            Kind::Parker => "parker",
        }
    }

    /// Returns `true` if waiting for it means waiting for an owner, which is lost time. For other kinds threads wait
    /// until something happens, which may be their purpose.
    pub const fn is_lock(self) -> bool {
        (self as u8) < Kind::Semaphore as u8
    }

    pub(super) fn of_number(number: u64) -> Option<Kind> {
        ALL.get(usize::try_from(number).ok()?.checked_sub(1)?).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        for (at, kind) in ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, at + 1);
            assert_eq!(Kind::of_number(kind as u64), Some(kind));
            assert!((kind as u8) < 64 && !kind.name().is_empty());
        }
        assert_eq!((Kind::of_number(0), Kind::of_number(13)), (None, None));
        assert!(Kind::Once.is_lock() && !Kind::Semaphore.is_lock());
    }
}
