#!/usr/bin/env bash
# Critical sections under attack: disturbed at every instruction, then at random and at full speed.
# Nothing may be lost or done twice, and no section may be forgotten.
# Needs: cargo, a C linker, ptrace(2).
source "$(dirname "${BASH_SOURCE[0]}")/lib.bash"

need_rust
cargo build --locked "${whole[@]}" --bin corelocal
corelocal=$target/debug/corelocal
# Instructions at which all went well are ten screens; what is said of a section is its name.
wrong_ones() {
    # 1: there was none.
    grep -vE '^ +-?[0-9]+ .*( +ok){7}$|^ +stop +signal ' || [ $? = 1 ]
}
status=0
"$corelocal" torture | wrong_ones || status=$?
"$corelocal" torture --for 5s || fail "a violation at full speed: see above"
[ $status != 3 ] || skip "critical sections cannot be disturbed one by one here: see above"
[ $status = 0 ] || fail "a violation, or a section that was forgotten: see above"
