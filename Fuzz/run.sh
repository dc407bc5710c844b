#!/usr/bin/env bash
# Fuzzes the readers of foreign bytes, coverage-guided and under the address sanitizer: each target of
# Fuzz/Targets for the given number of seconds (60), starting from Fuzz/Corpus. A crash leaves its input in
# .build/fuzz. With KEEP=1 inputs of up to 1 KiB that reach new code are added to the corpus, which every test
# run replays.
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

# The instrumented libraries. SwiftPM cannot link an executable with the fuzzer, so it builds only these.
scratch=$PWD/.build/fuzz
flags=(-c release --scratch-path "$scratch" -Xswiftc -sanitize=fuzzer,address -Xswiftc -parse-as-library)
modules=$(swift build "${flags[@]}" --show-bin-path)
# Objects of deleted sources would be linked, too.
rm -f "$modules"/{SyncStore,Replication}.build/*.o
swift build "${flags[@]}" --target Replication
# The targets use the package's `package` declarations; its identity is the name of its directory.
package=$(basename "$PWD" | tr '[:upper:]' '[:lower:]' | sed 's/[^a-z0-9_]/_/g')
# shellcheck disable=SC2046
libraries=($(pkg-config --libs openssl nettle sqlite3 libdeflate libxxhash libedit))

export SWIFT_BACKTRACE=enable=no
# Targets that need real files use memory for them, and leave them there when the fuzzer ends.
memory=/dev/shm
[[ -w $memory ]] || memory=${TMPDIR:-/tmp}
TMPDIR=$(mktemp -d "$memory/fuzz-XXXXXX")
export TMPDIR
trap 'rm -rf "$TMPDIR"' EXIT
for target in "${targets[@]}"; do
  echo "== $target, $seconds s"
  # The readers used by a target are in the test support, which replays the corpora, or in the program.
  case $target in
    Arguments | Requests)
      mapfile -t sources < <(find Sources/sync-cli -name '*.swift' ! -name main.swift | sort)
      sources+=(-D FUZZING "Tests/CLITests/Foreign$target.swift")
      ;;
    *) sources=(Tests/SyncTestSupport/*.swift) ;;
  esac
  # Imports resolve as in the package.
  swiftc -O -parse-as-library -sanitize=fuzzer,address -package-name "$package" -swift-version 6 \
    -enable-upcoming-feature InternalImportsByDefault -enable-upcoming-feature MemberImportVisibility \
    -I "$modules/Modules" -Xcc "-fmodule-map-file=$modules/CLinux.build/module.modulemap" \
    $(for system in COpenSSL CNettle CSQLite CXXHash CDeflate CEdit; do printf -- '-Xcc -fmodule-map-file=%s ' "$PWD/Sources/$system/module.modulemap"; done) \
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

# Damaged stores opened through the public API are worth trying without coverage guidance.
swift run -c release --package-path Fuzz Recovery "$seconds"
