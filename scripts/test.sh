#!/usr/bin/env bash
# Runs `swift test` with the given arguments, and repeats the failures at the end: some 1,800 tests print so much
# that a failure in the middle is easily missed, and where only the end of a log is kept, it is lost.
set -euo pipefail
cd "$(dirname "$0")/.."

swift=${SWIFT:-swift}
log=.build/test.log
mkdir -p .build
code=0
"$swift" test "$@" 2>&1 | tee "$log" || code=$?
if [[ $code -ne 0 ]]; then
  echo
  echo "test: ended with $code. The failures again, from $log:"
  # An issue and the lines of its explanation; the compiler's errors where the build failed.
  grep -a -A3 -E 'recorded an issue|^error: |: error: |signal code|Fatal error' "$log" | tail -n 150 || true
fi
exit "$code"
