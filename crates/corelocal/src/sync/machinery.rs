//! What several locks share: the wait, its end by a time limit, fairness, and permits.

pub(in crate::sync) mod bounded_wait;
pub(in crate::sync) mod fairness;
pub(in crate::sync) mod futex;
pub(in crate::sync) mod guard_traits;
pub(in crate::sync) mod permits;
pub(in crate::sync) mod scope;
pub(in crate::sync) mod spin;
pub(in crate::sync) mod timeout;
