#!/usr/bin/env bash
# Lists the rows of docs/faults.txt with the test files that name them in a test's name, and the rows without
# a test; fails if there is one. With --missing only the latter.
set -euo pipefail
cd "$(dirname "$0")/.."

# Names of tests and suites: the strings in @Test( or @Suite(, and functions named by a sentence, also across
# lines. A number in a comment proves nothing, nor does a test of the simulated disk, which is test equipment.
names=$(find Tests -name '*.swift' ! -name SimulatedStorageTests.swift | sort | xargs perl -0777 -ne '
  while (/\@(?:Test|Suite)\(\s*(?|"""(.*?)"""|"((?:[^"\\]|\\.)*)")|func\s+`([^`]*)`/gs) {
    my $name = defined $1 ? $1 : $2;
    my $file = $ARGV;
    $file =~ s|^Tests/||;
    print "$file $1\n" while $name =~ /\b(F\d+)\b/g;
  }')

covered=0
missing=0
while read -r number title; do
  [[ $number =~ ^F[0-9]+$ ]] || continue
  title=${title%%:*}
  files=$(awk -v n="$number" '$2 == n { print $1 }' <<<"$names" | sort -u | paste -sd' ')
  if [[ -n $files ]]; then
    covered=$((covered + 1))
    [[ ${1:-} == --missing ]] || printf '%-5s %-45s %s\n' "$number" "$title" "$files"
  else
    missing=$((missing + 1))
    printf '%-5s %-45s %s\n' "$number" "$title" '(no test)'
  fi
done <docs/faults.txt
echo "$covered rows are named by tests, $missing are not."
((missing == 0))
