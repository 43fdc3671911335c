//! `try-malloc PROGRAM ARGUMENTS`: programs that try the malloc they run with, by its C names.
//!
//! They know of no malloc in particular. The tests beside this run each of them with libc's, which shows
//! that what a program asks for can be had, and with corelocal's, by `LD_PRELOAD`.
//!
//! A program ends with exit code 0 and a line of what it did, or with 1 and a line of what is wrong.

mod accounts;
mod api;
mod background;
mod cross;
mod crowd;
mod destructors;
mod edges;
mod forks;
mod limits;
mod loading;
mod mixed;
mod object;
mod scripts;
mod signals;
mod space;
mod stack;
mod traced;

use std::process::ExitCode;

/// What a program gives: what it did, or what is wrong.
type Outcome = Result<String, String>;

/// A program: the numbers among its arguments, and all of them.
type Program = fn(&[u64], &[String]) -> Outcome;

/// Every program, by its name.
const PROGRAMS: &[(&str, Program)] = &[
    ("where", |_, _| Ok(api::whose())),
    ("edges", |_, _| edges::run()),
    ("scripts", |n, _| scripts::run(at(n, 0)?, at(n, 1)?)),
    ("cross", |n, _| cross::run(at(n, 0)?, at(n, 1)?)),
    ("forks", |n, _| forks::run(at(n, 0)?, at(n, 1)?)),
    ("vforks", |n, _| forks::shared(at(n, 0)?, at(n, 1)?, at(n, 2)? != 0)),
    ("spawns", |n, _| forks::spawned(at(n, 0)?, at(n, 1)?)),
    ("count", |n, _| background::count(at(n, 0)?, at(n, 1)?)),
    ("forks_in_handlers", |n, _| background::forks_in_handlers(at(n, 0)?, at(n, 1)?)),
    ("freed_twice", |_, _| background::freed_twice()),
    ("little_work", |n, _| background::little_work(at(n, 0)?)),
    ("holes", |n, _| background::holes(at(n, 0)?, at(n, 1)?)),
    ("in_a_cage", |_, text| background::in_a_cage(text)),
    ("near_limit", |n, _| background::near_limit(at(n, 0)?)),
    ("real_time", |_, _| background::real_time()),
    ("refused_thread", |_, _| background::refused_thread()),
    ("signals", |n, _| signals::run(at(n, 0)?, at(n, 1)?)),
    ("destructors", |n, _| destructors::run(at(n, 0)?)),
    ("loading", |n, text| loading::run(text, at(n, 0)?)),
    ("fill", |n, text| limits::fill(text, at(n, 0)?, at(n, 1)?)),
    ("refused", |n, _| space::refused(at(n, 0)?, at(n, 1)?)),
    ("small", |n, _| space::small(at(n, 0)?)),
    ("later", |n, _| space::later(at(n, 0)?)),
    ("accounts", |_, _| accounts::accounts()),
    ("room_for_others", |n, _| space::room_for_others(at(n, 0)?, at(n, 1)?)),
    ("locked", |n, _| space::locked(at(n, 0)?)),
    ("locked_by_steps", |_, _| space::locked_by_steps()),
    ("unlocked", |_, _| space::unlocked()),
    ("mixed", |_, text| mixed::mixed(text)),
    ("crowd", |n, _| crowd::crowd(at(n, 0)?)),
    ("member", |_, _| crowd::member()),
    ("stack", |n, _| stack::stack(at(n, 0)?, at(n, 1)?)),
    ("shortest_stack", |_, _| stack::shortest_stack()),
    ("traced", |_, _| traced::traced()),
    ("shortage", |n, _| limits::shortage(at(n, 0)?, at(n, 1)?)),
];

fn at(numbers: &[u64], nth: usize) -> Result<u64, String> {
    numbers.get(nth).copied().ok_or_else(|| "a number is missing".to_owned())
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let numbers: Vec<u64> = args.iter().filter_map(|arg| arg.parse().ok()).collect();
    let name = args.first().map_or("", String::as_str);
    let Some((_, program)) = PROGRAMS.iter().find(|(known, _)| *known == name) else {
        let names: Vec<&str> = PROGRAMS.iter().map(|(name, _)| *name).collect();
        eprintln!("which program? one of {}", names.join(", "));
        return ExitCode::from(2);
    };
    match program(&numbers, &args[1..]) {
        Ok(did) => {
            println!("{did}");
            ExitCode::SUCCESS
        }
        Err(wrong) => {
            eprintln!("wrong: {wrong}");
            ExitCode::FAILURE
        }
    }
}
