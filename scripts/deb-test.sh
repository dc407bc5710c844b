#!/usr/bin/env bash
# Installs, upgrades, removes and purges the Debian package in a new Debian 12 without a toolchain, and runs its
# units there under systemd, where this machine can. Needs root. The new system is kept as an archive in
# .build/packages; its packages come from where this machine has its own.
#
# SYNC_PROGRAM=FILE packs that program and builds none.
set -euo pipefail
cd "$(dirname "$0")/.."
top=$PWD

fail() { echo "deb-test: $*" >&2; exit 1; }
step() { echo "== $*"; }

[[ $(id -u) == 0 ]] || fail "not root: debootstrap and chroot need it: run it as root"
scripts/deps.sh debootstrap systemd-container

step "two revisions of the package"
work=$(mktemp -d "${TMPDIR:-/tmp}/deb-test.XXXXXX")
# shellcheck disable=SC2064
trap "rm -rf --one-file-system '$work'" EXIT
old=$(scripts/package.sh deb | tail -1)
: "${SYNC_PROGRAM:=$top/.build/packages/sync-cli}"
export SYNC_PROGRAM
new=$(REVISION=2 scripts/package.sh deb | tail -1)
mv "$new" "$work/"
new=$work/$(basename "$new")

# The packages it depends on; of alternatives the first.
depends=$(dpkg-deb -f "$old" Depends | sed 's/([^)]*)//g; s/|[^,]*//g; s/ //g')
step "a Debian 12 with $depends"
base=$top/.build/packages/debian-12-$(sha256sum <<<"$depends" | cut -c 1-12).tar
if [[ ! -f $base ]]; then
  mirror=$(apt-get indextargets --format '$(REPO_URI)|$(CODENAME)|$(COMPONENT)' 'Created-By: Packages' \
    | sed -n 's/|bookworm|main$//p' | head -1)
  [[ -n $mirror ]] || fail "apt knows no mirror of Debian 12: add one to its sources"
  debootstrap --variant=minbase --include="$depends" bookworm "$work/base" "$mirror" >"$base.log" 2>&1 \
    || { tail -5 "$base.log" >&2; fail "debootstrap failed: see above, and $base.log"; }
  tar -C "$work/base" --exclude='./var/cache/apt/archives/*.deb' -cf "$base.part" .
  mv "$base.part" "$base"
  rm -rf "$work/base"
fi
root=$work/root
mkdir "$root"
tar -C "$root" -xf "$base"
mkdir "$root/opt/check"
cp "$old" "$new" "$root/opt/check/"
old=/opt/check/$(basename "$old") new=/opt/check/$(basename "$new")

# inside COMMAND…: runs it in the new system, which has no network.
inside() {
  unshare --mount --pid --net --fork --kill-child --mount-proc="$root/proc" \
    env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
    chroot "$root" "$@"
}
# expect WHAT COMMAND…: it must succeed in there. refuse WHAT COMMAND…: it must fail.
expect() { inside "${@:2}" >"$work/out" 2>&1 || { cat "$work/out" >&2; fail "not so: $1"; }; }
refuse() { ! inside "${@:2}" >"$work/out" 2>&1 || { cat "$work/out" >&2; fail "not so: $1"; }; }
# cli WORD…: the program on the store main, as the user of the service.
main=/var/lib/sync-store/main
cli() { inside runuser -u sync-store -- sync-cli --store "$main" "$@"; }
same() { [[ $2 == "$3" ]] || fail "not so: $1: $2, not $3"; }

step "install"
refuse "no compiler in the new system" sh -c 'command -v swift || command -v cc || ls /usr/lib/swift'
expect "it can be installed" dpkg -i "$old"
refuse "all libraries are there" sh -c 'ldd /usr/bin/sync-cli | grep "not found"'
same "the user" "$(inside getent passwd sync-store | cut -d: -f6-)" /var/lib/sync-store:/usr/sbin/nologin
same "the directory" "$(inside stat -c '%U %a' /var/lib/sync-store)" "sync-store 700"
same "sync-store.service" "$(inside systemctl is-enabled sync-store.service)" enabled
same "sync-store@.service" "$(inside systemctl is-enabled sync-store@.service || true)" disabled
for file in /usr/share/man/man8/sync-store.8.gz /usr/share/bash-completion/completions/sync-cli \
  /usr/share/doc/sync-store/changelog.Debian.gz /etc/sync-store/main.json; do
  expect "$file is there" test -s "$file"
done

step "use"
cli init --name hub
cli put greeting hello
head -c 200000 /dev/zero | cli put large -
cli serve --check --config /etc/sync-store/main.json
echo '// of this machine' >>"$root/etc/sync-store/main.json"
echo 'correct horse' >"$root/etc/sync-store/shop.passphrase"
expect "an instance can be enabled" systemctl enable sync-store@shop.service

step "upgrade"
expect "it can be upgraded" dpkg -i "$new"
same "the revision" "$(inside dpkg-query -W -f '${Version}' sync-store | sed 's/.*-//')" 2
same "a value" "$(cli get greeting)" hello
expect "the changed configuration is kept" grep -q 'of this machine' /etc/sync-store/main.json

step "systemd"
"$top/scripts/systemd-test.sh" "$root"
digest=$(cli digest)

# kept WHEN: what no removal may take.
kept() {
  expect "the user is there $1" getent passwd sync-store
  expect "the passphrase is there $1" grep -q horse /etc/sync-store/shop.passphrase
  expect "the journal is there $1" sh -c "ls $main/journal/*.segment"
}

step "remove"
expect "it can be removed" dpkg -r sync-store
refuse "the program has gone" test -e /usr/bin/sync-cli
refuse "the units have gone" sh -c 'ls /lib/systemd/system/sync-store*'
expect "the configuration is there" grep -q 'of this machine' /etc/sync-store/main.json
kept "after the removal"

step "purge"
expect "it can be purged" dpkg -P sync-store
refuse "the configuration has gone" test -e /etc/sync-store/main.json
refuse "no link of a unit is left" sh -c 'find /etc/systemd/system | grep sync-store'
kept "after the purge"
same "files left elsewhere" "$(inside find / -xdev -name '*sync-*cli*' -o -xdev -name 'sync-store*' \
  | grep -v -e '^/opt/check/' -e '^/proc/' -e '^/var/lib/sync-store' -e '^/etc/sync-store' || true)" ""

step "install again"
expect "it can be installed again" dpkg -i "$new"
same "the digest" "$(cli digest)" "$digest"
cli verify
echo "deb-test: all as it should be"
