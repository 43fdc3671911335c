//! The models beside the running kernel.

mod futexes;
mod registrations;
