#!/usr/bin/env bash
# Measures what an operator plans for: disk, memory, descriptors and processor time of a daemon, and its backups.
# KEYS="10000 100000" VALUE=100 MEMBERS="0 4 16" REST=20, or CLI=PATH for a program that is built already.
set -euo pipefail
cd "$(dirname "$0")/.."

if [[ -z ${CLI:-} ]]; then
  swift=${SWIFT:-swift}
  "$swift" build -c release --product sync-cli >&2
  CLI=$("$swift" build -c release --show-bin-path)/sync-cli
fi
value=${VALUE:-100}
rest=${REST:-20}
work=$(mktemp -d "${TMPDIR:-/tmp}/sync-sizing-XXXXXX")
started=()
stop() {
  for process in "${started[@]}"; do kill "$process" 2>/dev/null || true; done
  wait || true
  started=()
}
trap 'stop; rm -rf "$work"' EXIT

# serve STORE: starts a daemon; its address is in $address, its process in $daemon.
serve() {
  "$CLI" --store "$1" serve --listen 127.0.0.1:0 >"$1.out" 2>"$1.err" &
  daemon=$!
  started+=("$daemon")
  until address=$(sed -n "s/^listening on //p" "$1.out" 2>/dev/null) && [[ -n $address ]]; do sleep 0.05; done
}

# ticks PROCESS: processor time in hundredths of a second (proc(5), fields 14 and 15).
ticks() { awk '{ sub(/.*\) /, ""); print $12 + $13 }' "/proc/$1/stat"; }

kib() { awk -v name="$2:" '$1 == name { print $2 }' "/proc/$1/smaps_rollup"; }

# status LABEL: the columns of the daemon at rest.
status() {
  sleep 3
  local before after
  before=$(ticks "$daemon")
  sleep "$rest"
  after=$(ticks "$daemon")
  printf '%-28s  private %6d KiB  with mapped files %7d KiB  descriptors %4d  processor %s ms/s\n' "$1" \
    $(($(kib "$daemon" Private_Dirty))) "$(kib "$daemon" Rss)" "$(find "/proc/$daemon/fd" -mindepth 1 | wc -l)" \
    "$(awk -v t=$((after - before)) -v s="$rest" 'BEGIN { printf "%.1f", t * 10 / s }')"
}

echo "values of $value bytes, $("$CLI" --version), $(nproc) processors, kernel $(uname -r)"
for keys in ${KEYS:-10000 100000}; do
  store=$work/keys-$keys
  "$CLI" --store "$store" init --name hub --quiet
  seq "$keys" | awk -v n="$value" 'BEGIN { srand(7); for (i = 0; i < n; i++) p = p "x" }
    { printf "{\"key\":\"order/%08d\",\"value\":\"%s\"}\n", $1, p }' >"$work/lines"
  start=$(date +%s%N)
  "$CLI" --store "$store" --quiet load "$work/lines"
  end=$(date +%s%N)
  disk=$(du -sk "$store" | cut -f1)
  echo "keys $keys: loaded in $(((end - start) / 1000000)) ms, $disk KiB on the disk, $((disk * 1024 / keys)) bytes per key"
  start=$(date +%s%N)
  "$CLI" --store "$store" --quiet backup "$work/backup"
  end=$(date +%s%N)
  echo "keys $keys: backup in $(((end - start) / 1000000)) ms, $(($(stat -c %s "$work/backup") / 1024)) KiB"
  start=$(date +%s%N)
  "$CLI" --store "$work/restored" --quiet restore "$work/backup"
  end=$(date +%s%N)
  echo "keys $keys: restore in $(((end - start) / 1000000)) ms"
  rm -rf "$work/backup" "$work/restored"
  serve "$store"
  status "serve, keys: $keys"
  stop
done

store=$work/members
"$CLI" --store "$store" init --name hub --quiet
serve "$store"
hub=$daemon
joined=0
for members in ${MEMBERS:-0 4 16}; do
  while ((joined < members)); do
    joined=$((joined + 1))
    "$CLI" --store "$work/member-$joined" --quiet join "$("$CLI" --store "$store" invite)" --name "m$joined" >/dev/null
    serve "$work/member-$joined"
  done
  daemon=$hub
  status "serve, live members: $members"
done
