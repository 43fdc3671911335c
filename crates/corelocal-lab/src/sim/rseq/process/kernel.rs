//! The kernel's part: new threads and processes, `exec`, signals, and the way back to user space.

use super::super::super::{Label, Step};
use super::super::descriptor::{Fixup, fixup};
use super::{
    ABORT, AREA_DISTANCE, AREAS, Area, Fault, Frame, GO_ON, Map, NEW_AREA, Op, PREEMPT, Phase,
    Process, RUN, SIGNATURE, State, Thread,
};

/// The address of the first byte that is not of user space.
const LIMIT: u64 = 1 << 47;

impl Process {
    /// Models `copy_process`, with `rseq_fork`.
    pub(super) fn start(&self, state: &mut State, parent: usize, op: Op, program: u8) {
        let absent = state.threads.iter().position(|thread| thread.phase == Phase::Absent);
        let child = absent.expect("a program starts no more threads than there are");
        let shares_memory = !matches!(op, Op::Fork(_));
        let is_kept = shares_memory && self.fault == Some(Fault::ThreadKeeps);
        let Thread { registration, map, area, cpu, .. } = state.threads[parent];
        let map = if shares_memory {
            map
        } else {
            state.maps.push(state.maps[usize::from(map)].clone());
            state.maps.len() as u8 - 1
        };
        state.threads[child] = Thread {
            phase: Phase::Present,
            program,
            map,
            // A child of vfork has its parent's thread pointer.
            area: if matches!(op, Op::Clone(_)) { child as u8 } else { area },
            registration: if is_kept { registration } else { registration.in_child(shares_memory) },
            frames: vec![Frame::default()],
            cpu,
            runs: false,
        };
        if matches!(op, Op::Vfork(_)) {
            let parent = &mut state.threads[parent];
            (parent.phase, parent.runs) = (Phase::Waits(child as u8), false);
        }
    }

    /// Models `begin_new_exec`, with `rseq_execve`.
    pub(super) fn exec(&self, state: &mut State, number: usize) {
        // Where the old program had its areas is other memory now.
        let mut areas = [Area::Other; super::THREADS];
        let area = (usize::from(state.threads[number].area) + 1) % super::THREADS;
        areas[area] = NEW_AREA;
        state.maps.push(Map {
            counters: [0; super::CPUS],
            atomic: 0,
            commits: 0,
            areas,
            has_section: true,
        });
        let map = state.maps.len() as u8 - 1;
        let thread = &mut state.threads[number];
        (thread.map, thread.area) = (map, area as u8);
        if self.fault != Some(Fault::ExecKeeps) {
            thread.registration = thread.registration.after_exec();
        }
        state.wake_parent(number);
    }

    /// Models `rseq_ip_fixup` and `rseq_update_ids`.
    pub(super) fn return_to_user(&self, state: &mut State, number: usize) -> Result<(), String> {
        self.restart(state, number)?;
        let cpu = state.threads[number].cpu;
        if let Some(Area::Of { cpu_id, .. }) = self.registered(state, number)? {
            *cpu_id = Some(cpu);
        }
        Ok(())
    }

    /// Models `handle_signal`: `rseq_signal_deliver`, then the handler's frame.
    pub(super) fn deliver(&self, state: &mut State, number: usize) -> Result<(), String> {
        let looks_late = self.fault == Some(Fault::HandlerFirst);
        if !looks_late {
            self.restart(state, number)?;
        }
        state.threads[number].frames.push(Frame::default());
        if looks_late { self.restart(state, number) } else { Ok(()) }
    }

    /// Returns the area that the kernel has in its books.
    fn registered<'s>(
        &self,
        state: &'s mut State,
        number: usize,
    ) -> Result<Option<&'s mut Area>, String> {
        let Some(address) = state.threads[number].registration.address() else { return Ok(None) };
        let area = (address - AREAS) / AREA_DISTANCE;
        match &mut state.map_of(number).areas[area as usize] {
            Area::Other => {
                Err(format!("the kernel uses T{number}'s rseq area, whose memory is in other use"))
            }
            area => Ok(Some(area)),
        }
    }

    fn restart(&self, state: &mut State, number: usize) -> Result<(), String> {
        let has_section = state.map_of(number).has_section;
        let frame = state.threads[number].frames.last().copied().unwrap_or_default();
        let Some(Area::Of { is_armed, .. }) = self.registered(state, number)? else {
            return Ok(());
        };
        if !*is_armed {
            return Ok(());
        }
        let signature_at = |address| (address == u64::from(ABORT) - 4).then_some(SIGNATURE);
        let what = match has_section {
            true => fixup(
                self.checks,
                &self.descriptor,
                frame.ip.into(),
                LIMIT,
                signature_at,
                SIGNATURE,
            ),
            false => Fixup::Kill,
        };
        *is_armed = what == Fixup::Keep;
        match what {
            Fixup::Kill => state.leave(number, Phase::Killed),
            Fixup::Restart => {
                let frame = state.threads[number].frames.last_mut().expect("the thread runs");
                frame.ip = self.descriptor.abort_ip as u8;
            }
            Fixup::Clear | Fixup::Keep => {}
        }
        Ok(())
    }
}

/// Returns a step in words.
pub(super) fn label(model: &Process, state: &State, step: Step) -> Label {
    let thread = &state.threads[usize::from(step.actor)];
    let frame = thread.frames.last().copied().unwrap_or_default();
    match step.what {
        PREEMPT => Label::new("__schedule", "all", "is preempted"),
        RUN => Label::new(
            "rseq_ip_fixup",
            "4.18 and later",
            format!("runs on cpu {}, after rseq_cs was looked at", step.with),
        ),
        GO_ON => match model.op(thread) {
            Some(Op::Add) => Label::new("section", "", instruction(frame)),
            Some(op) => program(op),
            None if thread.frames.len() > 1 => {
                Label::new("sys_rt_sigreturn", "all", "returns from the handler")
            }
            None => Label::new("do_exit", "all", "exits"),
        },
        _ => Label::new(
            "rseq_signal_deliver",
            "4.18 and later",
            if thread.frames.len() > 1 {
                "gets a signal within the handler, whose handler adds one"
            } else {
                "gets a signal, whose handler adds one"
            },
        ),
    }
}

fn instruction(Frame { ip, cpu, value, .. }: Frame) -> String {
    match ip {
        super::ARM => "arms: rseq_cs = descriptor".into(),
        super::READ_CPU => "reads cpu_id".into(),
        super::LOAD => format!("value = counters[{cpu}]"),
        super::COMMIT => format!("commits: counters[{cpu}] = {value} + 1"),
        ABORT => "abort handler: begins again".into(),
        _ => "is not registered: adds one by an atomic operation".into(),
    }
}

fn program(op: Op) -> Label {
    let kernel = |function, text: &str| Label::new(function, "4.18 and later", text);
    match op {
        Op::Register => kernel("__do_sys_rseq", "registers its area"),
        Op::Unregister => kernel("__do_sys_rseq", "ends its registration"),
        Op::Clone(_) => kernel("rseq_fork", "starts a thread, which is not registered"),
        Op::Fork(_) => {
            kernel("rseq_fork", "forks a child, which has a copy of all, registered too")
        }
        Op::Vfork(_) => {
            kernel("rseq_fork", "starts a child in its memory, not registered; waits for it")
        }
        Op::Exec => kernel("rseq_execve", "runs another program, and is not registered any more"),
        Op::Add => Label::new("section", "", ""),
        Op::AddAtomically => Label::new("program", "", "adds one by an atomic operation"),
        Op::Disarm => Label::new("program", "", "rseq_cs = 0"),
        Op::Unmap => Label::new("program", "", "unmaps the library of the section"),
        Op::Reuse => Label::new("program", "", "gives the memory of its rseq area to others"),
    }
}
