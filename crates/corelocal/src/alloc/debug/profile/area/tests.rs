//! Tests of `area.rs`.

use std::boxed::Box;
use std::vec::Vec;

use super::*;

const RATE: u64 = 1000;

fn read(area: &Area) -> Vec<(u64, bool, bool)> {
    let (mut sample, mut all) = (Box::new(Sample { rate: RATE, ..Sample::EMPTY }), Vec::new());
    area.for_each(&mut sample, &mut |sample| {
        all.push((sample.size, sample.is_in_use, sample.was_at_peak));
    });
    all.sort_unstable();
    all
}

#[test]
fn samples_come_and_go() {
    let (area, ..) = make(300).unwrap();
    let numbers: Vec<u32> = (0..10).map(|nth| area.take(5000 + nth, 7, RATE).unwrap()).collect();
    assert_eq!(read(area).len(), 10);
    assert!(read(area).iter().all(|(_, is_in_use, was_at_peak)| *is_in_use && *was_at_peak));
    assert_eq!(area.give_back(numbers[0], RATE), Some((5000, 7)));
    assert_eq!(area.give_back(numbers[0], RATE), None);
    assert_eq!((area.give_back(0, RATE), area.give_back(u32::MAX, RATE)), (None, None));
    // It stays, since it was there at the peak.
    assert_eq!(read(area)[0], (5000, false, true));
    assert_eq!(area.peak_bytes.load(R), (5000..5010).sum::<u64>());
    // The next peak is without it, and its entry is reused.
    let next = area.take(100_000, 0, RATE).unwrap();
    assert_eq!((read(area)[0], read(area).len()), ((5001, true, true), 10));
    assert_eq!(area.take(1, 0, RATE), Some(numbers[0]));
    // That one is not part of a peak.
    assert_eq!(read(area)[0], (1, true, false));
    for number in numbers.into_iter().skip(1).chain([next]) {
        area.give_back(number, RATE).unwrap();
    }
    assert_eq!(area.live_bytes.load(R), sample::bytes_of(1, RATE) as i64);
    assert_eq!((area.count.load(R), area.missed.load(R)), (12, 0));
}

#[test]
fn there_is_room_for_so_many() {
    let (area, ..) = make(300).unwrap();
    let numbers: Vec<u32> = (0..300).map(|_| area.take(1, 1, RATE).unwrap()).collect();
    assert_eq!((area.take(1, 1, RATE), area.take(1, 1, RATE)), (None, None));
    assert_eq!(area.missed.load(R), 2);
    for number in &numbers {
        area.give_back(*number, RATE).unwrap();
    }
    // Entries of the peak are still in use; a higher peak releases them.
    let large = area.take(1 << 30, 0, RATE);
    assert!(large.is_some() || area.missed.load(R) == 3);
    assert!(read(area).len() <= 300);
}

#[test]
fn many_threads_take_and_give_back() {
    let (area, ..) = make(300).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            scope.spawn(move || {
                let mut held = Vec::new();
                for nth in 0..3000_u64 {
                    held.extend(area.take(thread << 20 | nth, thread as u32, RATE));
                    if held.len() > 20 {
                        let number = held.swap_remove(nth as usize % 20);
                        let (size, class) = area.give_back(number, RATE).unwrap();
                        assert_eq!((size >> 20, u64::from(class)), (thread, thread));
                    }
                }
                held.into_iter().for_each(|number| _ = area.give_back(number, RATE).unwrap());
            });
        }
        for _ in 0..100 {
            assert!(read(area).iter().all(|(size, ..)| size >> 20 < 4));
        }
    });
    assert_eq!((area.live_bytes.load(R), area.missed.load(R)), (0, 0));
    assert!(read(area).iter().all(|(_, is_in_use, _)| !is_in_use));
}
