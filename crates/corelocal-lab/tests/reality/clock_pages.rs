//! The clock pages that KVM writes for two vCPUs, in a random order of updates and entries.

use corelocal_lab::sim::pvclock::{BEGIN_UPDATE, HOST_ACTOR, Pvclock, STABLE_INSIDE, WRITES};
use corelocal_lab::sim::random::{Numbers, run_to_rest};
use corelocal_lab::sim::{Costs, Model, Step};
use corelocal_vmm::Machine;

use crate::common::agree;

const VCPUS: usize = 2;
const EVENTS: usize = 200;
/// Updates set the clock to a multiple of this, in nanoseconds, so that a page tells which one wrote it.
const EPOCH: u64 = 1_000_000_000_000;

#[test]
fn clock_pages() {
    let (machine, mut vcpus) = match Machine::new(VCPUS) {
        Ok(made) => made,
        Err(why) => return eprintln!("skipped: clock_pages: {why}"),
    };
    let model = Pvclock {
        writes: WRITES,
        wait_for_all: false,
        adjusts: false,
        may_die: false,
        reader: STABLE_INSIDE,
        updates: u8::MAX,
    };
    let mut state = model.initial();
    // Both have entered the guest once: the model's update 0.
    machine.set_clock(EPOCH / 2).expect("KVM sets the clock");
    for vcpu in &mut vcpus {
        vcpu.step().expect("a step of the guest");
    }
    let mut numbers = Numbers(5);
    let mut update: u8 = 0;
    let mut differing = 0;
    for event in 0..EVENTS {
        match numbers.below(VCPUS + 1) {
            vcpu if vcpu < VCPUS => {
                run_to_rest(&model, &mut state, vcpu as u8).expect("a correct model");
                vcpus[vcpu].step().expect("a step of the guest");
            }
            _ => {
                update += 1;
                model
                    .take(&mut state, Step::may(HOST_ACTOR, BEGIN_UPDATE), &mut Costs::default())
                    .expect("an update");
                // The vCPUs leave, then the host requests.
                for actor in [0, 1, HOST_ACTOR] {
                    run_to_rest(&model, &mut state, actor).expect("a correct model");
                }
                machine
                    .set_clock(u64::from(update) * EPOCH + EPOCH / 2)
                    .expect("KVM sets the clock");
            }
        }
        let of_model = [0, 1].map(|page| state.update_of(page));
        let of_kvm = [0, 1].map(|vcpu| page(&machine, vcpu));
        assert_eq!(of_model, of_kvm, "after event {event} of update {update}");
        differing += u32::from(of_kvm[0] != of_kvm[1]);
    }
    assert!(differing > 10, "the pages have hardly differed");
    agree(
        "clock pages that KVM writes",
        EVENTS as u32,
        "update, or entry of one of two vCPUs",
        format_args!("{update} updates, different pages after {differing} events"),
    );
}

/// The update that wrote the page of this vCPU; `None` while its version is odd.
fn page(machine: &Machine, vcpu: usize) -> Option<u8> {
    let page = std::ptr::from_ref(machine.page(vcpu).expect("a vCPU of the machine"));
    // SAFETY: struct pvclock_vcpu_time_info: the version at 0, system_time at 16. The guest does not run now.
    let (version, time) =
        unsafe { (page.cast::<u32>().read_volatile(), page.cast::<u64>().add(2).read_volatile()) };
    (version % 2 == 0).then_some((time / EPOCH) as u8)
}
