//! The single-threaded contestant: a loop around one operation, timed as a whole.
//!
//! Invariant: the loop is inside the boxed closure, so that the operation is inlined into it; the
//! indirect call is paid once per round, not once per operation.

use std::hint::black_box;
use std::time::{Duration, Instant};

use super::engine::{Body, CPU_NS, Plan, Sample, calibrate, thread_cpu_time};

/// A loop that runs an operation as often as it is told.
pub struct Loop<'a> {
    run: Box<dyn FnMut(u64) + 'a>,
    iterations: u64,
}

/// Returns a contestant that repeats `op`.
///
/// The result goes through memory so that the compiler cannot drop the work. That costs one store,
/// which runs beside operations of a few cycles; an operation as short as one load hands its
/// result to [`consume`] instead and returns nothing.
pub fn loop_of<'a, T>(mut op: impl FnMut() -> T + 'a) -> Loop<'a> {
    Loop {
        run: Box::new(move |iterations| {
            for _ in 0..iterations {
                black_box(op());
            }
        }),
        iterations: 1,
    }
}

/// Returns a contestant whose loop is elsewhere: `run` repeats the operation so many times.
pub fn repeating<'a>(run: impl FnMut(u64) + 'a) -> Loop<'a> {
    Loop { run: Box::new(run), iterations: 1 }
}

/// Uses up a value in a register, at no cost.
#[inline(always)]
pub fn consume(value: u32) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: no instruction is executed, and nothing but the input register is named.
    unsafe {
        std::arch::asm!("/* {0:e} */", in(reg) value, options(nomem, nostack, preserves_flags));
    }
    #[cfg(not(target_arch = "x86_64"))]
    black_box(value);
}

/// Returns the same pointer, of which the compiler no longer knows where it comes from, nor what memory
/// holds; at no cost.
#[inline(always)]
pub fn opaque<T>(pointer: *mut T) -> *mut T {
    #[cfg(target_arch = "x86_64")]
    {
        let mut pointer = pointer;
        // SAFETY: no instruction is executed; the register named comes out as it goes in.
        unsafe {
            std::arch::asm!("/* {} */", inout(reg) pointer, options(nostack, preserves_flags));
        }
        pointer
    }
    #[cfg(not(target_arch = "x86_64"))]
    black_box(pointer)
}

impl Body for Loop<'_> {
    const SINGLE_THREAD: bool = true;

    fn rounds(plan: &Plan) -> usize {
        plan.rounds
    }

    fn prepare(&mut self, _x: Option<f64>, plan: &Plan) -> anyhow::Result<()> {
        self.iterations = calibrate(plan.round, |iterations| {
            let start = Instant::now();
            (self.run)(iterations);
            start.elapsed()
        });
        Ok(())
    }

    /// Returns the nanoseconds of wall time per operation. Cpu time shows beside it when it tells something
    /// else: the operation slept, or the rounds were interrupted.
    fn round(&mut self) -> anyhow::Result<Sample> {
        let cpu = thread_cpu_time();
        let start = Instant::now();
        (self.run)(self.iterations);
        let wall = start.elapsed();
        let cpu = thread_cpu_time().saturating_sub(cpu);
        let per_op = |time: Duration| time.as_nanos() as f64 / self.iterations as f64;
        Ok(Sample { value: per_op(wall), extra: vec![(CPU_NS, per_op(cpu))] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_runs_as_often_as_told() {
        let mut ran = 0_u64;
        let mut body = loop_of(|| ran += 1);
        body.iterations = 1000;
        let sample = body.round().unwrap();
        assert!(sample.value > 0.0 && sample.extra[0].0 == CPU_NS);
        drop(body);
        assert_eq!(ran, 1000);
    }

    #[test]
    fn preparing_fills_the_round() {
        let mut body = loop_of(|| std::thread::sleep(Duration::from_millis(2)));
        let plan = Plan { round: Duration::from_millis(20), ..Plan::QUICK };
        body.prepare(None, &plan).unwrap();
        // A sleep may take longer than asked for, never shorter.
        assert!((1..=10).contains(&body.iterations), "{} iterations", body.iterations);
    }
}
