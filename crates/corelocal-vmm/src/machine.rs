//! The virtual machine and its cpus.
//!
//! Invariants:
//! 1. A cpu runs in [`Vcpu::step`] only, and that borrows it exclusively: one thread at a time.
//! 2. The guest's counter is the host's: each cpu's offset is set to 0 before it first runs. So a reader in
//!    this process, which takes the host's counter, reads a page's time as the guest would.
//! 3. The memory outlives the machine and its cpus, which share it.
//! 4. A machine has at most `memory::CPUS` cpus, numbered from 0.

use std::fmt;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use corelocal::clock::page::pvclock::Page;
use kvm_bindings::{
    KVM_VCPU_TSC_CTRL, KVM_VCPU_TSC_OFFSET, kvm_clock_data, kvm_device_attr, kvm_regs,
    kvm_userspace_memory_region,
};
use kvm_ioctls::{Kvm, VcpuExit, VcpuFd, VmFd};

use crate::memory::{BYTES, CODE_AT, CPUS, Memory};
use crate::payload::{KVM_SYSTEM_TIME_NEW, Request, STEP_PORT};

/// The reason why there is no machine, or why it did not do what it was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unavailable(String);

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unavailable {}

/// Says what was being done when the kernel refused.
fn doing<E: fmt::Display>(what: &str) -> impl FnOnce(E) -> Unavailable {
    move |error| Unavailable(format!("{what}: {error}"))
}

/// A virtual machine.
#[derive(Debug)]
pub struct Machine {
    vm: VmFd,
    memory: Arc<Memory>,
    cpus: usize,
}

/// A cpu of a [`Machine`]. It may be sent to a thread of its own.
#[derive(Debug)]
pub struct Vcpu {
    fd: VcpuFd,
    memory: Arc<Memory>,
    number: usize,
}

/// The reason why the guest left guest mode.
enum Exit {
    Step,
    Halted,
}

impl Machine {
    /// Creates a machine with so many cpus, at most 64, none of which has run yet.
    ///
    /// # Errors
    /// [`Unavailable`] for more cpus than that, where there is no `/dev/kvm`, where this process may not open it, or where KVM lacks
    /// something (before Linux 5.16 it cannot set a cpu's counter).
    pub fn new(cpus: usize) -> Result<(Machine, Vec<Vcpu>), Unavailable> {
        if cpus > CPUS {
            let why = format!("a machine of {cpus} cpus: its memory has clock pages for {CPUS}");
            return Err(Unavailable(why)); // (4)
        }
        let kvm = Kvm::new().map_err(doing("/dev/kvm cannot be opened"))?;
        let vm = kvm.create_vm().map_err(doing("KVM makes no machine"))?;
        // Intel's cpus before Westmere run 16-bit code with this page's help. Unused elsewhere.
        vm.set_tss_address(0xfffb_d000).map_err(doing("KVM takes no TSS address"))?;
        let memory = Arc::new(Memory::new().map_err(doing("no memory for the guest"))?);
        let region = kvm_userspace_memory_region {
            memory_size: BYTES as u64,
            userspace_addr: memory.address(),
            ..Default::default()
        };
        // SAFETY: the mapping is as long as told and lives as long as the machine (3).
        unsafe { vm.set_user_memory_region(region) }
            .map_err(doing("KVM does not take the memory"))?;
        let vcpus = (0..cpus)
            .map(|number| {
                let fd = vm.create_vcpu(number as u64).map_err(doing("KVM makes no cpu"))?;
                let vcpu = Vcpu { fd, memory: Arc::clone(&memory), number };
                vcpu.set_counter_offset(0)?; // (2)
                vcpu.reset()?;
                Ok(vcpu)
            })
            .collect::<Result<Vec<Vcpu>, Unavailable>>()?;
        Ok((Machine { vm, memory, cpus }, vcpus))
    }

    /// Returns the clock page of a cpu, zero until its first step; `None` if the machine has no such cpu.
    pub fn page(&self, cpu: usize) -> Option<&Page> {
        if cpu < self.cpus { self.memory.page(cpu) } else { None }
    }

    /// Sets the guest's clock to so many nanoseconds. Each cpu's page says so after that cpu's next entry.
    ///
    /// # Errors
    /// [`Unavailable`] if KVM refuses.
    pub fn set_clock(&self, nanoseconds: u64) -> Result<(), Unavailable> {
        let clock = kvm_clock_data { clock: nanoseconds, ..Default::default() };
        self.vm.set_clock(&clock).map_err(doing("KVM_SET_CLOCK"))
    }

    /// Returns the guest's clock by KVM's own reckoning, in nanoseconds.
    ///
    /// # Errors
    /// [`Unavailable`] if KVM refuses.
    pub fn clock(&self) -> Result<u64, Unavailable> {
        self.vm.get_clock().map(|clock| clock.clock).map_err(doing("KVM_GET_CLOCK"))
    }
}

impl Vcpu {
    /// Enters the guest until its next step is done: KVM publishes what is due, the guest reads its counter.
    /// Returns that counter.
    ///
    /// # Errors
    /// [`Unavailable`] if the guest does anything but step.
    pub fn step(&mut self) -> Result<u64, Unavailable> {
        self.enter(Request::Step)
    }

    /// Does what [`step`](Self::step) does; but first the guest acknowledges that it was stopped, as its kernel does.
    /// The very first step acknowledges nothing.
    ///
    /// # Errors
    /// [`Unavailable`] if the guest does anything but step.
    pub fn acknowledge_stop(&mut self) -> Result<u64, Unavailable> {
        self.enter(Request::Acknowledge)
    }

    /// Lets the guest halt; the next step begins after that.
    ///
    /// # Errors
    /// [`Unavailable`] if it does not, which is so before its first step.
    pub fn halt(&mut self) -> Result<(), Unavailable> {
        self.memory.request(self.number, Request::Halt);
        match self.run()? {
            Exit::Halted => Ok(()),
            Exit::Step => Err(Unavailable(String::from("the guest does not halt"))),
        }
    }

    /// Tells the guest, through its page, that it was stopped: what a debugger or a snapshot does.
    ///
    /// # Errors
    /// [`Unavailable`] if KVM refuses, which it does before the first step.
    pub fn mark_stopped(&self) -> Result<(), Unavailable> {
        self.fd.kvmclock_ctrl().map_err(doing("KVM_KVMCLOCK_CTRL"))
    }

    /// Lets the guest's counter on this cpu run so many ticks before the host's.
    ///
    /// # Errors
    /// [`Unavailable`] where KVM cannot: before Linux 5.16.
    pub fn set_counter_offset(&self, ticks: i64) -> Result<(), Unavailable> {
        const KVM_SET_DEVICE_ATTR: libc::c_ulong = 0x4018_aee1; // _IOW(0xae, 0xe1, struct of 24 bytes)
        let attribute = kvm_device_attr {
            group: KVM_VCPU_TSC_CTRL,
            attr: u64::from(KVM_VCPU_TSC_OFFSET),
            addr: (&raw const ticks) as u64,
            flags: 0,
        };
        // SAFETY: the kernel reads the structure, which names the 8 bytes of `ticks`, and keeps neither.
        let set = unsafe { libc::ioctl(self.fd.as_raw_fd(), KVM_SET_DEVICE_ATTR as _, &attribute) };
        if set != 0 {
            let error = std::io::Error::last_os_error();
            return Err(doing("KVM cannot set a cpu's counter")(error));
        }
        Ok(())
    }

    /// Sets the registers as `payload` wants them.
    fn reset(&self) -> Result<(), Unavailable> {
        let mut system = self.fd.get_sregs().map_err(doing("KVM_GET_SREGS"))?;
        system.cs.base = 0;
        system.cs.selector = 0;
        self.fd.set_sregs(&system).map_err(doing("KVM_SET_SREGS"))?;
        let page = Memory::page_at(self.number) as u64;
        let registers = kvm_regs {
            rip: CODE_AT as u64,
            rflags: 2, // The bit that is always set.
            rax: page | 1,
            rbx: page,
            rcx: u64::from(KVM_SYSTEM_TIME_NEW),
            rsi: Memory::mailbox_at(self.number) as u64,
            ..Default::default()
        };
        self.fd.set_regs(&registers).map_err(doing("KVM_SET_REGS"))
    }

    fn enter(&mut self, request: Request) -> Result<u64, Unavailable> {
        self.memory.request(self.number, request);
        match self.run()? {
            Exit::Step => Ok(self.memory.counter(self.number)),
            Exit::Halted => Err(Unavailable(String::from("the guest halted unasked"))),
        }
    }

    /// Enters the guest until it leaves guest mode for a reason of its own.
    fn run(&mut self) -> Result<Exit, Unavailable> {
        loop {
            return match self.fd.run() {
                // A signal; the guest has not moved on.
                Err(error) if [libc::EINTR, libc::EAGAIN].contains(&error.errno()) => continue,
                Err(error) => Err(doing("KVM_RUN")(error)),
                Ok(VcpuExit::IoOut(STEP_PORT, _)) => Ok(Exit::Step),
                Ok(VcpuExit::Hlt) => Ok(Exit::Halted),
                Ok(other) => Err(Unavailable(format!("the guest left its path: {other:?}"))),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Wherever there is KVM, and where there is none.
    #[test]
    fn too_many_cpus_are_refused() {
        for cpus in [CPUS + 1, usize::MAX] {
            let refusal = Machine::new(cpus).unwrap_err();
            assert!(refusal.to_string().contains("for 64"), "{refusal}");
        }
    }
}
