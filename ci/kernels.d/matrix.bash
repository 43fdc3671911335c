# What ci/kernels tells about its guests. Sourced, never run. A guest is named by LOG, the common
# beginning of its files: LOG.results (records, see the head of runs), LOG.console, LOG.status.

# verdict LOG: one word.
verdict() {
    awk -v status="$(cat "$1.status")" '
        $1 == "ran" && $3 != 0 || $1 == "disturbed" && $3 == 0 { failed = 1 }
        $1 == "end" { ended = 1 }
        END {
            if (!ended) print (status == 124 || status == 137 ? "hangs" : "died")
            else print (failed ? "failed" : "passed")
        }
    ' "$1.results"
}

# explain LOG: the last lines of the console, and which programs and tests failed: last, where one looks.
explain() {
    printf '\n%s, cpus %s: %s\n' "$(kernel "$1")" "$(cpus "$1")" "$(verdict "$1")"
    echo "  the console ended with:"
    tail -n 25 "$1.console" | tr -d '\r' | sed 's/^/    /'
    awk '
        $1 == "ran" && ($3 == 137 || $3 == 143) { print "  " $2 ": not done in time" }
        $1 == "ran" && $3 != 0 && $3 != 137 && $3 != 143 { print "  " $2 ": status " $3 }
        $1 == "failed" { print "  " $2 ": " $3 }
        $1 == "disturbed" && $3 == 0 { print "  " $2 ": was never disturbed" }
    ' "$1.results"
}

# kernel LOG, cpus LOG: what the name says.
kernel() {
    basename "${1%-*}"
}
cpus() {
    echo "${1##*-}"
}

# records NAME LOG: the rest of the lines of that name.
records() {
    sed -n "s/^$1 //p" "$2.results"
}

# columns: lines of cells between tabs, the first one the heading, as an aligned Markdown table.
columns() {
    awk -F '\t' '
        { for (i = 1; i <= NF; i++) { cell[NR, i] = $i; if (length($i) > width[i]) width[i] = length($i) } }
        END {
            for (row = 1; row <= NR; row++) {
                for (i = 1; i <= NF; i++) printf "| %-*s ", width[i], cell[row, i]
                print "|"
                if (row > 1) continue
                for (i = 1; i <= NF; i++) { printf "|"; for (n = width[i] + 2; n > 0; n--) printf "-" }
                print "|"
            }
        }
    '
}

# results LOG...: kernel x shape x result.
results() {
    local log
    {
        printf 'kernel\tcpus\tresult\ttests passed\tnot run\ttriples\tstorm operations\tcpus unplugged\tcpuset changes\tseconds\n'
        for log; do
            printf '%s\t%s\t%s\t' "$(kernel "$log")" "$(cpus "$log")" "$(verdict "$log")"
            awk '
                $1 == "ran" { passed += $4 }
                $1 == "skipped" { skipped++ }
                $1 == "triples" { triples = $2 }
                $1 == "operations" { operations += $2 }
                $1 == "disturbed" { times[$2] = $3 }
                $1 == "end" { seconds = $2 }
                function known(value) { return value == "" ? "-" : value }
                END {
                    printf "%d\t%d\t%s\t%d\t%s\t%s\t%s\n", passed - skipped, skipped, known(triples),
                        operations, known(times["storm-unplug"]), known(times["storm-cpuset"]), known(seconds)
                }
            ' "$log.results"
        done
    } | columns
}

# seen LOG...: what doctor saw, once for each kernel: nothing of it depends on the number of cpus.
seen() {
    local log last=
    {
        printf 'kernel\trseq by libc\trseq by corelocal\tmm_cid\tmembarrier rseq\tfutex\tslice extension\tclock source\n'
        for log; do
            [ "$(kernel "$log")" != "$last" ] || continue
            last=$(kernel "$log")
            { records doctor "$log" && records own "$log"; } | jq -rs '
                def word(yes): if yes then "yes" else "no" end;
                def registration: "\(.owner), \(.len) bytes, \(.abi)";
                select(length == 2) | map(.caps) as [$libc, $own] | [
                    $libc.kernel,
                    ($libc.rseq | registration),
                    ($own.rseq | registration),
                    word($libc.rseq.mm_cid),
                    word($libc.membarrier_rseq),
                    ([$libc.futex | to_entries[] | select(.value).key] | join(" ")),
                    word($own.rseq.slice_available),
                    .[0].surroundings.clocksource
                ] | @tsv'
        done
    } | columns
}

# ids LOG...: the largest ids that 16 threads met.
ids() {
    local log
    {
        printf 'kernel\tcpus\tmm_cid\tcpu_id\tconfined late: mm_cid\tcpu_id\n'
        for log; do
            printf '%s\t%s\t' "$(kernel "$log")" "$(cpus "$log")"
            { records 'ids Free' "$log" && records 'ids ConfinedLate' "$log"; } |
                jq -rs 'map(.mm_cid // "none", .cpu_id) | @tsv'
        done
    } | columns
}

# memory LOG...: what per-core data takes when so many of the most cpus are used.
memory() {
    local log most
    most=$(for log; do cpus "$log"; done | sort -n | tail -n 1)
    {
        printf 'kernel\tcpus used\tby cpu_id\tby mm_cid\tby slot\t64 counters\thistogram\tstack\tqueue\n'
        for log; do
            [ "$(cpus "$log")" = "$most" ] || continue
            records memory "$log" | jq -r --arg kernel "$(kernel "$log")" '
                def array: if . then 4 * (.largest + 1) else "none" end;
                def kib: . / 1024;
                [$kernel, .cpus, (.cpu_id | array), (.mm_cid | array), (.slot | array),
                    (.containers | .counters, .histogram, .stack, .queue | kib)] | @tsv'
        done
    } | columns
}

# tests_with RECORD LOG...: the tests of which there is such a record, and where.
tests_with() {
    local record=$1 log
    shift
    for log; do
        records "$record" "$log" | sed "s/^/$(kernel "$log")\t/"
    done | sort -Vu | awk -F '\t' '
        { where[$2] = where[$2] (where[$2] ? ", " : "") $1 }
        END { for (test in where) print "- " where[test] ": " test }
    ' | sort -V
}

# matrix LOG...: everything, for the terminal and the page.
matrix() {
    results "$@"
    printf '\nWhat corelocal doctor saw:\n\n'
    seen "$@"
    printf '\nThe largest ids that 16 threads met, free and confined to one cpu after running free:\n\n'
    ids "$@"
    printf '\nKiB that a page for each id takes, and containers take, in a process confined to the last of the\n'
    printf "most cpus:\n\n"
    memory "$@"
    printf '\nTests that could not run:\n\n'
    tests_with skipped "$@"
    if grep -q '^flaky ' "${@/%/.results}"; then
        printf '\nTests that failed, and passed when run again alone:\n\n'
        tests_with flaky "$@"
    fi
}

# matrix_page LOG...: docs/kernel-matrix.md.
matrix_page() {
    cat <<PAGE
# Other kernels

Made by \`ci/kernels --full\` on $(date -u +%Y-%m-%d); not to be edited. The guests run under QEMU $(
        # shellcheck disable=SC2154 # ci/kernels sets it.
        "${qemu[@]}" --version | sed -n '1s/.*version \([0-9.]*\).*/\1/p'
    ), in
software: they show behaviour, never speed. Those of arm64: [kernel-matrix-arm64.md](kernel-matrix-arm64.md).

$(matrix "$@")
PAGE
}

# agreements LOG...: docs/kernel-agreement.md.
agreements() {
    local log
    cat <<PAGE
# Models and kernels

Made by \`ci/kernels --models\` on $(date -u +%Y-%m-%d); not to be edited. Each number says how many random cases were the
same in a model of \`corelocal lab\` and in the kernel; one difference is a failed test. [kernel-halves.md](kernel-halves.md)
says what is compared, and explains where kernels differ.

PAGE
    for log; do
        records agreement "$log" | sed "s/^/$(kernel "$log") | /"
    done | awk -F ' [|] ' -v kernels="$(for log; do kernel "$log"; done | tr '\n' ' ')" '
        {
            if (!(($2, $4) in known)) { known[$2, $4]; what[++rows] = $2 " | " $4 }
            number[$2 " | " $4, $1] = $3
        }
        END {
            count = split(kernels, kernel, " ")
            printf "compared\teach"
            for (i = 1; i <= count; i++) printf "\t%s", kernel[i]
            print ""
            for (row = 1; row <= rows; row++) {
                split(what[row], part, " [|] ")
                printf "%s\t%s", part[1], part[2]
                for (i = 1; i <= count; i++)
                    printf "\t%s", (what[row], kernel[i]) in number ? number[what[row], kernel[i]] : "-"
                print ""
            }
        }
    ' | columns
    printf '\nWhat happened in them:\n\n'
    {
        printf 'compared\tkernel\tseen\n'
        for log; do
            records agreement "$log" | awk -F ' [|] ' -v kernel="$(kernel "$log")" '{ print $1 "\t" kernel "\t" $4 }'
        done | sort -t "$(printf '\t')" -k 1,1 -s
    } | columns
    printf '\nNot compared:\n\n'
    tests_with skipped "$@"
}
