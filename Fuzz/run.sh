#!/usr/bin/env bash
# Fuzzes what reads foreign bytes, coverage-guided and under the address sanitizer: each target of Fuzz/Targets for the
# given number of seconds (60), from the corpus that is kept in Fuzz/Corpus. A crash leaves its input in .build/fuzz. With KEEP=1 the
# inputs of up to 1 KiB that reach what none of that corpus does are added to it: every test run reads them.
#
#   Fuzz/run.sh [SECONDS [TARGET…]]
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}
shift || true
targets=("$@")
if [[ ${#targets[@]} -eq 0 ]]; then
  for file in Fuzz/Targets/*.swift; do targets+=("$(basename "$file" .swift)"); done
fi

# The libraries, instrumented. SwiftPM cannot link an executable with the fuzzer, so only they are built by it.
scratch=$PWD/.build/fuzz
flags=(-c release --scratch-path "$scratch" -Xswiftc -sanitize=fuzzer,address -Xswiftc -parse-as-library)
modules=$(swift build "${flags[@]}" --show-bin-path)
# Objects of sources that are gone would be linked, too.
rm -f "$modules"/{SyncStore,Replication}.build/*.o
swift build "${flags[@]}" --target Replication
# The targets see what the package's modules show each other; its identity is the name of its directory.
package=$(basename "$PWD" | tr '[:upper:]' '[:lower:]' | sed 's/[^a-z0-9_]/_/g')
# shellcheck disable=SC2046
libraries=($(pkg-config --libs openssl nettle sqlite3 libdeflate libxxhash))

export SWIFT_BACKTRACE=enable=no
# What needs files of the real disk has them in memory, and leaves them there when the fuzzer ends.
memory=/dev/shm
[[ -w $memory ]] || memory=${TMPDIR:-/tmp}
TMPDIR=$(mktemp -d "$memory/fuzz-XXXXXX")
export TMPDIR
trap 'rm -rf "$TMPDIR"' EXIT
for target in "${targets[@]}"; do
  echo "== $target, $seconds s"
  # What a target reads with is in the tests' support, which replays the corpora, or in the program.
  case $target in
    Arguments)
      mapfile -t sources < <(find Sources/sync-cli -name '*.swift' ! -name main.swift | sort)
      sources+=(-D FUZZING Tests/CLITests/ForeignArguments.swift)
      ;;
    *) sources=(Tests/SyncTestSupport/*.swift) ;;
  esac
  # Imports mean what they mean in the package.
  swiftc -O -parse-as-library -sanitize=fuzzer,address -package-name "$package" -swift-version 6 \
    -enable-upcoming-feature InternalImportsByDefault -enable-upcoming-feature MemberImportVisibility \
    -I "$modules/Modules" -Xcc "-fmodule-map-file=$modules/CLinux.build/module.modulemap" \
    $(for system in COpenSSL CNettle CSQLite CXXHash CDeflate; do printf -- '-Xcc -fmodule-map-file=%s ' "$PWD/Sources/$system/module.modulemap"; done) \
    "Fuzz/Targets/$target.swift" "${sources[@]}" "$modules"/{Replication,SyncStore,CLinux}.build/*.o "${libraries[@]}" \
    -o "$scratch/$target" 2> >(grep -v '__asan_' >&2)
  mkdir -p "$scratch/corpus/$target"
  "$scratch/$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
    -artifact_prefix="$scratch/$target-" "$scratch/corpus/$target" "Fuzz/Corpus/$target" 2>&1 |
    grep -E '^(stat::|==|SUMMARY|artifact|Done)' || { echo "Fuzz/run.sh: $target crashed: see $scratch" >&2; exit 1; }
  if [[ -n ${KEEP:-} ]]; then
    mkdir -p "$scratch/small/$target"
    find "$scratch/corpus/$target" -type f -size -1025c -exec cp -t "$scratch/small/$target" {} +
    "$scratch/$target" -merge=1 -timeout=10 "Fuzz/Corpus/$target" "$scratch/small/$target" 2>&1 | grep -E '^MERGE-OUTER: .*added' || true
  fi
done

# What the public API reaches needs no coverage to be worth trying: damaged stores, opened.
swift run -c release --package-path Fuzz Recovery "$seconds"
