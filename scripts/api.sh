#!/usr/bin/env bash
# Compares the public API of the libraries with that of an earlier revision; fails if a program written for
# that one would no longer compile. `scripts/api.sh [REVISION]`; by default the last tag, else the point where
# this branch left main, else, on main itself, the commit before the last one.
set -euo pipefail
cd "$(dirname "$0")/.."

swift=${SWIFT:-swift}
base=${1:-}
[[ -n $base ]] || base=$(git describe --tags --abbrev=0 2>/dev/null || true)
if [[ -z $base ]]; then
  head=$(git rev-parse HEAD)
  for main in main origin/main; do
    fork=$(git merge-base HEAD "$main" 2>/dev/null || true)
    if [[ -n $fork && $fork != "$head" ]]; then
      base=$fork
      break
    fi
  done
fi
[[ -n $base ]] || base=HEAD~1
base=$(git rev-parse --verify --quiet "$base^{commit}") ||
  { echo "api: ${1:-HEAD~1} is no revision here: name one: make api BASE=REVISION" >&2; exit 2; }

echo "Comparing the public API with that of $(git log -1 --format='%h (%s)' "$base") …"
# Neither executables nor tests have an API; each library is built in both revisions.
"$swift" package --scratch-path .build/api diagnose-api-breaking-changes "$base" \
  --products SyncStore --products SyncStoreFoundation --products Replication
