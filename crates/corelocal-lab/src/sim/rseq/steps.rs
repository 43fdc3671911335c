//! What threads and the kernel do in one step each.

use super::*;

impl Sections {
    pub(super) fn is_within(&self, thread: &Thread) -> bool {
        (self.code.start..self.code.end).contains(&thread.registers.ip)
    }

    /// Does the kernel's work before a return to user space: `rseq_ip_fixup`.
    pub(super) fn restart(&self, thread: &mut Thread) -> Result<(), String> {
        if thread.phase != Phase::Within
            || !std::mem::take(&mut thread.is_armed)
            || !self.is_within(thread)
        {
            return Ok(());
        }
        thread.registers.ip = self.code.abort;
        thread.aborted = true;
        thread.prepared.clear();
        if thread.shows {
            return Err("a section is aborted after a store that others see".into());
        }
        Ok(())
    }

    /// Models `rseq_update_ids`: the ids of the thread's cpu.
    pub(super) fn update_ids(&self, thread: &mut Thread) {
        if self.kernel.is_v2 && thread.cpu_id_start != thread.written {
            thread.phase = Phase::Killed;
            return;
        }
        if self.kernel.stale_ids {
            return;
        }
        let id = thread.cpu;
        (thread.cpu_id_start, thread.cpu_id, thread.mm_cid, thread.written) = (id, id, id, id);
    }

    /// Takes the thread's next instruction.
    pub(super) fn go_on(&self, state: &mut State, number: usize) -> Result<(), String> {
        let State { threads, words, unfenced, .. } = state;
        let thread = &mut threads[number];
        if thread.phase == Phase::Before {
            if self.writes_cpu_id_start && number == 0 && !thread.wrote {
                (thread.cpu_id_start, thread.wrote) = (7, true);
                return Ok(());
            }
            thread.registers = self.setup.registers[number].clone();
            (thread.phase, thread.is_armed, thread.aborted) = (Phase::Within, true, false);
            return Ok(());
        }
        let was_within = self.is_within(thread);
        let of = self
            .code
            .instructions
            .get(&thread.registers.ip)
            .ok_or("the section runs into other code")?;
        let is_prepared = self.code.prepared.contains(&of.address);
        let before = words.clone();
        let ids = [thread.cpu_id_start, thread.cpu_id, thread.mm_cid];
        let mut view = View { words, ids, stores: Vec::new() };
        cpu::run(of, &mut thread.registers, &mut view)?;
        let stores = view.stores;
        if was_within && !self.is_within(thread) {
            self.judge(thread, number, &before, words, unfenced)?;
            thread.prepared.clear();
            thread.shows = false;
        } else if was_within {
            thread.shows |= !stores.is_empty() && !is_prepared;
            thread.prepared.extend(stores);
        }
        if thread.registers.ip == self.code.end {
            thread.phase = if thread.aborted { Phase::Before } else { Phase::Done };
            // What a thread had in its registers is of no interest any more.
            thread.registers = Registers::default();
        }
        Ok(())
    }

    /// Rules 1 and 3: at the instruction that leaves the section.
    pub(super) fn judge(
        &self,
        thread: &Thread,
        number: usize,
        before: &[u64],
        after: &[u64],
        unfenced: &[(usize, u64)],
    ) -> Result<(), String> {
        let mut base = before.to_vec();
        for &(index, old, new) in thread.prepared.iter().rev() {
            if base[index] != new {
                let name = memory::name(memory::address(index));
                return Err(format!(
                    "T{number} commits after {name}, which it had prepared, was overwritten"
                ));
            }
            base[index] = old;
        }
        // With the remote stores, and without them.
        let mut without = base.clone();
        unfenced.iter().rev().for_each(|&(index, old)| without[index] = old);
        let agrees = |mut words: Vec<u64>, hidden: &[(usize, u64)]| {
            let end = alone(&self.code, &self.setup.registers[number], &mut words, thread.cpu);
            hidden.iter().for_each(|&(index, _)| words[index] = after[index]);
            end.is_ok_and(|end| {
                end.target == thread.registers.ip && end.registers == thread.registers
            }) && words == after
        };
        if agrees(base, &[]) || agrees(without, unfenced) {
            return Ok(());
        }
        let what =
            if thread.registers.ip == self.code.end { "commits" } else { "leaves the section" };
        Err(format!("T{number} {what}, though what it has read is no longer so"))
    }

    pub(super) fn remote(&self, state: &mut State, number: usize) -> Result<(), String> {
        match self.remote[usize::from(state.threads[number].at)] {
            Remote::Store(address, word) => {
                let index = memory::index(address).ok_or("a store to an unknown word")?;
                state.unfenced.push((index, state.words[index]));
                state.words[index] = word;
            }
            Remote::Fence => {
                state.unfenced.clear();
                if !self.kernel.no_fence {
                    // A thread that does not run is restarted when it runs again.
                    let other = &mut state.threads[1 - number];
                    if other.runs {
                        self.restart(other)?;
                    }
                }
            }
        }
        let thread = &mut state.threads[number];
        thread.at += 1;
        if usize::from(thread.at) == self.remote.len() {
            thread.phase = Phase::Done;
        }
        Ok(())
    }

    /// Sends a signal: its handler runs the section.
    pub(super) fn signal(&self, state: &mut State, number: usize) -> Result<(), String> {
        let thread = &mut state.threads[number];
        if !self.kernel.not_for_signals {
            self.restart(thread)?;
        }
        let (id, registers) = (thread.cpu, &self.setup.registers[number]);
        alone(&self.code, registers, &mut state.words, id)?;
        Ok(())
    }

    pub(super) fn is_remote(&self, thread: usize) -> bool {
        thread == 1 && !self.remote.is_empty()
    }
}
