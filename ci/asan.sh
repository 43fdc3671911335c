#!/usr/bin/env bash
# AddressSanitizer world: the library's unit and integration tests, where a use after free, an access
# out of bounds of the stack or the heap, and what a program leaves behind on the heap are faults.
# It does not see what happens inside the library's own memory, which comes from mmap, nor what
# critical sections access, which are assembly: for these there are drop counts in the tests, the model
# and `corelocal torture`. Children of tests end without a look at leaks.
# Long: six minutes for a world in which no user runs.
# Builds in: asan
# Needs: a compiler whose target has the sanitizer's runtime (rustup's for x86-64 and arm64 Linux, stable
# or nightly), ptrace(2) for the search for leaks.
source "$(dirname "${BASH_SOURCE[0]}")/lib.bash"

# Storms of a twentieth, since an access costs twice as much and more.
export CORELOCAL_TEST_SCALE=0.05 PROPTEST_CASES=${PROPTEST_CASES:-32}

# Tests that cannot pass here, and why. Names are matched as `--skip` does: in part.
declare -A cannot=(
    [queues_come_and_go]="measures resident memory, of which the sanitizer keeps what is freed"
    [segments_come_again]="measures resident memory, which the sanitizer uses, too"
    [clock::kernel::probe::tests]="leaves, on purpose, what stands for the kernel's pages behind"
    [clock::selector::tests]="leaves, on purpose, what stands for the kernel's pages behind"
    [a_trim_gives_back_what_was_drained]="measures resident memory, which the sanitizer uses, too"
    [little_address_space]="limits the address space, of which the sanitizer takes terabytes"
    [nothing_is_in_caches_when_there_is_no_memory]="limits the address space, of which the sanitizer takes terabytes"
    [threads_without_memory_go_on]="limits the address space, of which the sanitizer takes terabytes"
    [under_check]="runs the tests of limits again"
    [under_guard]="runs the tests of limits again"
    [under_nodes]="runs the tests of limits again"
    [behind_the_end]="ends by a signal, which the sanitizer handles"
    [before_the_beginning]="ends by a signal, which the sanitizer handles"
    [read_after_it_was_freed]="ends by a signal, which the sanitizer handles"
    [written_by_another_thread]="ends by a signal, which the sanitizer handles"
    [little_data]="limits writable memory, of which the sanitizer takes terabytes"
    [locked_chunks_are_kept]="locks memory, which the sanitizer makes a call without effect"
    [memory_of_all_nodes_goes_back]="measures resident memory, which the sanitizer uses, too"
    [memory_follows_the_cores_and_goes_with_the_area]="measures resident memory, which the sanitizer uses, too"
)

need_rust
host=$(host)
runtime=$(rustc --print target-libdir)/librustc
compgen -G "$runtime*_rt.asan.a" >/dev/null || skip "this compiler brings no sanitizer for $host"
# An unstable flag, which a stable compiler takes in a build that says so. With --target, so that build
# scripts and procedural macros stay as they are.
export RUSTC_BOOTSTRAP=1 RUSTFLAGS="-Zsanitizer=address" CARGO_TARGET_DIR=$target/asan
export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_stack_use_after_return=1}

# A sanitizer that says nothing of planted faults would say nothing of ours.
planted=$(mktemp -d)
trap 'rm -rf "$planted"' EXIT
cat >"$planted/main.rs" <<'RUST'
fn main() {
    let words = std::hint::black_box(vec![7u64; 4]);
    let first = std::hint::black_box(words.as_ptr());
    match std::env::args().nth(1).as_deref() {
        Some("freed") => {
            drop(words);
            println!("{}", unsafe { first.read_volatile() });
        }
        Some("leaked") => std::mem::forget(words),
        _ => {}
    }
}
RUST
# shellcheck disable=SC2086 # Flags, of which there may be several.
rustc --edition 2021 --target "$host" $RUSTFLAGS -o "$planted/main" "$planted/main.rs"
# notices FAULT WORDS: the sanitizer reports the planted FAULT in these WORDS.
notices() {
    ! "$planted/main" "$1" >"$planted/log" 2>&1 && grep -q "$2" "$planted/log"
}
"$planted/main" >"$planted/log" 2>&1 ||
    if grep -q 'LeakSanitizer' "$planted/log"; then
        export ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=0
        "$planted/main" || skip "a program with the sanitizer does not run here"
        echo "skipped: asan-leaks: the search for leaks needs ptrace(2), which is refused here" >&2
    else
        skip "a program with the sanitizer does not run here: $(tail -n 1 "$planted/log")"
    fi
notices freed heap-use-after-free || fail "the sanitizer does not notice a planted use after free"
[[ $ASAN_OPTIONS == *detect_leaks=0* ]] || notices leaked 'detected memory leaks' ||
    fail "the sanitizer does not notice a planted leak"

skips=()
for name in "${!cannot[@]}"; do
    echo "skipped: asan:$name: ${cannot[$name]}" >&2
    skips+=(--skip "$name")
done
cargo_test -p corelocal --all-features --lib --tests --target "$host" -- "${skips[@]}" | to_the_end tee "$planted/log"
! grep -qE 'ERROR: (Address|Leak)Sanitizer' "$planted/log" || fail "a report in a child of a test: see above"
