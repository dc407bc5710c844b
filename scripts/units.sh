#!/usr/bin/env bash
# Has systemd's analyser read the units, and fails if it finds a fault or an exposure above 1.5.
set -euo pipefail
cd "$(dirname "$0")/../packaging/systemd"
if ! command -v systemd-analyze >/dev/null; then
  echo "units: not checked: systemd-analyze is not installed"
  exit 0
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Programs where the units name them.
install -D -m 755 /bin/true "$work/usr/bin/sync-cli"
install -D -m 755 /bin/true "$work/bin/sh"
install -D -m 644 -t "$work/etc/systemd/system" ./*.service
for unit in sync-store.service sync-store@shop.service; do
  found=$(systemd-analyze verify --root="$work" --man=no --recursive-errors=no "$unit" 2>&1) || found+=" (failed)"
  [[ -z $found ]] || { echo "units: $unit: $found" >&2; exit 1; }
done
for unit in ./*.service; do
  if ! systemd-analyze security --offline=true --threshold=15 --no-pager "$unit" >"$work/report" 2>&1; then
    cat "$work/report" >&2
    echo "units: $unit: more than 1.5: see the lines with a cross" >&2
    exit 1
  fi
  grep 'Overall exposure' "$work/report"
done
