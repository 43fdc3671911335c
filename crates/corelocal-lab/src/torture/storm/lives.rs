//! Short-lived containers of items: items that are left in them are dropped, once.

use std::sync::Arc;

use corelocal::cid::SlotIndex;
use corelocal::percpu::{Queue, Ring, Stack};

/// The number of items in a life, more than a stack or a ring holds.
const ITEMS: usize = 20;

/// Makes a stack, a ring and a queue, fills them, takes some items, and drops them. Returns the violation, if any.
pub fn of_items<I: SlotIndex>() -> Option<String> {
    let item = Arc::new(());
    let in_use = |what: &str| {
        let others = Arc::strong_count(&item) - 1;
        (others != 0).then(|| format!("after the drop of {what} there are {others} of its items"))
    };
    {
        let stack: Stack<Arc<()>, 16, I> = Stack::new();
        (0..ITEMS).for_each(|_| drop(stack.push(item.clone())));
        drop(stack.pop());
    }
    let stack = in_use("a stack");
    {
        let ring: Ring<Arc<()>, 16, I> = Ring::new();
        (0..ITEMS).for_each(|_| drop(ring.push(item.clone())));
        drop(ring.pop());
    }
    let ring = in_use("a ring");
    {
        let queue: Queue<Arc<()>, I> = Queue::new();
        (0..ITEMS).for_each(|_| drop(queue.push(item.clone())));
        drop(queue.try_pop());
    }
    stack.or(ring).or_else(|| in_use("a queue"))
}
