//! snmalloc: nothing but the crate's own functions, which `rivals/build` gives the names in `names`.
//!
//! Invariant: not an instruction of ours is between a program and them.

use snmalloc_sys as _;
