//! Our own, as contestants.

use corelocal::percpu::{Pool, PushError, Stack};

use super::turns::{Item, Store, turns};
use crate::tables::checked::Made;

pub fn in_stack() -> Made {
    struct InStack(Stack<Item>);
    impl Store for InStack {
        fn take(&self) -> Option<Item> {
            self.0.pop()
        }

        fn give(&self, item: Item) -> Result<(), Item> {
            self.0.push(item).map_err(PushError::into_inner)
        }

        fn drain(&self, each: &mut dyn FnMut(Item)) {
            // Objects that cannot be drained are missing in the count.
            let _ = self.0.drain_all(each);
        }
    }
    turns(InStack(Stack::new()))
}

pub fn in_pool() -> Made {
    struct InPool(Pool<Item>);
    impl Store for InPool {
        fn take(&self) -> Option<Item> {
            self.0.try_get()
        }

        fn give(&self, item: Item) -> Result<(), Item> {
            self.0.try_put(item).map_err(PushError::into_inner)
        }

        /// A pool gives its objects out one by one, or drops all of them, which `gone` has it do.
        fn drain(&self, _: &mut dyn FnMut(Item)) {}

        fn gone(&self) -> u64 {
            // As above.
            self.0.clear().unwrap_or(0) as u64
        }
    }
    turns(InPool(Pool::default()))
}
