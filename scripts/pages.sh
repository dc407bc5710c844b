#!/usr/bin/env bash
# Runs the store tests, or those that match $1, with a library that simulates a kernel with 64 KiB pages.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/deps.sh gcc libc6-dev
swift=${SWIFT:-swift}
$swift build --build-tests

out=.build/shims
mkdir -p "$out"
gcc -std=gnu11 -O1 -Wall -Wextra -Werror -shared -fPIC -o "$out/pages.so" Tests/Shims/pages.c
[[ $(LD_PRELOAD="$PWD/$out/pages.so" getconf PAGESIZE) == 65536 ]] || {
  echo "pages: this C library does not let a preloaded one tell the size of a page" >&2
  exit 1
}
# Excludes tests of pages past the end of a file: their location depends on the real kernel.
LD_PRELOAD="$PWD/$out/pages.so" timeout --kill-after=60 2400 "$($swift build --show-bin-path)/sync-storePackageTests.xctest" \
  --testing-library swift-testing --experimental-maximum-parallelization-width 8 --filter "${1:-SyncStoreTests}" --skip MappingFaultTests
