#!/usr/bin/env bash
# package.sh program|deb|tarball: builds the program with the Swift runtime linked in, and packs it into
# .build/packages. The same commit gives the same bytes, wherever it is built.
#
# SYNC_PROGRAM=FILE packs that program and builds none, REVISION=2 is the package's revision (1),
# SOURCE_DATE_EPOCH the time of all files (that of the commit), MAINTAINER whom the package names.
set -euo pipefail
cd "$(dirname "$0")/.."
top=$PWD
swift=${SWIFT:-swift}
version=$(sed -n 's/.*static let version = "\(.*\)"/\1/p' Sources/sync-cli/Program.swift)
: "${REVISION:=1}" "${MAINTAINER:=SyncStore authors <sync-store@packages.invalid>}"
: "${SOURCE_DATE_EPOCH:=$(git log -1 --format=%ct 2>/dev/null || stat -c %Y CHANGELOG.md)}"
export SOURCE_DATE_EPOCH
packages=$top/.build/packages
mkdir -p "$packages"
most=20000000
umask 022

fail() { echo "package: $*" >&2; exit 1; }

# The program: sets SYNC_PROGRAM. Nothing in it depends on the directory it was built in.
program() {
  [[ -z ${SYNC_PROGRAM:-} ]] || return 0
  local flags=(-c release --scratch-path .build/deb --disable-local-rpath --static-swift-stdlib -debug-info-format none)
  flags+=(-Xswiftc -file-prefix-map -Xswiftc "$top=." -Xcc "-ffile-prefix-map=$top=.")
  flags+=(-Xlinker -z -Xlinker relro -Xlinker -z -Xlinker now -Xlinker --build-id=none)
  scripts/deps.sh
  "$swift" build "${flags[@]}" --product sync-cli
  SYNC_PROGRAM=$packages/sync-cli
  strip --strip-unneeded --remove-section=.comment -o "$SYNC_PROGRAM" \
    "$("$swift" build "${flags[@]}" --show-bin-path)/sync-cli"
  # The compiler leaves a hash of each source file there that covers its full path; nothing reads it. Zeros
  # instead of no section: without it strip would drop the read-only relocations, too.
  objcopy -O binary --only-section=.swift_modhash "$SYNC_PROGRAM" "$work/hashes"
  head -c "$(stat -c %s "$work/hashes")" /dev/zero >"$work/zeros"
  objcopy --update-section .swift_modhash="$work/zeros" "$SYNC_PROGRAM"
  readelf -lW "$SYNC_PROGRAM" | grep -q GNU_RELRO || fail "$SYNC_PROGRAM: has no read-only relocations"
  local size runtime
  size=$(stat -c %s "$SYNC_PROGRAM")
  ((size <= most)) || fail "$SYNC_PROGRAM: $size bytes, more than $most: find out what came in"
  runtime=$(objdump -p "$SYNC_PROGRAM" | sed -n 's/ *NEEDED *\(lib\(swift\|dispatch\|Foundation\).*\)/\1/p')
  [[ -z $runtime ]] || fail "$SYNC_PROGRAM: needs $runtime: the runtime must be linked in"
}

deb() {
  scripts/deps.sh debhelper lintian
  program
  local stage=$work/stage log=$packages/deb.log file
  mkdir "$stage"
  cp -r packaging/debian NOTICE "$stage/"
  sed "s/@MAINTAINER@/$MAINTAINER/" packaging/debian/control.in >"$stage/debian/control"
  rm "$stage/debian/control.in"
  python3 -B packaging/changelog.py CHANGELOG.md "$REVISION" "$MAINTAINER" "$SOURCE_DATE_EPOCH" \
    >"$stage/debian/changelog"
  if ! (cd "$stage" && SYNC_STORE=$top SYNC_PROGRAM=$(realpath "$SYNC_PROGRAM") dpkg-buildpackage -b -d -us -uc) \
    >"$log" 2>&1; then
    tail -20 "$log" >&2
    fail "dpkg-buildpackage failed: see above, and $log"
  fi
  file=$(basename "$work"/*.deb)
  mv "$work/$file" "$packages/$file"
  lintian --fail-on error,warning --allow-root "$packages/$file"
  echo "$packages/$file"
}

tarball() {
  program
  local name=sync-store-$version-linux-$(uname -m)
  # INSTALL.md has it copied to /usr/local.
  packaging/install.sh "$SYNC_PROGRAM" "$work/root" /usr/local
  mv "$work/root/usr/local" "$work/$name"
  find "$work/$name/share/man" -type f -exec gzip -n9 {} +
  install -m 644 README.md CHANGELOG.md SECURITY.md LICENSE NOTICE packaging/INSTALL.md "$work/$name/"
  tar -C "$work" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --format=gnu \
    -c "$name" | gzip -n9 >"$packages/$name.tar.gz"
  echo "$packages/$name.tar.gz"
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
case ${1:-} in
  program | deb | tarball) "$1" ;;
  *) fail "${1:-nothing}: neither program, deb nor tarball" ;;
esac
