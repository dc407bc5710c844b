#!/usr/bin/env bash
# Shows the daemon's status page in Chromium, without a window: two members that are late, one with a name that
# looks like markup. Checks that the script fills the page under its policy, and leaves pictures of it in
# .build/status-page: light, dark and narrow.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/common.sh
begin chromium fonts-dejavu-core
pictures=$PWD/.build/status-page
mkdir -p "$pictures"

die() {
  echo "status-page: $*" >&2
  exit 1
}

# Runs Chromium on the page, for some seconds of the page's own time.
browse() {
  chromium --headless --no-sandbox --disable-gpu --user-data-dir="$work/browser" --virtual-time-budget=8000 \
    --enable-logging=stderr "$@" "http://$pages/" 2>"$work/browser.log"
  if grep -a 'Content Security Policy\|Uncaught' "$work/browser.log"; then die "the page breaks its own policy"; fi
}

"$cli" --store "$work/harbour" init --name harbour >/dev/null
echo '{ "http": "127.0.0.1:0", "http_details": "always" }' >"$work/config.json"
start_daemon "$work/harbour" 127.0.0.1:0 --config "$work/config.json"
pages=$(sed -n 's/.*status page on //p' "$work/harbour.log")
for name in lighthouse '<b>buoy'; do
  "$cli" --store "$work/other" join "$("$cli" --store "$work/harbour" invite)" --name "$name" >/dev/null
  rm -rf "$work/other"
done
for number in $(seq 1204); do printf '{"key":"boat/%d","value":"v"}\n' "$number"; done |
  "$cli" --store "$work/harbour" load /dev/stdin >/dev/null

mkdir "$work/<i>stick"
"$cli" --store "$work/harbour" peer add stick "dir:$work/<i>stick"
sleep 5

text=$(browse --dump-dom)
grep -q 'In step with none of 2 members: ' <<<"$text" || die "the verdict is missing: $text"
grep -q 'lacks 1,204 keys' <<<"$text" || die "what a member lacks is missing: $text"
grep -q '&lt;b&gt;buoy' <<<"$text" || die "a member's name is missing, or was taken for markup"
grep -q '&lt;i&gt;stick' <<<"$text" || die "a relay is missing, or its place was taken for markup"
grep -q 'no other member has written there' <<<"$text" || die "what a relay holds is missing"
grep -q '<polyline' <<<"$text" || die "the plots are missing"

browse --window-size=1100,1400 --screenshot="$pictures/light.png" >/dev/null
browse --window-size=1100,1400 --screenshot="$pictures/dark.png" --blink-settings=preferredColorScheme=0 >/dev/null
browse --window-size=500,1800 --screenshot="$pictures/narrow.png" >/dev/null
echo "status-page: the page shows what it should; pictures in $pictures"
