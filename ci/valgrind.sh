#!/usr/bin/env bash
# Valgrind world: the library's unit and integration tests where the rseq system call does not exist and
# threads take turns; they must end in time, without a memory error and without a block of the heap that
# nothing points to any more. Tests that start themselves in a child do that outside of valgrind: refused
# system calls and limits of memory are for the program, not for its interpreter. And an optimised program that uses
# every container, lock and clock for the first time, without suppressions.
# Long: six minutes; a change of sys/, rseq/ or the start of a thread wants it.
# Needs: valgrind.
source "$(dirname "${BASH_SOURCE[0]}")/lib.bash"

limit=600 # seconds for one program
# An interpreted storm is a breeze.
export CORELOCAL_TEST_SCALE=0.002 PROPTEST_CASES=${PROPTEST_CASES:-4}
# Leaks are told and looked for in the output: as errors they would be the exit code of forked children
# too, in which nothing points to what their parent's other threads had.
options=(--quiet --error-exitcode=99 --child-silent-after-fork=yes --suppressions=ci/valgrind.supp
    --leak-check=full --show-leak-kinds=definite --errors-for-leak-kinds=none)
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT

# Programs that have nothing in memory to look at, and why; tests that cannot pass, likewise.
declare -A left_out=(
    [layering]="reads the source, uses no memory of the library's"
    [clock_page_deaths]="kills a process at every store, and each takes seconds to start here"
    [clock_ticks]="compares times that a cpu of this speed takes"
    [clock_bounds]="compares times that a cpu of this speed takes"
)
declare -A cannot=(
    [a_handler_forks_between_any_two_instructions]="valgrind has no trap flag"
    [a_vfork_child_counts_and_the_parent_goes_on]="valgrind makes a fork of a vfork"
    [alloc::debug::sampling::tests]="reckons for long, with next to no memory"
    [alloc::debug::call_stack::tests]="reads bytes of every file in memory, valgrind's own too"
    [nothing_is_in_caches_when_there_is_no_memory]="valgrind takes the limit of writable memory for its own, so a child has none"
    [threads_without_memory_go_on]="valgrind takes the limit of writable memory for its own, so a child has none"
    [little_data]="valgrind takes the limit of writable memory for its own, so a child has none"
    [clock::selector::tests]="leaves pages behind on purpose, and compares times that a cpu of this speed takes"
    [clock::convert::tests::real_ticks]="compares times that a cpu of this speed takes"
    [sys::process::program::tests::of_this_program]="valgrind shows a file of its own in place of /proc/self/cmdline"
    [clock::kernel::probe::tests]="leaves pages behind on purpose"
)

need_rust
need valgrind valgrind "runs the library's tests on a cpu without rseq"
need jq jq "reads which programs cargo built"
mapfile -t programs < <(cargo test --locked "${whole[@]}" --lib --tests --no-run --message-format json-render-diagnostics |
    jq -r 'select(.executable and .profile.test and (.package_id | test("/corelocal#"))) | .executable')
[ ${#programs[@]} -gt 0 ] || fail "cargo named no test programs for the library"

# What every user of valgrind sees of the library: the first use of each container, lock and clock, optimised, without
# our suppressions. (What a thread that still runs at the end has of libc is "possibly lost", and no error.)
cargo build --locked --release -p corelocal --example first_use
valgrind --quiet --error-exitcode=99 --leak-check=full --show-leak-kinds=definite --errors-for-leak-kinds=definite \
    "$target/release/examples/first_use" || fail "the first use of the library is reported by valgrind"

skips=()
for name in "${!cannot[@]}"; do
    echo "skipped: valgrind:$name: ${cannot[$name]}" >&2
    skips+=(--skip "$name")
done
# interpret PROGRAM NAME: into $logs.
interpret() {
    local status=0
    # Two tests at a time: valgrind runs one thread anyway, and storms bring their own.
    ci/again timeout --kill-after=10 "$limit" valgrind "${options[@]}" \
        "$1" --show-output --test-threads=2 "${skips[@]}" >"$logs/$2" 2>&1 || status=$?
    echo $status >"$logs/$2.new"
    mv "$logs/$2.new" "$logs/$2.status" # Whole, once it is there.
}

# tell NAME: shows what came of it, and notes what is wrong.
tell() {
    local fault='' log=$logs/$1
    printf '\n--- %s, at %d s\n' "$1" "$SECONDS"
    case $(<"$log.status") in
        0) ! grep -qa 'definitely lost in loss record' "$log" || fault=leaks ;;
        99) fault="memory errors" ;;
        124 | 137) fault="not done within $limit s, something waits for ever" ;;
        *) fault="tests fail" ;;
    esac
    if [ -n "$fault" ]; then
        wrong+=("$1: $fault")
        cat "$log" # Errors of memory are told by tests that pass, too.
    else
        digest <"$log"
    fi
}

wrong=() running=()
# One per cpu at a time, told in the order in which they began.
for program in "${programs[@]}"; do
    name=$(basename "$program")
    name=${name%-*}
    if [ -n "${left_out[$name]:-}" ]; then
        echo "skipped: valgrind:$name: ${left_out[$name]}" >&2
        continue
    fi
    while [ "$(jobs -pr | wc -l)" -ge "$(nproc)" ]; do
        wait -n || true
    done
    interpret "$program" "$name" &
    running+=("$name")
    while [ ${#running[@]} -gt 0 ] && [ -e "$logs/${running[0]}.status" ]; do
        tell "${running[0]}"
        running=("${running[@]:1}")
    done
done
wait
for name in "${running[@]}"; do
    tell "$name"
done
[ ${#wrong[@]} -eq 0 ] || fail "$(printf '%s; ' "${wrong[@]}")see above"
