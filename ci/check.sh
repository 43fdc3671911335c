#!/usr/bin/env bash
# Critical sections: `corelocal check` finds nothing in our own machine code: the command, the
# static one where another check has built it, a shared object with the library in it, the malloc as programs
# load it, and the library's archive.
# Needs: cargo and a C linker.
source "$(dirname "${BASH_SOURCE[0]}")/lib.bash"

need_rust
[ "$(uname -m)" = x86_64 ] || skip "there is no machine code of ours to check on $(uname -m)"
cargo build --locked "${whole[@]}" --lib --bin corelocal --example plugin
cargo build -p corelocal-malloc --locked --release
malloc=$target/release/libcorelocal_malloc.so
programs=("$target/debug/corelocal" "$target/debug/examples/libplugin.so" "$malloc")
static=$target/static/$(host)/debug/corelocal
[ ! -e "$static" ] || programs+=("$static")

check=("$target/debug/corelocal" check --strict)
for program in "${programs[@]}"; do
    verdict=$("${check[@]}" "$program") || fail "$verdict"
    echo "$verdict"
    # Without sections nothing was checked.
    grep -qE '^1 file, [1-9][0-9]* sections?: sound$' <<<"$verdict" ||
        fail "no critical sections in $program"
done
# The example has a fault, and without it none.
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cc -c -O2 -g examples/counter.c -o "$scratch/counter.o"
sed 's/lock addq/addq/' examples/counter.c >"$scratch/sound.c"
cc -c -O2 -g "$scratch/sound.c" -o "$scratch/sound.o"
verdict=$("$target/debug/corelocal" check "$scratch/counter.o") && fail "examples/counter.c: $verdict"
grep -q 'error: locked in count' <<<"$verdict" || fail "examples/counter.c: $verdict"
"${check[@]}" "$scratch/sound.o"
# Programs of others, with and without sections: nothing in them is an error.
foreign=0
for program in /bin/{bash,cat,cp,ls,sed,tar,grep} /usr/bin/{env,find,perl,python3,git,gdb,ld,as,cc} /usr/lib/*/lib{c.so.6,stdc++.so.6,lttng-ust.so.1}; do
    [ -e "$program" ] || continue
    verdict=$("$target/debug/corelocal" check "$program") || fail "$program: $verdict"
    foreign=$((foreign + 1))
done
[ "$foreign" -ge 10 ] || fail "only $foreign programs of others were found"
echo "$foreign programs of others: no error"
# Most sections are inlined into programs; the archive has what is left.
"${check[@]}" "$target/debug/libcorelocal.rlib"
