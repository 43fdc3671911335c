//! A linearizability check: can the observations of several threads be explained by a sequence of their operations?
//!
//! The target's operation takes time. During it another operation happens, whose thread then looks at the object.
//! Each takes effect at one instant between its beginning and its end (linearizability, Herlihy and Wing 1990). So
//! the target's operation takes effect before the other one, between the other one and its look, or after the look.
//! One of the three must give the observed results and content.
//!
//! In an object with a separate part for each core, all content is in one part when a round begins, that of the
//! target's core: `HOME`. An operation is done there, or on an empty part if the thread may have moved to another
//! core or concurrency id, or lost its registration.

use super::workload::{Content, Model, Operands};

/// The observations of a round.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// The content before the target's operation began.
    pub before: Content,
    /// The result of the target's operation.
    pub result: i64,
    /// The operation in between. `None` if there was none.
    pub other: Option<Other>,
    /// The content after all operations.
    pub end: Content,
}

/// The observations of the thread that operated in between.
#[derive(Clone, Copy, Debug)]
pub struct Other {
    /// The result of its operation.
    pub result: i64,
    /// The result of its look afterwards.
    pub look: i64,
}

/// The operations that may have been done on another part than `HOME`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Away {
    /// Whether it is the target's operation.
    pub target: bool,
    /// The other operation.
    pub other: bool,
}

/// The parts of an object: `HOME`, one for the target if it is elsewhere, and one for the other operation.
type Parts = [Vec<i64>; 3];
const HOME: usize = 0;
const TARGETS: usize = 1;
const OTHERS: usize = 2;

/// An event in a history.
#[derive(Clone, Copy)]
enum Event {
    Target,
    Other,
    Look,
}

/// Returns what is wrong with a history. `None` if it can be explained.
pub fn complaint(model: &Model, operands: Operands, seen: &Seen, away: Away) -> Option<String> {
    use Event::{Look, Other as Between, Target};
    let orders: &[&[Event]] = match seen.other {
        None => &[&[Target]],
        Some(_) => &[&[Target, Between, Look], &[Between, Target, Look], &[Between, Look, Target]],
    };
    let targets: &[usize] = if away.target && model.parted { &[HOME, TARGETS] } else { &[HOME] };
    let others: &[usize] =
        if away.other && model.parted { &[HOME, TARGETS, OTHERS] } else { &[HOME] };
    for order in orders {
        for &target in targets {
            for &other in others {
                if explains(model, operands, seen, order, target, other) {
                    return None;
                }
            }
        }
    }
    let Seen { before, result, other, end } = seen;
    let Operands { target, other: others } = operands;
    Some(match other {
        None => format!(
            "from {before:?}, an operation with {target} gave {result} and led to {end:?}, which it \
             never does"
        ),
        Some(Other { result: given, look }) => format!(
            "from {before:?}, an operation with {target} gave {result}, another with {others} in \
             between gave {given} and then saw {look}, and all led to {end:?}, which no order of them \
             does"
        ),
    })
}

/// Returns `true` if this order on these parts gives the observations.
fn explains(
    model: &Model,
    operands: Operands,
    seen: &Seen,
    order: &[Event],
    target: usize,
    other: usize,
) -> bool {
    let mut parts: Parts = [seen.before.numbers().to_vec(), Vec::new(), Vec::new()];
    let holds = |event: &Event| match (event, seen.other) {
        (Event::Target, _) => (model.step)(&mut parts[target], operands.target, seen.result),
        (Event::Other, Some(is)) => (model.step)(&mut parts[other], operands.other, is.result),
        (Event::Look, Some(is)) => (model.look)(&parts.concat()) == is.look,
        (_, None) => false,
    };
    order.iter().all(holds) && is_content(&parts, seen.end.numbers())
}

/// Returns `true` if a walk over an object with these parts may return this, in any order.
fn is_content(parts: &Parts, told: &[i64]) -> bool {
    const ORDERS: [[usize; 3]; 6] =
        [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
    ORDERS.iter().any(|order| order.iter().flat_map(|part| &parts[*part]).eq(told))
}

#[cfg(test)]
mod tests;
