//! The contestants of the tables of mallocs: libc's own, ours, and what is installed or built by `rivals/build`.

use corelocal_support::mallocs::{CAN_ASK, Malloc, library};
use corelocal_support::schema::Row;

use crate::contest::Contest;

/// The row that ratios refer to.
pub const BASELINE: &str = "libc";

/// A row and its malloc, or why there is none.
pub type Rival = (Row, Result<Malloc, String>);

/// Returns all of them, in the order of the tables.
pub fn all() -> Vec<Rival> {
    let reason = |error: anyhow::Error| format!("{error:#}");
    let libc = Malloc::of_libc();
    let mut rivals = vec![(Row::new(BASELINE, libc.label.clone()), Ok(libc))];
    // One that is named takes the place of one that is installed.
    let mut more = library::more();
    rivals.extend(library::KNOWN.iter().map(|known| {
        let named = |more: &anyhow::Result<Malloc>| more.as_ref().is_ok_and(|m| m.id == known.id);
        let malloc = match more.iter().position(named) {
            Some(nth) => more.remove(nth),
            None => known.find(),
        };
        (Row::new(known.id, known.label), malloc.map_err(reason))
    }));
    for (nth, more) in more.into_iter().enumerate() {
        rivals.push(match more {
            Ok(malloc) if rivals.iter().any(|(row, _)| row.id == malloc.id) => {
                let id = format!("{}-{nth}", malloc.id);
                (Row::new(&id, malloc.label.clone()), Ok(malloc))
            }
            Ok(malloc) => (Row::new(&malloc.id, malloc.label.clone()), Ok(malloc)),
            Err(error) => (Row::new(&format!("more-{nth}"), library::MORE), Err(reason(error))),
        });
    }
    let ours = library::ours().map_err(reason);
    rivals.push((Row::ours("corelocal", "corelocal"), ours));
    if !CAN_ASK {
        let why = "this program was linked without a dynamic loader: its malloc cannot be replaced";
        for (_, malloc) in rivals.iter_mut().skip(1) {
            *malloc = Err(why.to_owned());
        }
    }
    rivals
}

/// Returns the contest with a row for each.
pub fn enter<B>(mut contest: Contest<B>, body: impl Fn(Malloc) -> B) -> Contest<B> {
    for (row, malloc) in all() {
        contest = match malloc {
            Ok(malloc) => contest.row(row, body(malloc)),
            Err(why) => contest.unavailable(row, why),
        };
    }
    contest
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_row_is_a_malloc_or_says_why_not() {
        let rivals = all();
        let ids: BTreeSet<_> = rivals.iter().map(|(row, _)| row.id.clone()).collect();
        assert_eq!(ids.len(), rivals.len());
        assert!(ids.contains(BASELINE) && ids.contains("corelocal") && ids.contains("mimalloc"));
        for (row, malloc) in rivals {
            match malloc {
                Ok(malloc) => assert_eq!(malloc.library.is_none(), row.id == BASELINE),
                Err(why) => assert!(why.len() > 20, "{why}"),
            }
        }
    }
}
