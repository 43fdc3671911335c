//! Rules about single instructions and the paths through a section.

use super::Breach;
use crate::check::decode::{Edge, Failure, Step};
use crate::check::load::Descriptor;
use crate::check::machine::Flow;
use crate::check::report::Rule;

pub fn check(descriptor: &Descriptor, steps: &[Step]) -> Vec<Breach> {
    let single = [call, stack, indirect_branch, locked, boundary];
    let mut found: Vec<Breach> =
        steps.iter().flat_map(|step| single.iter().filter_map(move |rule| rule(step))).collect();
    found.extend(never_leaves(descriptor, steps));
    found
}

/// Returns a section that cannot be decoded.
pub fn undecodable(failure: Failure) -> Breach {
    match failure {
        Failure::Invalid(address) => {
            Breach::new(Rule::Undecodable, address, "these bytes are not a valid instruction")
        }
        Failure::Straddles(address) => Breach::new(
            Rule::Boundary,
            address,
            "the section ends in the middle of this instruction",
        ),
    }
}

fn call(step: &Step) -> Option<Breach> {
    let message = "this leaves the section for other code, where it is not protected";
    step.instruction.is_call().then(|| Breach::new(Rule::Call, step.address(), message))
}

fn stack(step: &Step) -> Option<Breach> {
    let by_its_nature = step.instruction.is_call() || is_indirect(step);
    let message = "this moves the stack pointer, and an abort does not move it back";
    (step.instruction.moves_stack && !by_its_nature)
        .then(|| Breach::new(Rule::Stack, step.address(), message))
}

fn is_indirect(step: &Step) -> bool {
    step.instruction.flow == Flow::Indirect
}

fn indirect_branch(step: &Step) -> Option<Breach> {
    let message = "the target of this branch is not known before it runs";
    is_indirect(step).then(|| Breach::new(Rule::IndirectBranch, step.address(), message))
}

fn locked(step: &Step) -> Option<Breach> {
    let message = "this is atomic for other cpus as well. Either that is unnecessary, or they change that word too, \
         and then the section does not protect it";
    step.instruction.locked.then(|| Breach::new(Rule::Locked, step.address(), message))
}

fn boundary(step: &Step) -> Option<Breach> {
    step.next.iter().find_map(|edge| match edge {
        Edge::Astray(target) => {
            let message = format!("this branches into the middle of an instruction, {target:#x}");
            Some(Breach::new(Rule::Boundary, step.address(), message))
        }
        _ => None,
    })
}

/// Returns the first instruction of a loop without an exit.
fn never_leaves(descriptor: &Descriptor, steps: &[Step]) -> Option<Breach> {
    let mut leaves = vec![false; steps.len()];
    // Backwards, since most edges lead forward; repeated until nothing changes.
    let mut changed = true;
    while changed {
        changed = false;
        for (index, step) in steps.iter().enumerate().rev() {
            let out = step.next.iter().any(|edge| match edge {
                Edge::To(next) => leaves[*next],
                _ => true,
            });
            if out && !leaves[index] {
                leaves[index] = true;
                changed = true;
            }
        }
    }
    let reached = reachable(steps, 0);
    let stuck = (0..steps.len()).find(|index| reached[*index] && !leaves[*index])?;
    let message = format!(
        "from here no path leads out of the section: a thread stays here until the kernel aborts it and resumes \
         it at the handler {:#x}",
        descriptor.abort
    );
    Some(Breach::new(Rule::NeverLeaves, steps[stuck].address(), message))
}

/// Returns the instructions that can run after the one at `from`, including itself.
pub fn reachable(steps: &[Step], from: usize) -> Vec<bool> {
    let mut reached = vec![false; steps.len()];
    let mut open = if steps.is_empty() { Vec::new() } else { vec![from] };
    while let Some(index) = open.pop() {
        if !std::mem::replace(&mut reached[index], true) {
            open.extend(steps[index].next.iter().filter_map(|edge| match edge {
                Edge::To(next) => Some(*next),
                _ => None,
            }));
        }
    }
    reached
}
