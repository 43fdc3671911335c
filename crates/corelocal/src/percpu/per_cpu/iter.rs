//! Iterators over the values of a [`PerCpu`]: by shared reference, by mutable reference, and by value.
//!
//! Invariant: a walk reaches each shard once, so each value is returned once.

use core::fmt;

use super::PerCpu;
use crate::cid::{Cid, SlotIndex};
use crate::percpu::once_slot::OnceSlot;
use crate::percpu::remote::Walk;
use crate::percpu::shard::Shard;

/// All values of a [`PerCpu`]; see [`PerCpu::iter`].
pub struct Iter<'a, T: Send + Sync + 'static, I: SlotIndex = Cid> {
    of: &'a PerCpu<T, I>,
    walk: Walk,
}

impl<'a, T: Send + Sync + 'static, I: SlotIndex> Iter<'a, T, I> {
    pub(super) fn new(of: &'a PerCpu<T, I>) -> Self {
        Iter { of, walk: Walk::new() }
    }

    fn next_slot(&mut self) -> Option<(Shard, &'a OnceSlot<T>)> {
        loop {
            let (shard, slot) = self.walk.next(&self.of.slots, &self.of.inside)?;
            if slot.is_full() {
                return Some((shard, slot));
            }
        }
    }

    pub(super) fn next_part(&mut self) -> Option<(Shard, &'a T)> {
        let (shard, slot) = self.next_slot()?;
        slot.get().map(|value| (shard, value))
    }
}

impl<'a, T: Send + Sync + 'static, I: SlotIndex> Iterator for Iter<'a, T, I> {
    type Item = &'a T;

    fn next(&mut self) -> Option<&'a T> {
        self.next_part().map(|(_, value)| value)
    }
}

impl<T: Send + Sync + 'static, I: SlotIndex> Clone for Iter<'_, T, I> {
    fn clone(&self) -> Self {
        Iter { of: self.of, walk: self.walk.clone() }
    }
}

/// All values of a [`PerCpu`], mutably; see [`PerCpu::iter_mut`].
pub struct IterMut<'a, T: Send + Sync + 'static, I: SlotIndex = Cid> {
    /// The object is borrowed mutably.
    iter: Iter<'a, T, I>,
}

impl<'a, T: Send + Sync + 'static, I: SlotIndex> IterMut<'a, T, I> {
    pub(super) fn new(of: &'a mut PerCpu<T, I>) -> Self {
        IterMut { iter: Iter::new(of) }
    }
}

impl<'a, T: Send + Sync + 'static, I: SlotIndex> Iterator for IterMut<'a, T, I> {
    type Item = &'a mut T;

    fn next(&mut self) -> Option<&'a mut T> {
        let (_, slot) = self.iter.next_slot()?;
        // SAFETY: the value exists. The object is borrowed mutably, and a walk reaches each shard once.
        Some(unsafe { &mut *slot.as_ptr() })
    }
}

/// The values of a [`PerCpu`] that was consumed; see [`PerCpu`]'s `into_iter`. Values that are not taken are dropped.
pub struct IntoIter<T: Send + Sync + 'static, I: SlotIndex = Cid> {
    of: PerCpu<T, I>,
    walk: Walk,
}

impl<T: Send + Sync + 'static, I: SlotIndex> Iterator for IntoIter<T, I> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.of.take_next(&mut self.walk)
    }
}

macro_rules! debug {
    ($($name:ident $(<$lifetime:lifetime>)?),+) => {
        $(
            impl<T: Send + Sync + 'static, I: SlotIndex> fmt::Debug for $name<$($lifetime,)? T, I> {
                fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    f.debug_struct(stringify!($name)).finish_non_exhaustive()
                }
            }
        )+
    };
}

debug!(Iter<'_>, IterMut<'_>, IntoIter);

/// Iterates over the values by value.
///
/// ```
/// use corelocal::percpu::PerCpu;
///
/// let names: PerCpu<String> = PerCpu::new(|| String::from("here"));
/// names.get();
/// assert_eq!(names.into_iter().collect::<Vec<_>>(), ["here"]);
/// ```
impl<T: Send + Sync + 'static, I: SlotIndex> IntoIterator for PerCpu<T, I> {
    type Item = T;
    type IntoIter = IntoIter<T, I>;

    fn into_iter(self) -> IntoIter<T, I> {
        IntoIter { of: self, walk: Walk::new() }
    }
}

impl<'a, T: Send + Sync + 'static, I: SlotIndex> IntoIterator for &'a PerCpu<T, I> {
    type Item = &'a T;
    type IntoIter = Iter<'a, T, I>;

    fn into_iter(self) -> Iter<'a, T, I> {
        self.iter()
    }
}

impl<'a, T: Send + Sync + 'static, I: SlotIndex> IntoIterator for &'a mut PerCpu<T, I> {
    type Item = &'a mut T;
    type IntoIter = IterMut<'a, T, I>;

    fn into_iter(self) -> IterMut<'a, T, I> {
        self.iter_mut()
    }
}
