//! A shared object with critical sections, as a plugin of some program would be.

use corelocal::percpu::Counter;

static EVENTS: Counter = Counter::new();

/// Counts an event; returns how many there were.
#[unsafe(no_mangle)]
pub extern "C" fn plugin_event() -> i64 {
    EVENTS.add(1);
    corelocal::event!(plugin::called);
    EVENTS.get()
}
