#!/usr/bin/env bash
# Lists the rows of docs/faults.txt with the test files that have one in a test's name, and those that no test has in its
# name; fails if there is one. With --missing only the latter.
set -euo pipefail
cd "$(dirname "$0")/.."

# The names of tests and suites: what stands in quotes behind @Test( or @Suite(, and functions whose name is a sentence, each
# on several lines, too. A number in a comment proves nothing, nor does a test of the simulated disk: that is the stage, not
# the product.
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
