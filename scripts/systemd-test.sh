#!/usr/bin/env bash
# systemd-test.sh ROOT: boots the Debian in the directory ROOT, where the package is installed and the store main
# exists, in a container without a network, and has systemd run the units. One line says so where this machine
# cannot do that. Called by scripts/deb-test.sh.
set -euo pipefail
cd "$(dirname "$0")"
root=$1

# boot: boots ROOT until it ends itself. A container needs control groups that it may write to.
boot() {
  timeout --kill-after=10 300 systemd-nspawn --quiet --directory="$root" --boot --private-network \
    --register=no --keep-unit --console=pipe --link-journal=no </dev/null >"$root.console" 2>&1
}

install -D -m 755 systemd-check.sh "$root/opt/check/check.sh"
rm -f "$root/opt/check/check.result"
cat >"$root/etc/systemd/system/check.service" <<'UNIT'
[Unit]
After=multi-user.target
[Service]
Type=oneshot
ExecStart=/opt/check/check.sh
StandardOutput=append:/opt/check/check.log
StandardError=append:/opt/check/check.log
UNIT
# Started by no target: multi-user.target would wait for it.
cat >"$root/etc/systemd/system/check.timer" <<'UNIT'
[Timer]
OnActiveSec=1
[Install]
WantedBy=multi-user.target
UNIT
ln -sf /etc/systemd/system/check.timer "$root/etc/systemd/system/multi-user.target.wants/check.timer"
boot || true
rm -f "$root"/etc/systemd/system/check.* "$root"/etc/systemd/system/multi-user.target.wants/check.timer
if [[ ! -f $root/opt/check/check.begun ]]; then
  echo "systemd-test: not run: systemd does not boot in a container here: $(tail -1 "$root.console")"
  exit 0
fi
cat "$root/opt/check/check.log"
[[ $(cat "$root/opt/check/check.result" 2>/dev/null) == 0 ]] || { echo "systemd-test: failed: see above" >&2; exit 1; }
