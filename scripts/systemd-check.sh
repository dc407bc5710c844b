#!/usr/bin/env bash
# Runs in the container of scripts/systemd-test.sh: the units under systemd. The store main exists.
set -euo pipefail
touch /opt/check/check.begun
end() {
  local status=$?
  [[ $status == 0 ]] || journalctl --no-pager -n 60 || true
  echo $status >/opt/check/check.result
  systemctl --no-block start poweroff.target
}
trap end EXIT
stores=/var/lib/sync-store

fail() { echo "not so: $*"; exit 1; }
# same WHAT IS EXPECTED
same() { [[ $2 == "$3" ]] || fail "$1: $2, not $3"; }
# within SECONDS WHAT COMMAND…: it succeeds before long.
within() {
  local tries
  for ((tries = 0; tries < $1 * 10; tries++)); do
    ! "${@:3}" >/dev/null 2>&1 || return 0
    sleep 0.1
  done
  fail "$2"
}
show() { systemctl show --value -p "$2" "$1"; }
is() { [[ $(show "$1" "$2") == "$3" ]]; }
cli() { runuser -u sync-store -- sync-cli --store "$stores/$1" "${@:2}"; }
logged() { journalctl --no-pager -u "$1" | grep -q "$2"; }
# The last time of a watchdog notification is later than that.
fed() { (($(show "$1" WatchdogTimestampMonotonic) > $2)); }

same "started at boot" "$(systemctl is-active sync-store)" active
same "its status" "$(show sync-store StatusText)" "listening on [::]:7420"
systemctl start sync-store@none
same "a unit without a store is skipped" "$(show sync-store@none ConditionResult)" no

echo "-- two daemons keep their stores in step; other programs write meanwhile"
token=$(cli main invite --address 127.0.0.1:7420)
cli copy join "$token" --name copy
echo '{ "listen": "127.0.0.1:7422", "log_level": "debug" }' >/etc/sync-store/copy.json
systemctl start sync-store@copy
for number in 1 2 3; do cli main put "number/$number" "$number"; done
head -c 300000 /dev/urandom >/tmp/large
cli main put large --file /tmp/large
same_digest() { [[ $(cli main digest) == "$(cli copy digest)" ]]; }
within 20 "the copy is in step" same_digest
cli copy get large | cmp - /tmp/large
cli copy verify

echo "-- a passphrase as a credential"
export SYNC_PASSPHRASE
SYNC_PASSPHRASE='correct horse'
cli shop init --name shop --encrypt
unset SYNC_PASSPHRASE
echo '{ "listen": "127.0.0.1:7421" }' >/etc/sync-store/shop.json
chmod 600 /etc/sync-store/shop.passphrase
# It was enabled, and is the store of another passphrase: not tried again.
echo 'wrong' >/etc/sync-store/shop.passphrase
! systemctl start sync-store@shop || fail "a wrong passphrase is refused"
same "its exit code" "$(show sync-store@shop ExecMainStatus)" 3
same "tried once" "$(show sync-store@shop NRestarts)" 0
echo 'correct horse' >/etc/sync-store/shop.passphrase
printf 'aws_access_key_id = a\naws_secret_access_key = b\n' >/etc/sync-store/shop.s3-credentials
systemctl start sync-store@shop
same "S3 credentials" "$(grep -c aws_ /run/credentials/sync-store@shop.service/s3-credentials)" 2
same "none" "$(cat /run/credentials/sync-store.service/s3-credentials)" ""

echo "-- alive, and restarted when it is not"
begin=$(show sync-store@shop WatchdogTimestampMonotonic)
within 10 "the watchdog is fed" fed sync-store@shop "$begin"
units=(-u sync-store -u sync-store@copy)
warnings=$(journalctl --no-pager -q "${units[@]}" -p warning
  journalctl --no-pager -q "${units[@]}" | grep -iE 'fail|denied|not permitted' || true)
[[ -z $warnings ]] || fail "no warnings: $warnings"
mkdir -p /run/systemd/system/sync-store@shop.service.d
printf '[Service]\nWatchdogSec=2\nRestartSec=100ms\n' >/run/systemd/system/sync-store@shop.service.d/quick.conf
systemctl daemon-reload
systemctl restart sync-store@shop
kill -STOP "$(show sync-store@shop MainPID)"
within 20 "a stopped daemon is restarted" is sync-store@shop NRestarts 1
within 20 "it is active again" is sync-store@shop ActiveState active

echo "-- reload"
echo '{ "listen": "127.0.0.1:7422", "log_level": "notice" }' >/etc/sync-store/copy.json
systemctl reload sync-store@copy
within 10 "the configuration is read again" logged sync-store@copy 'configuration read again'
same "after a reload" "$(systemctl is-active sync-store@copy)" active

echo "-- upgrade: all daemons take the new program"
before="$(show sync-store MainPID) $(show sync-store@copy MainPID)"
dpkg -i /opt/check/*-2_*.deb >/dev/null
after="$(show sync-store MainPID) $(show sync-store@copy MainPID)"
[[ ${before% *} != "${after% *}" && ${before#* } != "${after#* }" ]] || fail "restarted: $before, then $after"
systemctl is-active sync-store sync-store@copy >/dev/null || fail "active after the upgrade"

echo "-- stop"
for unit in sync-store sync-store@copy sync-store@shop; do
  systemctl stop "$unit"
  same "$unit ended" "$(show $unit Result) $(show $unit ExecMainStatus)" "success 0"
done
same "the exposure of a unit" "$(systemd-analyze security --threshold=15 sync-store.service >/dev/null 2>&1 && echo low)" low

echo "-- remove: no daemon is left; install: the one that is enabled is started"
systemctl start sync-store@copy
dpkg -r sync-store >/dev/null
! systemctl is-active sync-store@copy >/dev/null || fail "a daemon runs on after the removal"
dpkg -i /opt/check/*-2_*.deb >/dev/null
same "after the installation" "$(systemctl is-active sync-store)" active
systemctl stop sync-store
