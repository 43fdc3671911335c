//! rpmalloc: nothing but the crate's own functions, which `rivals/build` gives the names in `names`.
//!
//! Invariant: not an instruction of ours is between a program and them.

use rpmalloc_sys as _;
