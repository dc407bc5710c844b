#!/usr/bin/env bash
# Installs the Debian packages that a build needs, if they are missing; otherwise does nothing and needs no
# rights. Further packages may be given; `bench` as the first argument means those that only the benchmarks
# need.
set -euo pipefail

[[ ${1:-} != bench ]] || set -- liblmdb-dev libleveldb-dev librocksdb-dev redis-server rsync "${@:2}"

packages=(libssl-dev nettle-dev libsqlite3-dev libdeflate-dev libxxhash-dev libedit-dev libcurl4-openssl-dev)
packages+=(pkg-config "$@")

if ! command -v swift >/dev/null; then
  echo "deps: no swift command: a Swift 6.2 or newer toolchain is needed: see https://www.swift.org/install/linux" >&2
  exit 1
fi
if ! command -v dpkg-query >/dev/null; then
  echo "deps: this is not a Debian system: if the build fails, install what is called here: ${packages[*]}" >&2
  exit 0
fi

missing=()
for package in "${packages[@]}"; do
  state=$(dpkg-query -W -f='${db:Status-Abbrev}' "$package" 2>/dev/null || true)
  [[ $state == ii* ]] || missing+=("$package")
done
[[ ${#missing[@]} -gt 0 ]] || exit 0

become=()
if [[ $(id -u) -ne 0 ]]; then
  if ! command -v sudo >/dev/null; then
    echo "deps: cannot install ${missing[*]}: not root, and there is no sudo: run as root: apt-get install ${missing[*]}" >&2
    exit 1
  fi
  become=(sudo)
fi

install() {
  "${become[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}"
}

echo "deps: installing ${missing[*]}"
known=yes
for package in "${missing[@]}"; do
  [[ -n $(apt-cache madison "$package" 2>/dev/null) ]] || known=no
done
if [[ $known == no ]] || ! install; then
  if ! "${become[@]}" apt-get update -q || ! install; then
    echo "deps: apt-get could not install ${missing[*]}: see its message above: check the network and the package sources" >&2
    exit 1
  fi
fi
