#!/usr/bin/env bash
# Builds the examples and runs each as a self-checking demonstration. `scripts/examples.sh [NAME…]`, by
# default all.
set -euo pipefail
cd "$(dirname "$0")/.."

swift=${SWIFT:-swift}
[[ $# -gt 0 ]] || set -- edge-sensors config-store document-store
if [[ $# -eq 1 ]]; then only=(--product "$1"); else only=(); fi
"$swift" build --package-path Examples "${only[@]}"
bin=$("$swift" build --package-path Examples --show-bin-path)
for name in "$@"; do
  printf '\n%s\n' "$name"
  "$bin/$name" demo
done
