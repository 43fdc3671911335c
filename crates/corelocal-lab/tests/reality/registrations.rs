//! 500 random sequences of `rseq(2)`: results, errors and words.
//!
//! They run in a child whose libc registers nothing: `GLIBC_TUNABLES=glibc.pthread.rseq=0`.

use std::collections::BTreeMap;
use std::process::Command;

use corelocal_lab::sim::random::Numbers;
use corelocal_lab::sim::rseq::registration::{
    Abi, Call, Refusal, Registration, SLICE_DEFAULT_ON, UNREGISTER,
};

use crate::common::agree;

const CHILD: &str = "CORELOCAL_TEST_REGISTRATIONS";
const SEQUENCES: u64 = 500;
const CALLS: usize = 12;

/// Two areas, as aligned as any kernel wants.
#[repr(C, align(256))]
struct Areas([[u32; 32]; 4]);

/// cpu_id_start, cpu_id, node_id, mm_cid.
const FIELDS: [usize; 4] = [0, 1, 5, 6];

#[test]
fn registrations() {
    if std::env::var_os(CHILD).is_some() {
        return compare();
    }
    let program = std::env::current_exe().expect("the file of this program");
    let mut child = Command::new(program);
    child.args(["--exact", "registrations::registrations", "--nocapture"]);
    let output = child
        .env(CHILD, "1")
        .env("GLIBC_TUNABLES", "glibc.pthread.rseq=0")
        // With one thread its output would begin within a line of the harness.
        .env("RUST_TEST_THREADS", "2")
        .output()
        .expect("a child");
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    let passes_on = |line: &&str| line.starts_with("skipped") || line.starts_with("agreement");
    text.lines().filter(passes_on).for_each(|line| println!("{line}"));
}

fn rseq(call: Call) -> i32 {
    // SAFETY: an area that lives as long as it is registered, or an address that is refused.
    let result = unsafe {
        libc::syscall(libc::SYS_rseq, call.address, call.length, call.flags, call.signature)
    };
    if result == 0 { 0 } else { std::io::Error::last_os_error().raw_os_error().unwrap_or(-1) }
}

fn errno(answer: Result<(), Refusal>) -> i32 {
    match answer {
        Ok(()) => 0,
        Err(Refusal::Invalid) => libc::EINVAL,
        Err(Refusal::Signature) => libc::EPERM,
        Err(Refusal::Busy) => libc::EBUSY,
        Err(Refusal::Fault) => libc::EFAULT,
    }
}

fn compare() {
    let mut areas = Box::new(Areas([[0; 32]; 4]));
    let base = areas.0.as_mut_ptr() as u64;
    // SAFETY: the auxiliary vector has these entries, or 0.
    let [feature_size, align] = [27, 28].map(|entry| unsafe { libc::getauxval(entry) } as u32);
    let none = Call { address: base + 8, length: 32, flags: 0, signature: 0 };
    match rseq(none) {
        libc::EINVAL => {}
        libc::EBUSY => {
            return eprintln!("skipped: registrations: libc has registered an area all the same");
        }
        other => return eprintln!("skipped: registrations: rseq(2) answers {other}"),
    }
    // Which of the two kinds it is was changed in stable kernels, too, so the version does not tell.
    let reads_area = rseq(Call { address: 0, ..none }) != 0;
    let area = Call { address: base, ..none };
    let has_slices = rseq(Call { flags: SLICE_DEFAULT_ON, ..area }) == 0;
    assert!(
        !has_slices || rseq(Call { flags: UNREGISTER, ..area }) == 0,
        "a registration that does not end"
    );
    let abi = Abi { feature_size, align, reads_area, has_slices };
    pin();
    // SAFETY: no preconditions.
    let cpu = unsafe { libc::sched_getcpu() } as u32;
    let mut numbers = Numbers(1);
    let mut differences = Vec::new();
    let mut seen: BTreeMap<i32, usize> = BTreeMap::new();
    for sequence in 0..SEQUENCES {
        let mut registration = Registration::default();
        let mut script = Vec::new();
        for _ in 0..CALLS {
            let call = draw(&mut numbers, base, &registration, &script);
            let kernel = rseq(call);
            // Null is not mapped, and what belongs to the kernel is not for us.
            let is_mapped = |address| address >= base && address < base + 512;
            let model = errno(registration.call(abi, call, is_mapped));
            script.push(call);
            let same_words = !differs(&registration, &areas, base, cpu);
            *seen.entry(kernel).or_default() += 1;
            if kernel != model || !same_words {
                let words = if same_words { "" } else { ", and other words" };
                differences.push(format!(
                    "sequence {sequence}: {call:x?}: kernel {kernel}, model {model}{words}"
                ));
                break;
            }
        }
        // Whichever call has registered the area can end that.
        let mut ends = script.iter().map(|call| Call { flags: UNREGISTER, ..*call });
        let _ = registration.address().is_none() || ends.any(|end| rseq(end) == 0);
        areas.0 = [[0; 32]; 4];
    }
    for answer in [0, libc::EINVAL, libc::EPERM, libc::EBUSY, libc::EFAULT] {
        assert!(seen.contains_key(&answer), "no call was answered by {answer}");
    }
    assert!(differences.is_empty(), "{differences:#?}");
    let refused = seen.values().sum::<usize>() - seen[&0];
    agree(
        "registrations by rseq(2)",
        SEQUENCES as u32,
        "random sequence of 12 calls",
        format_args!("{} accepted, {refused} refused with four errors", seen[&0]),
    );
}

/// A call that is often the right one.
fn draw(numbers: &mut Numbers, base: u64, registration: &Registration, script: &[Call]) -> Call {
    let mut one_of = |of: &[u64]| of[numbers.below(of.len())];
    let again = script
        .iter()
        .rev()
        .find(|call| Some(call.address) == registration.address() && call.flags == 0);
    let call = Call {
        address: base + one_of(&[0, 0, 0, 128, 128, 32, 8]),
        length: one_of(&[32, 32, 32, 33, 40, 64, 28, 20, 0]) as u32,
        flags: one_of(&[0, 0, 0, 1, 1, 2, 3, 4]) as u32,
        signature: one_of(&[7, 7, 7, 8]) as u32,
    };
    match (one_of(&[0, 1, 2, 3, 4, 5]), again) {
        (0 | 1, Some(&again)) => Call { flags: call.flags, ..again },
        (2, _) => Call { address: one_of(&[0, 0xffff_8000_0000_0000]), ..call },
        _ => call,
    }
}

/// Whether the words are not what the model says.
fn differs(registration: &Registration, areas: &Areas, base: u64, cpu: u32) -> bool {
    (0..4).any(|nth| {
        let address = base + 128 * nth;
        // SAFETY: an area; the kernel writes to it between instructions of this thread.
        let word =
            |field: usize| unsafe { (&raw const areas.0[nth as usize][field]).read_volatile() };
        let words = FIELDS.map(word);
        if registration.address() == Some(address) {
            return words[..2] != [cpu, cpu] || words[3] >= 8192;
        }
        // Never used, or reset.
        words != [0; 4] && words != [0, u32::MAX, 0, 0]
    })
}

fn pin() {
    // SAFETY: a set of this size; the calling thread.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(libc::sched_getcpu() as usize, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set);
    }
}
