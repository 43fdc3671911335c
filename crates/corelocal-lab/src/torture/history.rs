//! Can what threads saw be explained by doing their operations one after the other?
//!
//! The target's operation takes time, and somewhere in it another one happens, whose thread then
//! looks at the object. Each has an effect at one instant between its beginning and its end
//! (linearizability, Herlihy and Wing 1990): so the target's comes before the other, between the
//! other and its look, or after the look. One of the three must give the states that were seen.

use super::workload::{Operands, Workload};

/// What was seen.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// Before the target's operation began.
    pub before: i64,
    /// By the one who operated in between; `None` if nobody did.
    pub between: Option<i64>,
    /// After everything.
    pub end: i64,
}

/// Says what is wrong with a history; `None` if it can be explained.
pub fn complaint(workload: &Workload, operands: Operands, seen: Seen) -> Option<String> {
    let (after, Seen { before, between, end }) = (workload.after, seen);
    let Operands { target, other } = operands;
    let Some(between) = between else {
        let expected = after(before, target);
        return (end != expected).then(|| {
            format!("from {before}, an operation with {target} led to {end} instead of {expected}")
        });
    };
    let orders = [
        // (seen in between, seen at the end)
        twice(after(after(before, target), other)),
        twice(after(after(before, other), target)),
        (after(before, other), after(after(before, other), target)),
    ];
    (!orders.contains(&(between, end))).then(|| {
        format!(
            "from {before}, operations with {target} and {other} led to {between} and then {end}, \
             which no order of them does"
        )
    })
}

fn twice(state: i64) -> (i64, i64) {
    (state, state)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::torture::workload::library;

    fn judge(
        name: &str,
        operands: (i64, i64),
        before: i64,
        between: Option<i64>,
        end: i64,
    ) -> bool {
        let workload = library().into_iter().find(|workload| workload.name == name).unwrap();
        let operands = Operands { target: operands.0, other: operands.1 };
        complaint(&workload, operands, Seen { before, between, end }).is_none()
    }

    #[test]
    fn an_addition_counts_once() {
        for (between, end, explained) in [
            (None, 11, true),
            (None, 10, false), // lost
            (None, 12, false), // twice
            (Some(110), 111, true),
            (Some(111), 111, true),
            (Some(110), 110, false), // the target's is lost
            (Some(10), 11, false),   // the other's is lost
            (Some(111), 112, false), // the target's counts twice
        ] {
            assert_eq!(judge("counter-cid/add", (1, 100), 10, between, end), explained);
        }
    }

    #[test]
    fn a_maximum_never_falls() {
        for (between, end, explained) in [
            (Some(12), 12, true),
            (Some(12), 11, false),
            (Some(11), 12, false),
            (None, 11, true),
            (None, 10, false),
        ] {
            assert_eq!(judge("max-cid/record", (11, 12), 10, between, end), explained);
        }
    }
}
