#!/usr/bin/env bash
# Builds the package and the archive here, and from a copy of the sources in another directory, at another time
# and in another environment, and fails if a byte differs. With PACK=1 the program is compiled once (six minutes
# on two cores each).
set -euo pipefail
cd "$(dirname "$0")/.."
top=$PWD
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH
work=$(mktemp -d "${TMPDIR:-/tmp}/deb-twice.XXXXXX")
trap 'rm -rf "$work"' EXIT

# sums DIRECTORY: of what was made there.
sums() { (cd "$1" && sha256sum sync-cli ./*.deb ./*.tar.gz); }
rm -f .build/packages/sync-cli .build/packages/*.deb .build/packages/*.tar.gz
scripts/package.sh deb
SYNC_PROGRAM=$top/.build/packages/sync-cli scripts/package.sh tarball
sums .build/packages >"$work/here"

other="$work/a directory with another name"
umask 077
mkdir "$other"
git ls-files -z --cached --others --exclude-standard | tar -c --null --no-recursion -T - \
  | tar -x --no-same-permissions -C "$other"
find "$other" -exec touch -d '2001-02-03' {} +
if [[ ${PACK:-} == 1 ]]; then
  mkdir -p "$other/.build/packages"
  cp .build/packages/sync-cli "$other/.build/packages/"
fi
(
  cd "$other"
  export TZ=Pacific/Auckland LANG=C LC_ALL=C HOME=$work
  [[ ${PACK:-} == 1 ]] || scripts/package.sh program
  export SYNC_PROGRAM=$other/.build/packages/sync-cli
  scripts/package.sh deb
  scripts/package.sh tarball
)
sums "$other/.build/packages" >"$work/there"
diff "$work/here" "$work/there" || { echo "deb-twice: these files differ" >&2; exit 1; }
cat "$work/here"
echo "deb-twice: equal"
