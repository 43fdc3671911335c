#!/usr/bin/env bash
# Protocols: Spin searches every state of the models beside the code (*.pml), and finds the fault in each of
# their mutants.
# Beside: it measures nothing, and builds nothing with cargo.
# Needs: spin and a C compiler.
source "$(dirname "${BASH_SOURCE[0]}")/lib.bash"

need spin spin "searches the models"
need cc "gcc libc6-dev" "compiles what Spin makes of a model"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# search MODEL MUTANT: prints what Spin says of it; fails if the search was not done.
search() {
    cp "$1" "$scratch/model.pml"
    (
        cd "$scratch"
        spin "-DMUTANT=$2" -a model.pml && cc -O2 -DSAFETY -DCOLLAPSE -o pan pan.c && ./pan -m1000000
    ) >"$scratch/said" 2>&1 || true
    grep -q 'errors: ' "$scratch/said" || {
        cat "$scratch/said" >&2
        fail "Spin could not search $1 with MUTANT=$2"
    }
}

for model in $(git ls-files '*.pml'); do
    search "$model" 0
    if ! grep -q 'errors: 0' "$scratch/said" || grep -q 'search not completed\|max search depth' "$scratch/said"; then
        cat "$scratch/said" >&2
        fail "$model: a state that must not be"
    fi
    echo "$model: $(sed -n 's/^ *\([0-9]*\) states, stored.*/\1/p' "$scratch/said") states, none wrong"
    mutants=0
    while read -r _ name number _; do
        search "$model" "$number"
        ! grep -q 'errors: 0' "$scratch/said" || fail "$model: the fault $name is not found"
        mutants=$((mutants + 1))
    done < <(grep -E '^#define [A-Z_]+ +[0-9]+ +/\*' "$model")
    [ "$mutants" -gt 0 ] || fail "$model has no mutants: a search that finds nothing proves nothing"
    echo "$model: all $mutants mutants found"
done
