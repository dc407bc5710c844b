#!/usr/bin/env bash
# Runs the store tests, or those that match $1, while the kernel refuses one system call, for each call that
# has a fallback; with TOGETHER=1 once, with all of them refused. RefusedCallTests does the same for every
# command, with more errors.
set -euo pipefail
cd "$(dirname "$0")/.."
swift=${SWIFT:-swift}
filter=${1:-SyncStoreTests}
$swift build --build-tests
bin=$($swift build --show-bin-path)
calls=(openat2 renameat2 statx fallocate membarrier sync_file_range syncfs populate)
failed=()

# run NAME CALL...: runs the tests with these calls refused, except one that prepares its disk by fallocate(1).
run() {
  local name=$1 refusals=() call
  shift
  for call; do refusals+=("$bin/refuse-call" "$call" ENOSYS); done
  echo "== refused: $*"
  "${refusals[@]}" /usr/bin/timeout --kill-after=60 1800 "$bin/sync-storePackageTests.xctest" \
    --testing-library swift-testing --experimental-maximum-parallelization-width 8 --filter "$filter" \
    --skip packTableWithoutSpace \
    >".build/refused-$name.log" 2>&1 || failed+=("$name")
  grep -aE '✘|Test run with' ".build/refused-$name.log" || true
}

if [[ -n ${TOGETHER:-} ]]; then
  run together "${calls[@]}"
else
  for call in "${calls[@]}"; do run "$call" "$call"; done
fi
[[ ${#failed[@]} -eq 0 ]] || {
  echo "refused-suite: tests failed with these calls refused: ${failed[*]}: see .build/refused-CALL.log" >&2
  exit 1
}
