//! Google's tcmalloc: nothing but the crate's own functions, which `rivals/build` gives the names in `names`.
//!
//! Invariant: not an instruction of ours is between a program and them.

use libtcmalloc_sys as _;
