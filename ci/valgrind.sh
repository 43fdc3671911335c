#!/usr/bin/env bash
# Valgrind world: the library's unit tests where the rseq system call does not exist and threads
# take turns; they must end in time and without a memory error.
# Needs: valgrind.
source "$(dirname "${BASH_SOURCE[0]}")/lib.bash"

limit=300 # seconds

need_rust
need valgrind valgrind "runs the library's tests on a cpu without rseq"
program=$(cargo test -p corelocal --all-features --locked --lib --no-run 2>&1 | tee /dev/stderr |
    sed -n 's/^ *Executable unittests .*(\(.*\))$/\1/p')
[ -x "$program" ] || fail "cargo named no test program for the library"
status=0
timeout --kill-after=10 "$limit" valgrind --quiet --error-exitcode=99 --child-silent-after-fork=yes \
    "$program" --show-output 2>&1 | without_name_list || status=$?
case $status in
    0) ;;
    99) fail "valgrind reports memory errors: see above" ;;
    124 | 137) fail "the tests did not end within $limit s under valgrind: something waits for ever" ;;
    *) fail "tests fail under valgrind: see above" ;;
esac
