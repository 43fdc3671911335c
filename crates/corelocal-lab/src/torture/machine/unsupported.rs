//! Processors without critical sections: no thread has a registration.

/// The signature of a registration that does not exist.
pub const SIGNATURE: u32 = 0;

/// Returns what is not used without a registration.
pub fn thread_pointer() -> usize {
    0
}
