#!/usr/bin/env bash
# Main job: `report --quick` writes a report.json that parses and a report.html that a browser
# shows without a word on its console. Screenshots stay in target/ci/ for a human to look at.
# Needs: cargo and a C linker; jq; chromium for the page.
source "$(dirname "${BASH_SOURCE[0]}")/lib.bash"

need_rust
out=$target/ci
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir -p "$out"
cargo build --release --locked
(cd "$scratch" && "$target/release/corelocal" report --quick)
cp "$scratch"/report.json "$scratch"/report.html "$out"

need jq jq "reads report.json"
jq -e '.schema >= 1 and (.tables | length > 0) and all(.tables[]; .rows | length > 0)' \
    "$out/report.json" >/dev/null || fail "report.json has no tables with rows"

need chromium chromium "opens report.html"
# browse PAGE IMAGE WIDTH: prints what PAGE writes to the console; IMAGE is how it looks.
browse() {
    timeout --kill-after=10 120 chromium --headless --no-sandbox --disable-gpu --hide-scrollbars \
        --disable-dev-shm-usage --user-data-dir="$scratch/profile" --enable-logging=stderr \
        --screenshot="$2" --window-size="$3,6000" "file://$1" >"$scratch/browser.log" 2>&1 || {
        cat "$scratch/browser.log" >&2
        fail "chromium could not open $1"
    }
    [ -s "$2" ] || fail "chromium made no picture of $1"
    grep CONSOLE "$scratch/browser.log" || true
}

# First a page that does write to the console, so that silence afterwards means something.
echo '<script>console.error("heard")</script>' >"$scratch/probe.html"
[[ $(browse "$scratch/probe.html" "$scratch/probe.png" 400) == *heard* ]] ||
    fail "chromium's console cannot be read: its messages are not in its log"
for width in 390 1200; do
    console=$(browse "$out/report.html" "$out/report-$width.png" "$width")
    [ -z "$console" ] || fail "report.html writes to the console: $console"
done
echo "screenshots: $out/report-390.png, $out/report-1200.png"
