//! What tests leave behind on purpose: locks whose owner is gone, which therefore may not be freed.

use std::sync::Mutex;

/// The value, for ever, where a search for leaks finds it.
pub fn forever<T>(value: T) -> &'static T {
    static KEPT: Mutex<Vec<usize>> = Mutex::new(Vec::new());
    let value: &'static T = Box::leak(Box::new(value));
    KEPT.lock().unwrap().push(std::ptr::from_ref(value) as usize);
    value
}
