//! How much a test does.

use std::env;

/// Returns `operations`, times `CORELOCAL_TEST_SCALE` where that is set: an emulated machine is slow. One at least.
#[allow(dead_code, reason = "not every test binary uses it")]
pub fn scaled(operations: u64) -> u64 {
    let Some(scale) = env::var_os("CORELOCAL_TEST_SCALE") else { return operations };
    let scale: Option<f64> = scale.to_str().and_then(|scale| scale.parse().ok());
    match scale {
        Some(scale) if scale > 0.0 && scale <= 1.0 => ((operations as f64 * scale) as u64).max(1),
        _ => panic!("CORELOCAL_TEST_SCALE must be a number above 0 and up to 1, such as 0.01"),
    }
}
