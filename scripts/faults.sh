#!/usr/bin/env bash
# Lists the rows of docs/faults.txt with the test files that name them, and those that no test names yet.
# With --missing only the latter.
set -euo pipefail
cd "$(dirname "$0")/.."

covered=0
missing=0
while read -r number title; do
  [[ $number == F* ]] || continue
  files=$(grep -rlE "\b$number\b" Tests --include='*.swift' | sed 's|^Tests/||' | sort | paste -sd' ' || true)
  if [[ -n $files ]]; then
    covered=$((covered + 1))
    [[ ${1:-} == --missing ]] || printf '%-5s %-45s %s\n' "$number" "$title" "$files"
  else
    missing=$((missing + 1))
    printf '%-5s %-45s %s\n' "$number" "$title" '(no test)'
  fi
done <docs/faults.txt
echo "$covered rows are named by tests, $missing are not."
