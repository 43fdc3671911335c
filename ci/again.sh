#!/usr/bin/env bash
# A test of the tests: ci/again runs a listed test again, alone, up to twice, and leaves every other failure, crash
# and sanitizer report as it is.
# Beside: it measures nothing, and builds one small program.
# Needs: rustc and a C linker.
source "$(dirname "${BASH_SOURCE[0]}")/lib.bash"

need_rust
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
# Each test fails as often as the file named after it says.
cat >"$scratch/planted.rs" <<'RUST'
fn fails(name: &str, message: &str) {
    let left = format!("{}/{name}", std::env::var("SCRATCH").unwrap());
    let times: u32 = std::fs::read_to_string(&left).map_or(0, |text| text.trim().parse().unwrap());
    std::fs::write(&left, times.saturating_sub(1).to_string()).unwrap();
    assert!(times == 0, "{message}");
}
#[test]
fn listed() {
    fails("listed", "the deadline is over");
}
#[test]
fn listed_too() {
    fails("listed_too", "the deadline is over");
}
#[test]
fn wrong_value() {
    fails("wrong_value", "7 is not 8");
}
#[test]
fn unlisted() {
    fails("unlisted", "the deadline is over");
}
#[test]
fn crash() {
    if std::env::var_os("CRASH").is_some() {
        std::process::abort();
    }
}
#[test]
fn report() {
    if std::env::var_os("REPORT").is_some() {
        eprintln!("ERROR: AddressSanitizer: planted");
        println!("ERROR: AddressSanitizer: planted");
    }
}
RUST
rustc --edition 2021 --test -o "$scratch/planted" "$scratch/planted.rs"
cat >"$scratch/list" <<'LIST'
# A comment.
planted::listed      | load: planted  | the deadline
planted::listed_too  | sleep: planted | the deadline
planted::wrong_value | load: planted  | the deadline
planted::report      | load: planted  | .
LIST
export SCRATCH=$scratch CORELOCAL_FLAKY_LIST=$scratch/list

shell=()
# expect STATUS FLAKY WHAT [VARIABLE=VALUE...]: ci/again ends with STATUS and reports FLAKY tests.
expect() {
    local status=0 flaky
    env "${@:4}" "${shell[@]}" ci/again timeout 60 "$scratch/planted" --show-output >"$scratch/log" 2>&1 </dev/null || status=$?
    flaky=$(grep -c '^flaky: ' "$scratch/log" || true)
    if [ "$status:$flaky" != "$1:$2" ]; then
        cat "$scratch/log"
        fail "$3: status $status and $flaky flaky tests, not $1 and $2"
    fi
    echo "$3: as expected"
}
# plant [TEST TIMES]...: from here on these tests fail that often.
plant() {
    rm -f "$scratch"/{listed,listed_too,wrong_value,unlisted}
    while [ $# -gt 0 ]; do
        echo "$2" >"$scratch/$1"
        shift 2
    done
}
plant
expect 0 0 "no failure"
plant listed 1
expect 0 1 "one failure of a listed test"
grep -qx 'flaky: planted::listed: load: planted' "$scratch/log" || fail "the flaky test is not reported by name"
plant listed 2 listed_too 1
expect 0 2 "two listed tests, one failing twice"
plant listed 3
expect 101 0 "three failures of a listed test"
plant unlisted 1
expect 101 0 "a test that is not listed"
plant listed 1 unlisted 1
expect 101 0 "a listed test beside one that is not"
plant wrong_value 1
expect 101 0 "a listed test that fails with other words"
plant
expect 134 0 "a crash" CRASH=1
plant listed 1
expect 101 0 "a sanitizer's report" REPORT=1
plant listed 1
# As in the guests of ci/kernels.
busybox=$root/.cache/kernels/busybox
[ -x "$busybox" ] || busybox=$(command -v busybox || true)
if [ -n "$busybox" ]; then
    mkdir "$scratch/bin"
    "$busybox" --install -s "$scratch/bin"
    shell=("$scratch/bin/sh")
    expect 0 1 "one failure of a listed test, by busybox" PATH="$scratch/bin"
else
    echo "skipped: again:busybox: there is no busybox yet; ci/kernels fetches one" >&2
fi

# Each line of the committed list has its three fields, a known chance and a regular expression that compiles.
while IFS='|' read -r name chance words rest; do
    [[ $name != '#'* ]] || continue
    [[ $name =~ ^[a-z_]+::[a-zA-Z0-9_:]+\ +$ && -z $rest ]] || fail "ci/flaky.list: not PROGRAM::TEST: $name"
    [[ $chance =~ ^\ (load|sleep):\ .+ ]] || fail "ci/flaky.list: $name: the chance is neither load nor sleep"
    [ -n "${words// /}" ] || fail "ci/flaky.list: $name: no words of the failure"
    echo | grep -qE -- "$(sed 's/^ *//; s/ *$//' <<<"$words")" || [ $? = 1 ] ||
        fail "ci/flaky.list: $name: the words are no regular expression"
    test=${name##*::}
    git grep -qE "fn ${test// /}\b" -- 'crates/*.rs' || fail "ci/flaky.list: there is no test $name"
done <ci/flaky.list
