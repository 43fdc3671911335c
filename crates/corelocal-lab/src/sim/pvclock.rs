//! pvclock: the host writes a page for each vCPU, and a thread of the guest reads the time from one of them.
//!
//! ```text
//!   host                     vCPU v (a thread of the host)             thread of the guest
//!   stop all vCPUs           leave the guest                           read the version, the counter,
//!   request an update        write page v, if an update is requested   the fields, the version again;
//!   let the vCPUs go         enter the guest                           return the time, or fall back
//! ```
//! An update has a number. A page's fields hold the number of the update that wrote them, so a reader with fields of
//! two updates, or of an update that is too old, is found by comparing. Odd updates are not STABLE: the counters of
//! the vCPUs differ, and a page is good for its own vCPU only. Where the host only adjusts the clock, all updates are
//! STABLE, and an older one is as good as a newer one.
//!
//! # Rules
//! 1. All fields that a read returns are from one update.
//! 2. That update is STABLE. (Otherwise the reader falls back to the system call.)
//! 3. It is not older than the last update of the vCPU on which the counter was read: the counter's meaning may have
//!    changed with each update. (Not where the host only adjusts the clock.)
//! 4. It is not newer either: a counter that was read before the update gives a time before it, or far in the future, as the
//!    difference of the counters is negative.
//!
//! Sources: Linux arch/x86/kvm/x86.c (`kvm_setup_guest_pvclock`, `kvm_gen_update_masterclock`), arch/x86/entry/vdso;
//! the thread "x86, vdso, pvclock: Simplify and speed up the vdso pvclock reader", January 2015.

mod entries;

use std::borrow::Cow;

pub(super) use entries::entries;

use super::{Costs, Kind, Label, Model, Step};

const VCPUS: usize = 2;
const HOST: u8 = VCPUS as u8;
const READER: u8 = HOST + 1;

/// Two vCPUs, a host that updates their pages, and one reader.
#[derive(Clone, Copy, Debug)]
pub struct Pvclock {
    /// The writes of the host at an update, in order.
    pub writes: &'static [Write],
    /// Whether a vCPU enters the guest only when the pages of all are up to date. KVM lets each go after its own.
    pub wait_for_all: bool,
    /// Whether the host only adjusts the clock.
    pub adjusts: bool,
    /// Whether a vCPU may stop for ever in an update, as when its thread is killed.
    pub may_die: bool,
    /// The steps of the reader, in order.
    pub reader: &'static [Read],
    /// The number of updates by the host.
    pub updates: u8,
}

/// A store of the host to a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    /// The version becomes odd.
    Odd,
    /// The time at a value of the counter.
    Time,
    /// The rate of the counter.
    Scale,
    /// STABLE, or not.
    Flags,
    /// The version becomes even.
    Even,
    /// The version becomes the next even one.
    Next,
}

/// A step of the reader. `page` is the one that `GetCpu` chose, page 0 without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// `getcpu`, to choose the page.
    GetCpu,
    /// Falls back if the page is not STABLE now.
    TestStable,
    /// The page's version.
    Version,
    /// The counter of the cpu that the reader is on.
    Counter,
    /// The page's time.
    Time,
    /// The page's scale.
    Scale,
    /// The page's flags.
    Flags,
    /// `getcpu` again: another cpu is a retry.
    SameCpu,
    /// The id in the page's version, in place of `getcpu`: another cpu is a retry.
    SameId,
    /// The version again: odd or changed is a retry.
    SameVersion,
    /// The same without the test for an odd version.
    SameVersionMaybeOdd,
    /// Returns the time if the flags that were read say STABLE, else falls back.
    ReturnIfStable,
    /// Returns the time.
    Return,
}

/// KVM until 4.5: the version changes once, at the end.
pub const WRITES_2015: &[Write] = &[Write::Time, Write::Scale, Write::Flags, Write::Next];
/// KVM since 4.5: the version is odd during the update.
pub const WRITES: &[Write] = &[Write::Odd, Write::Time, Write::Scale, Write::Flags, Write::Even];

use Read::*;

/// The vDSO until 4.4: the page of the own vCPU, between two `getcpu`.
pub const PER_CPU: &[Read] =
    &[GetCpu, Version, Counter, Time, Scale, Flags, SameCpu, SameVersion, ReturnIfStable];
/// The same without the second `getcpu`.
pub const PER_CPU_ONE_GETCPU: &[Read] =
    &[GetCpu, Version, Counter, Time, Scale, Flags, SameVersion, ReturnIfStable];
/// The idea to read the vCPU's id from the page's version, in place of the second `getcpu`.
pub const PER_CPU_ID_IN_VERSION: &[Read] =
    &[GetCpu, Version, Counter, Time, Scale, Flags, SameId, SameVersion, ReturnIfStable];
/// The first version of the simple reader: page 0, STABLE is tested before the loop.
pub const STABLE_BEFORE: &[Read] =
    &[TestStable, Version, Counter, Time, Scale, SameVersion, Return];
/// STABLE is tested after the loop.
pub const STABLE_AFTER: &[Read] = &[Version, Counter, Time, Scale, SameVersion, TestStable, Return];
/// The counter is read before the version.
pub const COUNTER_FIRST: &[Read] =
    &[Counter, Version, Time, Scale, Flags, SameVersion, ReturnIfStable];
/// The vDSO since 4.5: STABLE is read in the loop, with the other fields.
pub const STABLE_INSIDE: &[Read] =
    &[Version, Counter, Time, Scale, Flags, SameVersion, ReturnIfStable];

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Page {
    version: u8,
    time: u8,
    scale: u8,
    flags: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Vcpu {
    is_out: bool,
    /// An update is requested for its page.
    requested: bool,
    /// The number of stores of the update that are done, and the update's number, which is read once.
    written: u8,
    writes: u8,
    is_dead: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Reader {
    at: u8,
    /// The vCPU that it runs on.
    cpu: u8,
    /// Whether it has begun again: until it succeeds, its steps are no progress.
    retries: bool,
    fell_back: bool,
    page: u8,
    version: u8,
    read: Page,
    /// The update that the vCPU's own page had when the counter was read there.
    counter_of: u8,
}

/// The pages, the vCPUs and the reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct State {
    pages: [Page; VCPUS],
    vcpus: [Vcpu; VCPUS],
    /// The last update that was requested.
    update: u8,
    /// The host lets no vCPU enter.
    stops: bool,
    reader: Reader,
}

// What the actors do, as `Step::what`.
const STOP: u8 = 0;
const REQUEST: u8 = 1;
const LEAVE: u8 = 2;
const WRITE: u8 = 3;
const ENTER: u8 = 4;
const DIE: u8 = 5;
const READ: u8 = 6;
const MIGRATE: u8 = 7;

impl Pvclock {
    fn is_stable(&self, update: u8) -> bool {
        self.adjusts || update % 2 == 0
    }

    fn wants_retry(&self, state: &State) -> bool {
        let reader = &state.reader;
        let page = &state.pages[usize::from(reader.page)];
        match self.reader[usize::from(reader.at)] {
            SameCpu => reader.cpu != reader.page,
            // The id is that of the page which was read, whatever cpu the thread is on.
            SameId => false,
            SameVersion => reader.version % 2 == 1 || page.version != reader.version,
            SameVersionMaybeOdd => page.version != reader.version,
            _ => false,
        }
    }

    fn read(&self, state: &mut State) -> Result<(), String> {
        if self.wants_retry(state) {
            state.reader = Reader { retries: true, cpu: state.reader.cpu, ..Reader::default() };
            return Ok(());
        }
        let reader = &mut state.reader;
        let page = state.pages[usize::from(reader.page)];
        let op = self.reader[usize::from(reader.at)];
        reader.at += 1;
        match op {
            GetCpu => reader.page = reader.cpu,
            TestStable => reader.fell_back = !self.is_stable(page.flags),
            Version => reader.version = page.version,
            Counter => reader.counter_of = state.pages[usize::from(reader.cpu)].flags,
            Time => reader.read.time = page.time,
            Scale => reader.read.scale = page.scale,
            Flags => reader.read.flags = page.flags,
            SameCpu | SameId | SameVersion | SameVersionMaybeOdd => {}
            ReturnIfStable if !self.is_stable(reader.read.flags) => reader.fell_back = true,
            ReturnIfStable | Return => return self.judge(&state.reader),
        }
        if reader.fell_back {
            reader.at = self.reader.len() as u8;
        }
        Ok(())
    }

    /// Rules 1 to 4.
    fn judge(&self, reader: &Reader) -> Result<(), String> {
        let Page { time, scale, .. } = reader.read;
        if time != scale {
            return Err(format!(
                "the reader returns the time of update {time} with the scale of update {scale}"
            ));
        }
        if !self.is_stable(time) {
            return Err(format!("the reader returns a time of update {time}, which is not STABLE"));
        }
        if time < reader.counter_of && !self.adjusts {
            return Err(format!(
                "the reader returns a time of update {time}, with a counter read on a vCPU that has update {}",
                reader.counter_of
            ));
        }
        if time > reader.counter_of {
            return Err(format!(
                "the reader returns a time of update {time}, with a counter that was read before it"
            ));
        }
        Ok(())
    }
}

/// The actor that requests updates.
pub const HOST_ACTOR: u8 = HOST;
/// [`Step::what`]: the host begins an update.
pub const BEGIN_UPDATE: u8 = STOP;

impl State {
    /// Returns the update that wrote the page, if it is whole.
    pub fn update_of(&self, page: usize) -> Option<u8> {
        let Page { version, time, scale, flags } = self.pages[page];
        (version % 2 == 0 && time == scale && scale == flags).then_some(time)
    }
}

impl Model for Pvclock {
    type State = State;

    fn actors(&self) -> Vec<Cow<'static, str>> {
        ["vCPU 0", "vCPU 1", "host", "reader"].map(Into::into).into()
    }

    fn initial(&self) -> State {
        State {
            pages: [Page::default(); VCPUS],
            vcpus: [Vcpu::default(); VCPUS],
            update: 0,
            stops: false,
            reader: Reader::default(),
        }
    }

    fn steps_of(&self, state: &State, actor: u8, steps: &mut Vec<Step>) {
        match actor {
            HOST if state.stops && state.vcpus.iter().all(|vcpu| vcpu.is_out) => {
                steps.push(Step::must(HOST, REQUEST))
            }
            HOST if !state.stops && state.update < self.updates => {
                steps.push(Step::may(HOST, STOP))
            }
            HOST => {}
            READER => {
                let reader = &state.reader;
                if usize::from(reader.at) == self.reader.len() {
                    return;
                }
                if !state.vcpus[usize::from(reader.cpu)].is_out {
                    let is_retry = reader.retries || self.wants_retry(state);
                    steps.push(if is_retry {
                        Step::retry(READER, READ)
                    } else {
                        Step::must(READER, READ)
                    });
                }
                let other = 1 - reader.cpu;
                if !state.vcpus[usize::from(other)].is_out {
                    steps.push(Step::may(READER, MIGRATE).with(other));
                }
            }
            vcpu => {
                let state_of = &state.vcpus[usize::from(vcpu)];
                let all_done = state.vcpus.iter().all(|vcpu| !vcpu.requested && vcpu.written == 0);
                if state_of.is_dead {
                } else if !state_of.is_out {
                    if state.stops {
                        steps.push(Step::must(vcpu, LEAVE));
                    }
                } else if state_of.written > 0 || (!state.stops && state_of.requested) {
                    steps.push(Step::must(vcpu, WRITE));
                    if self.may_die {
                        steps.push(Step::may(vcpu, DIE));
                    }
                } else if !state.stops && (all_done || !self.wait_for_all) {
                    steps.push(Step::must(vcpu, ENTER));
                }
            }
        }
    }

    fn take(&self, state: &mut State, step: Step, costs: &mut Costs) -> Result<(), String> {
        let vcpu = usize::from(step.actor);
        match step.what {
            STOP => state.stops = true,
            REQUEST => {
                state.update += 1;
                state.vcpus.iter_mut().for_each(|vcpu| vcpu.requested = true);
                state.stops = false;
            }
            LEAVE => state.vcpus[vcpu].is_out = true,
            ENTER => state.vcpus[vcpu].is_out = false,
            DIE => state.vcpus[vcpu].is_dead = true,
            WRITE => {
                if state.vcpus[vcpu].written == 0 {
                    (state.vcpus[vcpu].requested, state.vcpus[vcpu].writes) = (false, state.update);
                }
                let (page, update) = (&mut state.pages[vcpu], state.vcpus[vcpu].writes);
                match self.writes[usize::from(state.vcpus[vcpu].written)] {
                    Write::Odd | Write::Even => page.version += 1,
                    Write::Next => page.version += 2,
                    Write::Time => page.time = update,
                    Write::Scale => page.scale = update,
                    Write::Flags => page.flags = update,
                }
                state.vcpus[vcpu].written += 1;
                if usize::from(state.vcpus[vcpu].written) == self.writes.len() {
                    state.vcpus[vcpu].written = 0;
                }
            }
            MIGRATE => state.reader.cpu = step.with,
            _ => {
                costs.units += u64::from(usize::from(state.reader.at) + 1 == self.reader.len());
                self.read(state)?;
            }
        }
        Ok(())
    }

    fn at_rest(&self, state: &State) -> Result<(), String> {
        let reader = &state.reader;
        let is_dead = |vcpu: &Vcpu| vcpu.is_dead;
        if usize::from(reader.at) < self.reader.len() && !state.vcpus.iter().any(is_dead) {
            return Err("the reader waits for a vCPU that does not enter the guest".into());
        }
        Ok(())
    }

    fn label(&self, state: &State, step: Step) -> Label {
        let kvm = "4.1 and later";
        match step.what {
            STOP => Label::new("kvm_make_mclock_inprogress_request", kvm, "stops all vCPUs"),
            REQUEST => {
                let kind = if self.is_stable(state.update + 1) { "STABLE" } else { "not STABLE" };
                let text =
                    format!("requests update {}, {kind}; the vCPUs may go on", state.update + 1);
                Label::new("kvm_end_pvclock_update", kvm, text)
            }
            LEAVE => Label::new("vcpu_enter_guest", "2.6.26 and later", "leaves the guest"),
            ENTER => Label::new("vcpu_enter_guest", "2.6.26 and later", "enters the guest"),
            DIE => Label::new("do_exit", "all", "the thread of the vCPU is killed in an update"),
            WRITE => {
                let text =
                    match self.writes[usize::from(state.vcpus[usize::from(step.actor)].written)] {
                        Write::Odd => "writes an odd version",
                        Write::Time => "writes the time",
                        Write::Scale => "writes the scale",
                        Write::Flags => "writes the flags",
                        Write::Even => "writes an even version",
                        Write::Next => "writes the next version",
                    };
                let versions = if self.writes.contains(&Write::Odd) {
                    "4.5 and later"
                } else {
                    "2.6.26 to 4.4"
                };
                Label::new("kvm_setup_guest_pvclock", versions, text)
            }
            MIGRATE => Label::new(
                "set_task_cpu",
                "2.6.23 and later",
                format!("moves to vCPU {}", step.with),
            ),
            _ => {
                let page = state.reader.page;
                let text = match self.reader[usize::from(state.reader.at)] {
                    GetCpu => "chooses the page of its cpu".into(),
                    TestStable => format!("tests STABLE of page {page}"),
                    Version => format!("reads the version of page {page}"),
                    Counter => format!("reads the counter of vCPU {}", state.reader.cpu),
                    Time => format!("reads the time of page {page}"),
                    Scale => format!("reads the scale of page {page}"),
                    Flags => format!("reads the flags of page {page}"),
                    SameCpu => "compares the cpu".into(),
                    SameId => "compares the id in the version".into(),
                    SameVersion | SameVersionMaybeOdd => {
                        format!("compares the version of page {page}")
                    }
                    ReturnIfStable => "returns the time, or falls back".into(),
                    Return => "returns the time".into(),
                };
                let again = if step.kind == Kind::Retry { " (again)" } else { "" };
                Label::new("vread_pvclock", "3.8 and later", text + again)
            }
        }
    }

    fn summary(&self, state: &State) -> String {
        let pages =
            state.pages.iter().enumerate().map(|(page, Page { version, time, scale, flags })| {
                format!("page {page}: v{version} time {time} scale {scale} flags {flags}")
            });
        pages.collect::<Vec<_>>().join(", ")
    }
}
