#!/usr/bin/env bash
# Plain language: comments and documents name the thread, process or caller that acts, instead of "who", "whoever",
# "nobody" or "somebody", and documents have no sentences of more than 35 words. The numbers below may only fall.
# Each crate that is used has its reason in docs/design/library.md. In each room, 9 of 10 documented functions begin with a
# verb in the third person: "Returns", "Writes", "Waits until".
# Beside: it measures nothing, and builds nothing with cargo.
# Needs: git and awk.
source "$(dirname "${BASH_SOURCE[0]}")/lib.bash"

# At most so many lines of comments and of documents with one of the words, and so many long sentences.
most_comments=0
most_documents=0
most_sentences=0

words='(^|[^[:alnum:]_])([Ww]ho|[Ww]hoever|[Nn]obody|[Ss]omebody)([^[:alnum:]_]|$)'

# comments FILE...: FILE:LINE:TEXT of each comment with one of the words.
comments() {
    awk -v words="$words" '
        match($0, /^[[:space:]]*\/\/|[[:space:]]\/\/ /) && substr($0, RSTART) ~ words {
            print FILENAME ":" FNR ":" $0
        }' "$@"
}

# lines FILE...: the same of documents, without blocks of code.
lines() {
    awk -v words="$words" '
        FNR == 1 { code = 0 }
        /^ *```/ { code = !code }
        !code && $0 ~ words { print FILENAME ":" FNR ":" $0 }' "$@"
}

# sentences FILE...: FILE: SENTENCE of each with more than 35 words. Blocks of code, tables and headings have none;
# an item of a list is a paragraph of its own.
sentences() {
    awk '
        function count(text, parts, words, n, i, j) {
            gsub(/`[^`]*`/, "code", text)
            gsub(/\]\([^)]*\)/, "]", text)
            n = split(text, parts, /[.!?:;]["'"'"')*]*[[:space:]]+/)
            for (i = 1; i <= n; i++) {
                j = split(parts[i], words, /[[:space:]]+/)
                if (j > 35) print name ": " parts[i]
            }
        }
        function flush() { if (paragraph != "") count(paragraph); paragraph = "" }
        FNR == 1 { flush(); code = 0; name = FILENAME }
        /^ *```/ { flush(); code = !code; next }
        code { next }
        /^ *(\||#|$|<)/ { flush(); next }
        /^ *([-*]|[0-9]+\.) / { flush() }
        { sub(/^ *([-*]|[0-9]+\.)? */, ""); paragraph = paragraph " " $0 }
        END { flush() }' "$@"
}

# at_most NUMBER WHAT: standard input has at most so many lines.
at_most() {
    local found
    found=$(cat)
    local number
    number=$(grep -c . <<<"$found" || true)
    if [ "$number" -gt "$1" ]; then
        printf '%s\n' "$found" >&2
        fail "$number $2, where at most $1 may be: name the thread, process, caller or owner that acts, and split long sentences"
    fi
    echo "$number $2, at most $1"
    [ "$number" -ge "$1" ] || echo "write the new number into ci/words.sh"
}

# dependencies FILE...: the crates that these Cargo.toml name, without ours.
dependencies() {
    awk '
        /^\[/ { on = /dependencies\]$/ }
        on && /^[A-Za-z0-9_-]+[ .]*=|^[A-Za-z0-9_-]+\.workspace/ { split($0, parts, /[ .=]/); print parts[1] }' "$@" |
        grep -v '^corelocal' | sort -u
}

# unlisted FILE...: those of them that the table of reasons does not have.
unlisted() {
    comm -23 <(dependencies "$@") <(
        sed -n '/^## Dependencies/,/^## Rust/p' docs/design/library.md | grep '^|' | cut -d'|' -f2 |
            sed 's/([^)]*)//g; s/[ `]//g; s/[,;]/\n/g' | sort -u
    )
}

# functions FILE...: ROOM, FILE:LINE:TEXT and whether it is a verb, of the first line of each function's documentation. A
# room is a folder of the library, or a crate. Tests and models have names that say it.
functions() {
    awk '
        BEGIN {
            split("This Its As Is Was Has Unless Less Always Bytes Words Slots Nanoseconds Microseconds Milliseconds Seconds " \
                "Cpus Names Pages Threads Ours Others Statistics Cores Chunks Objects Values Ticks Lines Readers Units " \
                "Processes Kinds Figures Contestants Costs Files Events Address Samples Columns Ids Tables Arguments " \
                "Settings Spans Bits Guards Ways Access", list, " ")
            for (i in list) noun[list[i]] = 1
        }
        function reset() { first = ""; test = 0 }
        FNR == 1 {
            reset(); attribute = 0
            n = split(FILENAME, part, "/")
            room = part[2] == "corelocal" ? part[4] : part[2]
            sub(/\.rs$/, "", room)
        }
        attribute { attribute = !/\]$/; next }
        /^ *\/\/\// { if (!documented) { first = $0; sub(/^ *\/\/\/ ?/, "", first); at = FNR } documented = 1; next }
        { documented = 0 }
        /^ *#\[/ { if (/#\[test\]/) test = 1; attribute = !/\]( \/\/.*)?$/; next }
        /^ *\/\// { next }
        /^ *(pub(\([^)]*\))? )?(const )?(async )?(unsafe )?(extern "C" )?fn [a-z_0-9]+/ && first != "" && first !~ /^#/ && !test {
            word = first
            sub(/[ ].*/, "", word)
            gsub(/[`*.,:;]/, "", word)
            print room "\t" FILENAME ":" at ":" first "\t" (word ~ /^[A-Z][a-z]+s$/ && !(word in noun))
        }
        { reset() }' "$@"
}

mapfile -d '' -t rust < <(git ls-files -z '*.rs')
mapfile -d '' -t documents < <(git ls-files -z README.md DESIGN.md 'docs/*.md' 'docs/**/*.md')
comments "${rust[@]}" | at_most "$most_comments" "comment lines with one of the words"
lines "${documents[@]}" | at_most "$most_documents" "lines of documents with one of the words"
sentences "${documents[@]}" | at_most "$most_sentences" "sentences of more than 35 words in documents"
mapfile -d '' -t manifests < <(git ls-files -z '*Cargo.toml')
missing=$(unlisted "${manifests[@]}")
[ -z "$missing" ] || fail "docs/design/library.md gives no reason for: ${missing//$'\n'/, }"
mapfile -d '' -t sources < <(git ls-files -z 'crates/*/src/*.rs' | grep -zvE '/tests(\.rs$|/)|loom|corelocal-malloc-tests')
described=$(functions "${sources[@]}")
awk -F '\t' '
    { all[$1]++; good[$1] += $3 }
    END { for (room in all) printf "%-18s %d of %d functions begin with a verb\n", room, good[room], all[room] }' <<<"$described" | sort
rooms=$(awk -F '\t' '{ all[$1]++; good[$1] += $3 } END { for (room in all) if (good[room] < 0.9 * all[room]) print room }' <<<"$described")
for room in $rooms; do
    awk -F '\t' -v room="$room" '$1 == room && !$3 { print $2 }' <<<"$described" >&2
done
[ -z "$rooms" ] || fail "fewer than 9 of 10 documented functions begin with a verb in: ${rooms//$'\n'/, }"
