#!/usr/bin/env bash
# C: the C library as programs get it. Its test programs with GCC and Clang, unoptimised and optimised, shared and static,
# under sanitizers, without critical sections, where the kernel refuses calls, where files cannot grow; a plugin that is
# unloaded; pkg-config and CMake; the ports in examples/c; what is exported; and `corelocal check` on sections that a C
# compiler made.
# Needs: cargo, gcc, g++, clang, cmake, pkg-config, readelf and nm, installed through apt where they are missing.
source "$(dirname "${BASH_SOURCE[0]}")/lib.bash"

need_rust
need gcc "gcc libc6-dev" "compiles C programs"
need g++ "g++ libc6-dev" "compiles C++ programs"
need clang clang "compiles C programs another way"
need cmake cmake "finds the library"
need pkg-config pkg-config "finds the library"
need readelf binutils "shows what the library needs"

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
prefix=$scratch/prefix
sources=$root/crates/corelocal-capi/tests/c
programs=(counter area histogram containers mutex rcu trace process)
warnings=(-Wall -Wextra -Wpedantic -Werror)
ci/install-capi "$prefix"
library=$prefix/lib/libcorelocal.so.0
# Other checks build it, too.
cargo build --locked "${whole[@]}" --bin corelocal
export PKG_CONFIG_PATH=$prefix/lib/pkgconfig
read -ra flags < <(pkg-config --cflags --libs corelocal)
read -ra static_flags < <(pkg-config --static --cflags --libs corelocal)
flags+=("-Wl,-rpath,$prefix/lib" -lm)

# try NAME WORD...: compiles the program by this command, and runs it. NAME has an ending if that is not .c.
count=0
try() {
    local name=${1%.cpp} source=$sources/$1 output
    [[ $1 == *.* ]] || source+=.c
    shift
    "$@" "${warnings[@]}" -pthread "$source" -o "$scratch/$name" "${link[@]}" 2>"$scratch/messages" || {
        cat "$scratch/messages"
        fail "$name: $*"
    }
    output=$(timeout -s KILL 300 "$scratch/$name" "$scratch/recording" 2>&1) || fail "$name ($*): $output"
    grep '^skipped: ' <<<"$output" || true
    count=$((count + 1))
}

link=("${flags[@]}")
for compiler in gcc clang; do
    # Where code is inline, each way to compile it.
    for level in -O0 -O1 -O3 '-O2 -fPIC'; do
        read -ra level <<<"$level"
        try counter "$compiler" -std=gnu99 "${level[@]}"
        try area "$compiler" -std=gnu99 "${level[@]}"
        try process "$compiler" -std=gnu99 "${level[@]}"
    done
    for name in "${programs[@]}"; do
        try "$name" "$compiler" -std=gnu99 -O2
    done
    for standard in c++11 c++17; do
        "${compiler/gcc/g}++" -x c++ "-std=$standard" "${warnings[@]}" -O2 -c -I"$prefix/include" \
            "$sources/headers.cpp" -o "$scratch/headers.o"
        "${compiler/gcc/g}++" "$scratch/headers.o" -o "$scratch/headers" "${flags[@]}"
        "$scratch/headers" || fail "headers.cpp, $compiler, $standard"
    done
    for level in -O0 -O2; do
        try classes.cpp "${compiler/gcc/g}++" -std=c++17 "$level"
    done
    for header in "$prefix"/include/corelocal/*; do
        # Each alone, in the oldest C.
        [[ $header != *.hpp ]] || continue
        "$compiler" -std=c99 "${warnings[@]}" -fsyntax-only -I"$prefix/include" -x c - <<<"#include \"$header\"
extern int not_empty;"
    done
done
try counter gcc -std=gnu99 -O2 -flto
try limits gcc -std=gnu99 -O2

for name in "${programs[@]}"; do
    try "$name" gcc -std=gnu99 -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all
done
try classes.cpp g++ -std=c++17 -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all
# It sees no order that the library's own code makes: programs whose threads share nothing else.
try histogram clang -std=gnu99 -O1 -g -fsanitize=thread
try counter clang -std=gnu99 -O1 -g -fsanitize=thread

link=("${static_flags[@]}")
for name in "${programs[@]}"; do
    try "$name" gcc -std=gnu99 -O2 -static
done

link=("${flags[@]}")
export EXPECT_FAST=no
for name in "${programs[@]}"; do
    CORELOCAL_RSEQ=off try "$name" gcc -std=gnu99 -O2
done
unset EXPECT_FAST
for name in "${programs[@]}"; do
    # The library registers threads itself.
    GLIBC_TUNABLES=glibc.pthread.rseq=0 try "$name" clang -std=gnu99 -O2
done
echo "$count programs of $((${#programs[@]} + 1)) sources: all passed"

gcc -O2 "${warnings[@]}" "$sources/refused.c" -o "$scratch/refused"
# refuse CALLS: runs the programs as they are where the kernel refuses the calls, with libc's registration and with ours.
refuse() {
    local name tunables status=0
    for tunables in '' glibc.pthread.rseq=0; do
        for name in "${programs[@]}"; do
            # A recording in memory is a memfd.
            [ "$1 $name" != 'memfd_create,futex_waitv trace' ] || continue
            output=$(GLIBC_TUNABLES=$tunables timeout -s KILL 300 "$scratch/refused" "$1" "$scratch/$name" \
                "$scratch/recording" 2>&1) || status=$?
            [ "$status" != 77 ] || {
                echo "skipped: refused calls: no seccomp filter can be set"
                return
            }
            [ "$status" = 0 ] || fail "$name without $1, tunables '$tunables': $output"
        done
    done
}
for calls in rseq rseq,membarrier,getcpu membarrier memfd_create,futex_waitv; do
    refuse "$calls"
done

examples/c/compare 1 2 >"$scratch/ports" 2>&1 || fail "the ports: $(cat "$scratch/ports")"

gcc -O2 -fPIC -shared "${warnings[@]}" "$sources/plugin.c" -o "$scratch/plugin.so" "${flags[@]}"
gcc -O2 -pthread "${warnings[@]}" "$sources/unloading.c" -o "$scratch/unloading" -ldl
"$scratch/unloading" "$library" "$scratch/plugin.so"
echo "unloaded while a thread slept: nothing is lost"

"$target/debug/corelocal" trace view "$scratch/recording" >"$scratch/events"
for event in 'test::work thread=7 step=-4999 odd=true half=2499.5 what="work"' 'raw=0102ff cut="caf" empty=""' 'test::off n=1'; do
    grep -qF "$event" "$scratch/events" || fail "the recording has no event $event"
done
[ "$(grep -c test::work "$scratch/events")" = 40000 ] || fail "of 40000 events there are $(grep -c test::work "$scratch/events")"

cmake -S "$root/crates/corelocal-capi/tests/cmake" -B "$scratch/cmake" -DCMAKE_PREFIX_PATH="$prefix" >/dev/null
cmake --build "$scratch/cmake" >/dev/null
"$scratch/cmake/shared" && "$scratch/cmake/static"

# What the headers declare is what is exported, and all that is.
nm -D --defined-only "$library" | awk '{ print $3 }' | sort >"$scratch/exported"
sed -nE '/^static/!s/^[a-z].*[ *](corelocal_[a-z_]+)\(.*/\1/p' "$prefix"/include/corelocal/*.h | sort -u >"$scratch/declared"
diff "$scratch/declared" "$scratch/exported" || fail "declared (<) and exported (>) differ"
needed=$(readelf -d "$library" | sed -nE 's/.*\(NEEDED\).*\[(.*)\]/\1/p' | sort | tr '\n' ' ')
[[ $needed =~ ^(ld-linux[^ ]* )?libc\.so\.6\ $ ]] || fail "the library needs more than libc: $needed"
size=$(stat -L -c %s "$library")
[ "$size" -le $((3 * 512 * 1024)) ] || fail "the library has $size bytes: at most 1.5 MiB"
echo "$(wc -l <"$scratch/exported") functions in $((size / 1024)) KiB, which need $needed"

for name in counter area; do
    gcc -O2 "${warnings[@]}" "$sources/$name.c" -pthread -o "$scratch/$name" "${flags[@]}"
done
for file in "$scratch/"{counter,area} "$scratch/plugin.so" "$library"; do
    verdict=$("$target/debug/corelocal" check --strict "$file") || fail "$verdict"
    grep -qE '^1 file, [1-9][0-9]* sections?: sound$' <<<"$verdict" || fail "$file: $verdict"
    echo "$verdict" | tail -n 1
done
