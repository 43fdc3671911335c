//! Coarse times: order within a thread, on whichever core, and within a core; lengths in whole ticks.

use super::*;

const THREADS: u64 = 4;
const EVENTS: u64 = 20_000;

fn record(folder: &Path) {
    let start = corelocal::clock::realtime();
    trace::start(Options::to_disk(&path_in(folder, "trace")).coarse_times()).expect("a recording");
    let cpus = two_cpus();
    thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || {
                for nth in 0..EVENTS {
                    if nth % 64 == 0
                        && let Some(cpus) = cpus
                    {
                        move_to(cpus, (thread + nth / 64) as u32);
                    }
                    let _span = span!(test::span, thread = thread as u8, nth = nth as u16);
                    event!(test::event, thread = thread as u8, nth = nth);
                    event!(
                        test::text,
                        text = "as long as you like",
                        thread = thread as u8,
                        nth = nth
                    );
                }
            });
        }
    });
    thread::sleep(Duration::from_millis(30));
    event!(test::last, since = corelocal::clock::realtime() - start);
}

#[test]
fn coarse_times() {
    let name = "times::coarse_times";
    if let Some(folder) = child_of(name) {
        return record(&folder);
    }
    for (name_of_folder, variables) in
        [("with", [].as_slice()), ("without", &[("CORELOCAL_RSEQ", "off")])]
    {
        let folder = tempfile::tempdir().expect("a folder");
        run_well(name, folder.path(), variables);
        let recording = open(folder.path(), "trace");
        assert_eq!(recording.lost(), 0);
        let events = events(&recording);
        assert_eq!(events.len() as u64, 4 * THREADS * EVENTS + 1, "{name_of_folder}");
        let number = |event: &Event<'_>, name: &str| {
            event.fields.iter().find_map(|(of, value)| match value {
                Value::Unsigned(value) if *of == name => Some(*value),
                _ => None,
            })
        };
        // What each thread has done: in this order.
        let mut next = vec![0; THREADS as usize];
        let mut of_thread = std::collections::HashMap::new();
        for event in &events[..events.len() - 1] {
            let thread = match number(event, "thread") {
                Some(thread) => *of_thread.entry(event.thread).or_insert(thread),
                None => of_thread[&event.thread],
            };
            let nth: &mut u64 = &mut next[thread as usize];
            let what = match *nth % 4 {
                0 => ("test::span", What::Begin),
                1 => ("test::event", What::Event),
                2 => ("test::text", What::Event),
                _ => ("test::span", What::End),
            };
            assert_eq!((event.name, event.what), what, "{nth} of {thread}, {name_of_folder}");
            if event.what == What::Event {
                assert_eq!(number(event, "nth"), Some(*nth / 4));
            }
            *nth += 1;
        }
        assert!(events.is_sorted_by_key(|event| event.time));
        // Times are those of a tick, few, where threads have numbers; and those of the clock.
        let mut times: Vec<u64> = events.iter().map(|event| event.time).collect();
        times.dedup();
        let is_coarse = times.len() < events.len() / 4;
        let has_sections =
            cfg!(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"));
        let has_numbers = has_sections && !cfg!(corelocal_model);
        assert_eq!(is_coarse, has_numbers, "{} times", times.len());
        let last = events.last().expect("events");
        let since = number(last, "since").expect("the field");
        let length = last.time - events[0].time;
        let is_near = length.abs_diff(since) < 200_000_000;
        assert!(is_near, "{length} ns by the events, {since} by the clock");
    }
}
