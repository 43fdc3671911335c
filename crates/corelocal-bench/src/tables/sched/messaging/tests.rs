//! Tests of `messaging.rs`.

use super::*;

fn load(tasks: Tasks, registered: bool) -> Load {
    Load { tasks, registered, groups: 2, loops: 3 }
}

/// Whether threads of this process are registered, with or without the library's help.
fn registrable() -> Option<bool> {
    is_registered().ok()?;
    Some(Registration::of_this_thread().refusal.is_none())
}

#[test]
fn every_message_arrives() {
    let Some(registered) = registrable() else {
        eprintln!("skipped: every_message_arrives: no rseq here");
        return;
    };
    for tasks in [Tasks::Processes, Tasks::Threads] {
        assert!(load(tasks, registered).run().unwrap() > Duration::ZERO);
    }
    // Had a sender written more or a receiver read less, bytes would be left.
    let stage = Arc::new(Stage::set(load(Tasks::Threads, registered)).unwrap());
    let tasks: Vec<_> = (0..stage.load.count())
        .map(|index| {
            let stage = stage.clone();
            thread::spawn(move || stage.task(index))
        })
        .collect();
    stage.begin().unwrap();
    for task in tasks {
        task.join().unwrap().unwrap();
    }
    for (_, receiver) in &stage.channels {
        receiver.set_nonblocking(true).unwrap();
        let left = (&mut &*receiver).read(&mut [0]).map_err(|error| error.kind());
        assert_eq!(left, Err(io::ErrorKind::WouldBlock));
    }
}

#[test]
fn the_wrong_registration_is_a_reason() {
    if is_registered() != Ok(true) {
        eprintln!("skipped: the_wrong_registration_is_a_reason: libc does not register here");
        return;
    }
    for tasks in [Tasks::Processes, Tasks::Threads] {
        let error = load(tasks, false).run().unwrap_err().to_string();
        assert!(error.contains(WITHOUT), "{error}");
    }
}

#[test]
fn arguments_come_across() {
    let text = serde_json::to_string(&load(Tasks::Threads, true)).unwrap();
    let back: Load = serde_json::from_str(&text).unwrap();
    assert_eq!(
        (back.tasks, back.registered, back.count(), back.loops),
        (Tasks::Threads, true, 80, 3)
    );
    assert!(child(&[]).is_err());
}
