#!/usr/bin/env bash
# Main job: `report --quick` writes a report.json that parses and a report.html that a browser
# shows, as wide as a phone and as a screen, without a word on its console and without a column that is cut; so do
# the pages of `run`, `lab` and `clock`. Screenshots stay in
# target/ci/ for a human to look at. And what the optimised command is made of: its critical sections, explored, and the
# malloc that it carries.
# Needs: cargo and a C linker; jq; chromium for the page.
source "$(dirname "${BASH_SOURCE[0]}")/lib.bash"

need_rust
out=$target/ci
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir -p "$out"
cargo build --release --locked -p corelocal-cli
# The malloc that it carries: unpacked once, mended if it was changed, and no library of this machine beside libc's.
command=$target/release/corelocal
export XDG_CACHE_HOME=$scratch/cache
malloc=$("$command" malloc-path)
[[ $malloc == "$scratch"/cache/* ]] || fail "the command carries no malloc: $malloc"
env LD_PRELOAD="$malloc" CORELOCAL_MALLOC=stats true 2>"$scratch/stats"
[ -s "$scratch/stats" ] || fail "no statistics of the malloc that the command carries"
made=$(stat -c %i "$malloc")
[[ $("$command" malloc-path) == "$malloc" && $(stat -c %i "$malloc") == "$made" ]] || fail "$malloc is unpacked twice"
echo changed >>"$malloc"
"$command" run -- true 2>"$scratch/run" || fail "$(<"$scratch/run")"
grep -qF "$malloc" "$scratch/run" || fail "run does not say which library it uses: $(<"$scratch/run")"
! tail -c 8 "$malloc" | grep -q changed || fail "a changed library is used"
needed=$(ldd "$command")
! grep -E 'nsync|absl|urcu|rseq|lttng' <<<"$needed" || fail "the command needs a rival's library to start"
# Optimised, sections are inlined into more places, and share registers that they do not share elsewhere.
"$target/release/corelocal" lab explore rseq >"$scratch/sections" || fail "$(<"$scratch/sections")"
(cd "$scratch" && "$target/release/corelocal" report --quick) 2>"$scratch/progress" || fail "$(<"$scratch/progress")"
# A line of progress for each table, and whenever ten seconds have passed.
! grep -v '^table ' "$scratch/progress" || fail "report writes other lines than its progress to standard error"
cp "$scratch"/report.json "$scratch"/report.html "$out"

need jq jq "reads report.json"
jq -e '.schema >= 1 and (.tables | length > 0) and all(.tables[]; .rows | length > 0)' \
    "$out/report.json" >/dev/null || fail "report.json has no tables with rows"
jq -e '.tables[] | select(.id == "malloc") | .rows[] | select(.ours) | .points | length > 3' \
    "$out/report.json" >/dev/null || fail "report.json has no figures of our malloc"

# Those of mallocs take minutes, and run only on request, except for a few loads.
listed=$("$command" bench --list | awk '$1 !~ /^malloc_/ { print $1 }' | sort)
[ "$(jq -r '.tables[].id' "$out/report.json" | sort)" = "$listed" ] || fail "report.json lacks tables of: $listed"
for id in $listed; do
    grep -qF "id=\"table-$id\"" "$out/report.html" || fail "$id is not on the page"
done
# A link may lead out of the page; nothing else may.
! sed 's!<a href="http!!g; s!xmlns="http!!g' "$out/report.html" |
    grep -oE 'src=|href="http|url\(|@import|<script|<iframe|<object' || fail "report.html loads what is named above"

need chromium chromium "opens report.html"
# browse PAGE IMAGE WIDTH: prints what PAGE writes to the console; IMAGE is how it looks. PAGE stands
# in a frame, since chromium's own window cannot be narrower than 500 pixels, and a frame that has to
# be scrolled sideways says so on the console.
browse() {
    cat >"$scratch/frame.html" <<-EOF
	<body style="margin: 0"><iframe id="page" src="file://$1"
	style="border: 0; width: $3px; height: 20000px"></iframe><script>
	onload = () => {
	    const { clientWidth, scrollWidth } = page.contentDocument.documentElement;
	    if (scrollWidth > clientWidth) console.error(scrollWidth + " pixels wide");
	    for (const box of page.contentDocument.querySelectorAll("table, .scroll"))
	        if (box.scrollWidth > box.clientWidth || box.getBoundingClientRect().right > clientWidth)
	            console.error("cut: " + box.textContent.trim().slice(0, 60));
	}
	</script>
	EOF
    timeout --kill-after=10 120 chromium --headless --no-sandbox --disable-gpu --hide-scrollbars \
        --disable-dev-shm-usage --user-data-dir="$scratch/profile" --enable-logging=stderr \
        --allow-file-access-from-files --screenshot="$2" --window-size="$3,20000" \
        "file://$scratch/frame.html" >"$scratch/browser.log" 2>&1 || {
        cat "$scratch/browser.log" >&2
        fail "chromium could not open $1"
    }
    [ -s "$2" ] || fail "chromium made no picture of $1"
    grep CONSOLE "$scratch/browser.log" || true
}

# First a page that does write to the console and is too wide, so that silence afterwards means
# something.
echo '<p style="width: 500px">wide<script>console.error("heard")</script>' >"$scratch/probe.html"
probed=$(browse "$scratch/probe.html" "$scratch/probe.png" 390)
[[ $probed == *heard* && $probed == *"pixels wide"* ]] ||
    fail "chromium's console cannot be read: its messages are not in its log"
(
    cd "$scratch"
    "$command" run --compare --rounds 2 --html "$out/run.html" -- ls / ::: true >"$scratch/run" 2>&1 || fail "$(<"$scratch/run")"
    "$command" lab explore futex --html "$out/lab.html" >"$scratch/lab" || fail "$(<"$scratch/lab")"
    "$command" clock --watch 1s --html "$out/clock.html" >"$scratch/clock" 2>&1 || fail "$(<"$scratch/clock")"
)
for width in 400 1280; do
    for page in report run lab clock; do
        console=$(browse "$out/$page.html" "$out/$page-$width.png" "$width")
        [ -z "$console" ] || fail "$page.html at $width pixels: $console"
    done
done
echo "screenshots: $out/{report,run,lab,clock}-{400,1280}.png"
