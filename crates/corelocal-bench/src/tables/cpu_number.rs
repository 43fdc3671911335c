//! What it costs a thread to learn which cpu it runs on, the first step to data that is local to a
//! core: from the area that the kernel keeps up to date, and by all the ways there were before.
//!
//! Invariants:
//! - What a way yields goes to [`consume`], not to memory: the shortest ones are one load, and a
//!   store beside it would be half the figure.
//! - The raw row reads the area at an offset fetched before the loop: the least that anything
//!   built on rseq can cost.

use anyhow::Context as _;
use corelocal::rseq;
use corelocal::sys::{Registration, vdso};
use corelocal_support::measure::loops::{Loop, consume, loop_of};
use corelocal_support::schema::{self, Row};

use crate::contest::{Contest, Context, Table};

/// The table.
pub struct CpuNumber;

/// The document that introduced rseq.
pub(super) const RSEQ_2018: (&str, &str, &str) = (
    "Mathieu Desnoyers, rseq: Introduce restartable sequences system call, 2018",
    "https://git.kernel.org/torvalds/c/d7822b1e24f2df5df98c76f0e94a5416349ff759",
    "Intel Xeon E5-2630 v3 at 2.40 GHz and ARMv7 rev 4 \"Cubietruck\", one thread",
);
pub(super) const XEON: &str = "Xeon E5-2630 v3";
pub(super) const CUBIETRUCK: &str = "ARMv7 Cubietruck";

const EMPTY: &str = "empty";

impl Table for CpuNumber {
    fn id(&self) -> &'static str {
        "cpu_number"
    }

    fn title(&self) -> &'static str {
        "Reading the cpu number"
    }

    fn run(&self, cx: &mut Context<'_>) -> anyhow::Result<schema::Table> {
        let (name, url, hardware) = RSEQ_2018;
        let contest =
            Contest::new(self, ABOUT).source(name, url, hardware).baseline(EMPTY).cycles().row(
                Row::new(EMPTY, "empty loop")
                    .published(0.8, "ns", XEON)
                    .published(8.4, "ns", CUBIETRUCK),
                loop_of(|| consume(0)),
            );
        let raw = Row::new("rseq", "rseq cpu_id, bare load")
            .published(0.8, "ns", XEON)
            .published(16.7, "ns", CUBIETRUCK);
        let contest = or_why(contest, raw, raw_load())
            .row(
                Row::ours("cpu-id", "corelocal cpu_id()")
                    .published(0.8, "ns", XEON)
                    .published(19.8, "ns", CUBIETRUCK),
                loop_of(|| consume(rseq::cpu_id())),
            )
            .row(Row::ours("cid", "corelocal cid()"), loop_of(|| consume(rseq::cid())))
            .row(Row::ours("node-id", "corelocal node_id()"), loop_of(|| consume(rseq::node_id())));
        let rdpid = (Row::new("rdpid", "rdpid"), x86::rdpid());
        let lsl = (Row::new("lsl", "lsl").published(13.0, "ns", XEON), x86::lsl());
        let gs =
            (Row::new("gs", "gs segment, pinned thread").published(0.8, "ns", XEON), x86::gs());
        let contest = [rdpid, lsl, gs]
            .into_iter()
            .fold(contest, |contest, (row, body)| or_why(contest, row, body))
            .row(
                Row::new("glibc", "libc sched_getcpu()")
                    .published(16.6, "ns", "Xeon E5-2630 v3, glibc 2.19")
                    .published(301.8, "ns", "ARMv7 Cubietruck, glibc 2.19"),
                // SAFETY: no preconditions.
                loop_of(|| consume(unsafe { libc::sched_getcpu() } as u32)),
            );
        let vdso = vdso_getcpu().map(|getcpu| loop_of(move || consume(getcpu())));
        Ok(or_why(contest, Row::new("vdso", "vDSO getcpu"), vdso)
            .row(
                Row::new("syscall", "system call getcpu")
                    .published(53.9, "ns", XEON)
                    .published(234.9, "ns", CUBIETRUCK),
                loop_of(|| consume(system_call())),
            )
            .measure(cx))
    }
}

const ABOUT: &str = "The cost of reading a thread's cpu, concurrency id or node, including the loop. \
     corelocal's three functions register a thread that libc did not, at its first call. No kernel lets gs point to \
     data of the cpu: this thread stays on one, and has set its gs base itself. The ratio is to the empty loop: 1 \
     means no cost. The published libc figure is the vDSO's: since 2.35 glibc reads the rseq area \
     itself.";

/// Returns the contestant, or a row that says why there is none.
fn or_why(
    contest: Contest<Loop<'static>>,
    row: Row,
    body: anyhow::Result<Loop<'static>>,
) -> Contest<Loop<'static>> {
    match body {
        Ok(body) => contest.row(row, body),
        Err(why) => contest.unavailable(row, format!("{why:#}")),
    }
}

/// Returns the offset of the registered rseq area from the thread pointer.
///
/// # Errors
///
/// Why there is none.
pub(super) fn area_offset() -> anyhow::Result<isize> {
    let registration = Registration::of_this_thread();
    registration.offset.with_context(|| {
        let why = registration.refusal.map_or_else(String::new, |refusal| format!(" ({refusal})"));
        format!("no rseq here{why}; `corelocal doctor` says what to do")
    })
}

/// Returns the vDSO's `getcpu`, as a way to ask for the cpu.
///
/// # Errors
///
/// When this process has none.
pub(super) fn vdso_getcpu() -> anyhow::Result<impl Fn() -> u32 + Copy + Send + Sync + 'static> {
    type Getcpu = unsafe extern "C" fn(*mut u32, *mut u32, *mut libc::c_void) -> libc::c_long;
    let name = if cfg!(target_arch = "x86_64") { "__vdso_getcpu" } else { "__kernel_getcpu" };
    let symbol = vdso::symbol(name).context("the vDSO of this process has no getcpu")?;
    // SAFETY: the address is that of the function of this name, whose type vdso(7) gives.
    let getcpu = unsafe { std::mem::transmute::<*const (), Getcpu>(symbol) };
    Ok(move || {
        let mut cpu = 0;
        // SAFETY: `cpu` is valid for writes; the two null pointers are allowed.
        unsafe { getcpu(&mut cpu, std::ptr::null_mut(), std::ptr::null_mut()) };
        cpu
    })
}

fn system_call() -> u32 {
    let mut cpu = 0_u32;
    let (node, unused) = (std::ptr::null_mut::<u32>(), std::ptr::null_mut::<u8>());
    // SAFETY: `cpu` is valid for writes; the two null pointers are allowed.
    unsafe { libc::syscall(libc::SYS_getcpu, &raw mut cpu, node, unused) };
    cpu
}

#[cfg(target_arch = "x86_64")]
fn raw_load() -> anyhow::Result<Loop<'static>> {
    let area = area_offset()?;
    Ok(loop_of(move || consume(x86::cpu_id_at(area))))
}

#[cfg(not(target_arch = "x86_64"))]
fn raw_load() -> anyhow::Result<Loop<'static>> {
    anyhow::bail!("written for x86-64 only")
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use core::arch::asm;

    use anyhow::ensure;

    use corelocal_support::measure::loops::{Loop, consume, loop_of, repeating};

    /// Linux keeps `node << 12 | cpu` where both instructions find it.
    const CPU_BITS: u32 = 0xfff;

    /// Returns the field `cpu_id` of the rseq area at `area` from the thread pointer.
    #[inline(always)]
    pub fn cpu_id_at(area: isize) -> u32 {
        let cpu: u32;
        // SAFETY: reads the calling thread's registered area, of which this field is a part.
        unsafe {
            asm!(
                "mov {:e}, dword ptr fs:[{} + 4]", out(reg) cpu, in(reg) area,
                options(nostack, preserves_flags, readonly)
            );
        }
        cpu
    }

    /// Reads it from the register that the kernel loads for rdtscp.
    #[inline(always)]
    pub fn by_rdpid() -> u32 {
        let node_and_cpu: u64;
        // SAFETY: `rdpid()` hands this out only where the processor has the instruction, which
        // reads a register.
        unsafe {
            asm!("rdpid {}", out(reg) node_and_cpu, options(nomem, nostack, preserves_flags));
        }
        node_and_cpu as u32 & CPU_BITS
    }

    /// Reads it from the limit of a segment that the kernel sets up on each cpu.
    #[inline(always)]
    pub fn by_lsl() -> u32 {
        /// `__CPUNODE_SEG`: entry 15 of the GDT, for user mode.
        const CPUNODE_SEGMENT: u32 = 0x7b;
        let node_and_cpu: u32;
        // SAFETY: reads a descriptor; a missing one leaves the destination as it was, 0.
        unsafe {
            asm!(
                "lsl {0:e}, {1:e}", inout(reg) 0 => node_and_cpu, in(reg) CPUNODE_SEGMENT,
                options(nomem, nostack)
            );
        }
        node_and_cpu & CPU_BITS
    }

    /// Reads leaf 7, ecx bit 22.
    // Newer compilers hold this intrinsic to be safe, older ones do not.
    #[allow(unused_unsafe)]
    pub fn has_rdpid() -> bool {
        // SAFETY: every x86-64 has the instruction; it changes nothing but its result registers.
        let cpuid = |leaf| unsafe { core::arch::x86_64::__cpuid_count(leaf, 0) };
        cpuid(0).eax >= 7 && cpuid(7).ecx >> 22 & 1 == 1
    }

    pub fn rdpid() -> anyhow::Result<Loop<'static>> {
        ensure!(has_rdpid(), "this processor has no rdpid, or the hypervisor hides it");
        Ok(loop_of(|| consume(by_rdpid())))
    }

    pub fn lsl() -> anyhow::Result<Loop<'static>> {
        Ok(loop_of(|| consume(by_lsl())))
    }

    /// Returns a load through the gs segment, whose base is set around the loop.
    pub fn gs() -> anyhow::Result<Loop<'static>> {
        /// `HWCAP2_FSGSBASE`: user space may set the base (Linux 5.9).
        const FSGSBASE: u64 = 2;
        // SAFETY: no preconditions.
        let features = unsafe { libc::getauxval(libc::AT_HWCAP2) };
        ensure!(
            features & FSGSBASE != 0,
            "this processor or kernel does not let user space set the base of gs (Linux 5.9)"
        );
        Ok(repeating(|iterations| {
            let data = u64::from(by_lsl());
            let base: u64;
            // SAFETY: the instruction is there, as checked above. Programs of x86-64 Linux do not use gs; its base is as
            // before when the loop has ended.
            unsafe {
                asm!("rdgsbase {}", "wrgsbase {}", out(reg) base, in(reg) &raw const data, options(nostack));
            }
            for _ in 0..iterations {
                let cpu: u32;
                // SAFETY: gs points to `data`.
                unsafe {
                    asm!("mov {:e}, dword ptr gs:[0]", out(reg) cpu, options(nostack, preserves_flags, readonly));
                }
                consume(cpu);
            }
            // SAFETY: as above.
            unsafe { asm!("wrgsbase {}", in(reg) base, options(nostack)) };
        }))
    }
}

#[cfg(target_arch = "x86_64")]
pub(super) use x86::by_lsl;

#[cfg(not(target_arch = "x86_64"))]
mod x86 {
    use anyhow::bail;

    use corelocal_support::measure::loops::Loop;

    pub fn rdpid() -> anyhow::Result<Loop<'static>> {
        bail!("an instruction of x86 processors only")
    }

    pub fn lsl() -> anyhow::Result<Loop<'static>> {
        bail!("an instruction of x86 processors only")
    }

    pub fn gs() -> anyhow::Result<Loop<'static>> {
        bail!("a segment of x86 processors only")
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use corelocal_support::measure::affinity::Pinned;
    use corelocal_support::measure::engine::Plan;
    use corelocal_support::schema::Machine;

    #[test]
    fn all_ways_name_the_same_cpu() {
        let pinned = match Pinned::to_one_cpu() {
            Ok(pinned) => pinned,
            Err(refused) => return eprintln!("skipped: all_ways_name_the_same_cpu: {refused}"),
        };
        let cpu = pinned.cpu() as u32;
        assert_eq!(system_call(), cpu);
        assert_eq!(rseq::cpu_id(), cpu);
        match vdso_getcpu() {
            Ok(getcpu) => assert_eq!(getcpu(), cpu),
            Err(why) => eprintln!("skipped: the vDSO: {why}"),
        }
        #[cfg(target_arch = "x86_64")]
        {
            assert_eq!(x86::by_lsl(), cpu);
            match area_offset() {
                Ok(area) => assert_eq!(x86::cpu_id_at(area), cpu),
                Err(why) => eprintln!("skipped: the bare load: {why}"),
            }
            if x86::has_rdpid() {
                assert_eq!(x86::by_rdpid(), cpu);
            } else {
                eprintln!("skipped: rdpid: this processor has none");
            }
        }
    }

    #[test]
    fn every_row_is_measured_or_explained() {
        let machine = Machine::default();
        let plan = Plan { round: Duration::from_micros(50), rounds: 5, ..Plan::QUICK };
        let table = CpuNumber.run(&mut Context::new(plan, &machine)).unwrap();
        assert_eq!(table.rows.len(), 11);
        for row in &table.rows {
            assert_eq!(row.points.is_empty(), row.unavailable.is_some(), "{}", row.id);
        }
        let ours: Vec<_> = table.rows.iter().filter(|row| row.ours).collect();
        assert!(ours.iter().all(|row| !row.points.is_empty()), "ours work everywhere");
    }
}
