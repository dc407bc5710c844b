#!/usr/bin/env bash
# Mutation testing. Each file of scripts/mutants describes one fault, as a text to find in a source and its
# replacement, and the suites that must detect it. All faults are built into one copy of the package below
# .build/mutants, each selected by an environment variable, so that one build serves all (mutant schemata,
# Untch, Offutt and Harrold 1993). The working tree is not touched.
#
#   scripts/mutants.sh [NAME…]
#
# BUILT=1 reuses the last build. LIMIT is the time limit in seconds for the tests of one fault (300). An
# undetected fault is printed as SURVIVED, and makes the exit code 1. The test output is in
# .build/mutants/*.log.
set -euo pipefail
cd "$(dirname "$0")/.."
swift=${SWIFT:-swift}
work=$PWD/.build/mutants
tree=$work/tree
names=("$@")
if [[ ${#names[@]} -eq 0 ]]; then
  for file in scripts/mutants/*.mutant; do names+=("$(basename "$file" .mutant)"); done
fi
for name in "${names[@]}"; do
  [[ -f scripts/mutants/$name.mutant ]] || { echo "scripts/mutants.sh: there is no scripts/mutants/$name.mutant" >&2; exit 2; }
done

prepare() {
  # The files that git would commit, with their modification times, so that unchanged ones are not compiled
  # again.
  mkdir -p "$work"
  rm -rf "$tree"
  mkdir "$tree"
  git ls-files -z --cached --others --exclude-standard | while IFS= read -r -d '' file; do
    if [[ -e $file ]]; then printf '%s\0' "$file"; fi
  done | tar --null -T - -cf - | tar -C "$tree" -xf -

  cat >"$tree/Sources/SyncStore/Mutant.swift" <<'SWIFT'
private import Glibc

/// Which of the faults that were planted is on: the one that the environment names.
package enum Mutant {
  private static let chosen: String = {
    guard let name = unsafe getenv("MUTANT") else { return "" }
    return unsafe String(cString: name)
  }()

  package static func isOn(_ name: String) -> Bool { name == chosen }
}
SWIFT

  for mutant in scripts/mutants/*.mutant; do
    perl -e '
      my ($mutant, $tree) = @ARGV;
      my ($name) = $mutant =~ m{([^/]+)\.mutant$};
      local $/;
      open my $in, "<", $mutant or die "$mutant: $!\n";
      my ($path, $find, $put) = <$in> =~ /\Awhat: [^\n]+\nfile: ([^\n]+)\ntests: [^\n]+\nfind:\n(.*?)\nput:\n(.*?)\n?\z/s
        or die "scripts/mutants.sh: $mutant has not the form what, file, tests, find, put\n";
      open my $source, "<", "$tree/$path" or die "$mutant: $path: $!\n";
      my $text = <$source>;
      my $count = () = $text =~ /\Q$find\E/g;
      die "scripts/mutants.sh: $mutant: what it looks for is $count times in $path, not once: bring it up to date\n"
        if $count != 1;
      $put =~ s/\bMUTANT\b/Mutant.isOn("$name")/g;
      $text =~ s/\Q$find\E/$put/;
      # The file may lack the import of the module that has the switch.
      $text = "internal import SyncStore\n$text" if $path !~ m{^Sources/SyncStore/} && $text !~ /\bimport SyncStore$/m;
      open my $out, ">", "$tree/$path" or die "$path: $!\n";
      print $out $text;
    ' "$mutant" "$tree"
  done
}

flags=(-c release -Xswiftc -enable-testing --package-path "$tree" --scratch-path "$work/build")
# A killed test must report that at once.
export SWIFT_BACKTRACE=enable=no
# Rare effects need more histories than a normal test run has.
export SIM_SEEDS=${SIM_SEEDS:-60} RELAY_TWIN_SEEDS=${RELAY_TWIN_SEEDS:-60}
if [[ -z ${BUILT:-} ]]; then
  prepare
  echo "Building with ${#names[@]} faults that are off …"
  "$swift" build --build-tests "${flags[@]}" >"$work/build.log" 2>&1 || {
    grep -E 'error:' -A4 "$work/build.log" | head -40 >&2
    echo "scripts/mutants.sh: the build failed: see $work/build.log" >&2
    exit 1
  }
fi

field() { sed -n "s/^$2: //p" "scripts/mutants/$1.mutant"; }
# run NAME FILTER: returns 0 if the tests pass.
run() {
  MUTANT=$1 timeout "${LIMIT:-300}" "$swift" test "${flags[@]}" --skip-build --disable-xctest --filter "[.]($2)/" \
    >"$work/${1:-none}.log" 2>&1
}

all=$(for name in "${names[@]}"; do field "$name" tests; done | tr '|' '\n' | sort -u | paste -sd '|')
run '' "$all" || { echo "scripts/mutants.sh: the tests fail without any fault: see $work/none.log" >&2; exit 1; }
for suite in ${all//|/ }; do
  grep -rqE "^(@.* )?(struct|final class) $suite\b" Tests || { echo "scripts/mutants.sh: there is no suite $suite" >&2; exit 1; }
done

survived=0
for name in "${names[@]}"; do
  status=0
  run "$name" "$(field "$name" tests)" || status=$?
  case $status in
    0) verdict=SURVIVED survived=$((survived + 1)) ;;
    124) verdict='noticed (no end)' ;;
    *) verdict=noticed ;;
  esac
  printf '%-34s %-9s %s\n' "$name" "$verdict" "$(field "$name" what)"
done
echo "$((${#names[@]} - survived)) of ${#names[@]} faults were noticed"
[[ $survived -eq 0 ]]
