#!/usr/bin/env bash
# Runs the tests of crashes and full disks (or those that match $1) with their files on each file system of
# $FILESYSTEMS, mounted from an image; then kills $COUNT processes there. A file system that cannot be made or
# mounted here is reported and skipped.
set -euo pipefail
cd "$(dirname "$0")/.."
[[ $(id -u) == 0 ]] || { echo "filesystems: mounting needs the superuser's rights" >&2; exit 1; }
scripts/deps.sh xfsprogs btrfs-progs f2fs-tools || true
swift=${SWIFT:-swift}
count=${COUNT:-50}
suites=${1:-'KillPointTests|RealPageSubsetTests|BackupCrashTests|PackCrashTests|WriterDeathTests|RotationTests|RecoveryTests|SharedModeTests'}
$swift build --build-tests
$swift build -c release --package-path Fuzz --product Kills
bin=$($swift build --show-bin-path)
kills=$($swift build -c release --package-path Fuzz --show-bin-path)/Kills

work=$(mktemp -d)
mounted=()
unmount() {
  local place
  for place in "${mounted[@]}"; do umount "$place" || umount --lazy "$place"; done
  mounted=()
}
trap 'unmount; rm -rf "$work"' EXIT

# mount_new TYPE: mounts an empty file system on $work/TYPE; fails if that is impossible.
mount_new() {
  local place=$work/$1
  mkdir -p "$place"
  case $1 in
    tmpfs) mount -t tmpfs -o size=2g tmpfs "$place" || return 1 ;;
    overlay)
      mkdir -p "$work/layers"
      mount -t tmpfs -o size=2g tmpfs "$work/layers" || return 1
      mounted=("$work/layers" "${mounted[@]}")
      mkdir "$work"/layers/{lower,upper,work}
      mount -t overlay -o "lowerdir=$work/layers/lower,upperdir=$work/layers/upper,workdir=$work/layers/work" \
        overlay "$place" || return 1
      ;;
    *)
      truncate -s 2G "$work/$1.image"
      "mkfs.$1" -q "$([[ $1 == ext4 ]] && echo -F || echo -f)" "$work/$1.image" || return 1
      mount -o loop "$work/$1.image" "$place" || return 1
      ;;
  esac
  mounted=("$place" "${mounted[@]}")
  chmod 700 "$place"
}

failed=()
for type in ${FILESYSTEMS:-ext4 xfs btrfs f2fs overlay tmpfs}; do
  if ! mount_new "$type" 2>"$work/why"; then
    echo "== $type: left out: $(tail -1 "$work/why")"
    unmount
    continue
  fi
  echo "== $type"
  log=$PWD/.build/filesystem-$type.log
  TMPDIR=$work/$type timeout --kill-after=60 1200 "$bin/sync-storePackageTests.xctest" --testing-library swift-testing \
    --experimental-maximum-parallelization-width 8 --filter "$suites" >"$log" 2>&1 || failed+=("$type")
  grep -E '^✘|Test run with' "$log" || true
  for kind in '' steps shared containers; do
    TMPDIR=$work/$type timeout --kill-after=60 1200 "$kills" "$count" $kind >>"$log" 2>&1 || failed+=("$type (kills $kind)")
  done
  unmount
done
[[ ${#failed[@]} -eq 0 ]] || {
  echo "filesystems: failed on ${failed[*]}: see .build/filesystem-TYPE.log" >&2
  exit 1
}
