#!/usr/bin/env bash
# Runs the tests of the store, or those that match $1, while the kernel refuses the program one system call, for each call that has a
# substitute. RefusedCallTests does the same for every command, with more errors.
set -euo pipefail
cd "$(dirname "$0")/.."
swift=${SWIFT:-swift}
$swift build --build-tests
bin=$($swift build --show-bin-path)
failed=()
for call in openat2 renameat2 statx fallocate membarrier sync_file_range syncfs populate; do
  echo "== $call is refused"
  "$bin/refuse-call" "$call" ENOSYS timeout --kill-after=60 1800 "$bin/sync-storePackageTests.xctest" \
    --testing-library swift-testing --experimental-maximum-parallelization-width 8 --filter "${1:-SyncStoreTests}" \
    >".build/refused-$call.log" 2>&1 || failed+=("$call")
  grep -E '^✘|Test run with' ".build/refused-$call.log" || true
done
[[ ${#failed[@]} -eq 0 ]] || {
  echo "refused-suite: tests failed with these calls refused: ${failed[*]}: see .build/refused-CALL.log" >&2
  exit 1
}
