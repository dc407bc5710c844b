#!/usr/bin/env bash
# Shared by the scripts that run the product: a temporary work area, daemons that are ended, a real tree.
# Sourced, not run. `begin` sets $work, an empty directory, and $cli, the built program.
set -euo pipefail

daemons=()

end_all() {
  local status=$?
  trap - EXIT INT TERM
  local daemon
  for daemon in "${daemons[@]}"; do
    kill -9 "$daemon" 2>/dev/null || true
    wait "$daemon" 2>/dev/null || true
  done
  if [[ -n ${work:-} ]]; then rm -rf "$work"; fi
  exit "$status"
}

# Builds the program, unless CLI names one, and makes the work area. Further Debian packages may be given.
begin() {
  scripts/deps.sh "$@"
  cli=${CLI:-}
  if [[ -z $cli ]]; then
    echo "Building sync-cli (release): minutes the first time, on two cores about six …"
    swift build -c release --product sync-cli || { echo "the build failed: see above" >&2; exit 1; }
    cli=$(swift build -c release --show-bin-path)/sync-cli
  fi
  work=$(mktemp -d "${TMPDIR:-/tmp}/sync-store.XXXXXX")
  trap end_all EXIT INT TERM
  export -n SYNC_STORE 2>/dev/null || true
}

# start_daemon STORE [ADDRESS [OPTION…]]: sets $daemon, its process, and $address, where it listens.
start_daemon() {
  local out=$work/$(basename "$1").listening
  : >"$out"
  "$cli" --store "$1" serve --listen "${2:-127.0.0.1:0}" "${@:3}" >"$out" 2>>"$work/$(basename "$1").log" &
  daemon=$!
  daemons+=("$daemon")
  local tries
  for ((tries = 0; tries < 600; tries++)); do
    if [[ -s $out ]]; then
      address=$(sed -n 's/^listening on //p' "$out")
      return 0
    fi
    kill -0 "$daemon" 2>/dev/null || break
    sleep 0.05
  done
  echo "the daemon did not start:" >&2
  tail -5 "$work/$(basename "$1").log" >&2
  return 1
}

# stop_daemon PROCESS [SIGNAL]: ends it, waits for it, and returns its exit code.
stop_daemon() {
  kill "-${2:-TERM}" "$1" 2>/dev/null || true
  local status=0
  wait "$1" 2>/dev/null || status=$?
  return "$status"
}
