//! Tests of the table of ids; those that need a confinement say so where it is refused.

use super::*;

fn seen_at(place: Place, threads: usize) -> Option<Largest> {
    let look = Look { threads, place, time: Duration::from_millis(5) };
    // A thread of its own, since the confinement of the caller stays.
    match thread::spawn(move || look.run()).join().unwrap() {
        Ok(largest) => Some(largest),
        Err(error) => {
            eprintln!("skipped: a look from {place:?}: {error:#}");
            None
        }
    }
}

#[test]
fn ids_stay_in_their_range() {
    let possible = Topology::read(FsRoot::SYSTEM).nr_possible_ids() as u32;
    for place in [Place::Free, Place::ConfinedLate] {
        let Some(largest) = seen_at(place, 3) else { continue };
        assert!(largest.cpu_id < possible, "{largest:?}");
        assert!(largest.mm_cid.is_none_or(|id| id < possible), "{largest:?}");
        assert_eq!(largest.mm_cid.is_some(), Registration::of_this_thread().mm_cid);
    }
}

#[test]
fn the_confined_see_one_cpu() {
    let allowed = Topology::read(FsRoot::SYSTEM).affinity.set;
    let highest = allowed.max().unwrap() as u32;
    for place in [Place::Confined(1), Place::ConfinedLate] {
        if let Some(largest) = seen_at(place, 4) {
            assert_eq!(largest.cpu_id, highest, "{place:?}");
        }
    }
}

#[test]
fn the_highest_cpus_are_kept() {
    let allowed = CpuSet::parse(b"1,5-7").unwrap();
    assert_eq!(Place::Free.cpus(&allowed), None);
    assert_eq!(Place::Confined(2).cpus(&allowed), Some(vec![6, 7]));
    assert_eq!(Place::ConfinedLate.cpus(&allowed), Some(vec![7]));
}

#[test]
fn the_largest_of_both() {
    let (a, b) = (Largest { mm_cid: Some(3), cpu_id: 7 }, Largest { mm_cid: Some(5), cpu_id: 2 });
    assert_eq!(a.or(b), Largest { mm_cid: Some(5), cpu_id: 7 });
    assert_eq!(a.or(Largest { mm_cid: None, ..b }).mm_cid, None);
}

#[test]
fn rows_have_figures_or_a_reason() {
    let with = |mm_cid| Some(Largest { mm_cid, cpu_id: 9 });
    let cid = |largest: &Largest| largest.mm_cid.ok_or_else(|| "none".to_owned());
    let row = || Row::new("row", "row");
    let seen = Ok([with(Some(0)), with(Some(3)), with(Some(3)), with(Some(4))]);
    let filled_row = filled(row(), &seen, cid);
    let largest: Vec<f64> = filled_row.points.iter().map(|point| point.stat.max).collect();
    assert_eq!((largest, filled_row.unavailable), (vec![0.0, 3.0, 3.0, 4.0], None));
    for seen in [Ok(THREADS.map(|_| with(None))), Err("none".to_owned())] {
        let row = filled(row(), &seen, cid);
        assert_eq!((row.points.len(), row.unavailable.as_deref()), (0, Some("none")));
    }
}
