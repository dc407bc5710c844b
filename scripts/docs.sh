#!/usr/bin/env bash
# Builds the documentation of the libraries and of the command line into .build/docs, and all of its pages as
# one, .build/docs/all.html. Every docc warning fails it, such as broken links and obsolete names. Complete
# parameter lists are not required: self-explanatory parameters are not documented.
set -euo pipefail
cd "$(dirname "$0")/.."

swift=${SWIFT:-swift}
docc=${DOCC:-$(command -v docc || true)}
[[ -n $docc ]] || { echo "docs: no docc command: it is part of the Swift toolchain: set DOCC to its path" >&2; exit 1; }
# The pages as one need a converter; the others do not.
single=yes
scripts/deps.sh cmark-gfm python3 || single=no

out=.build/docs
parts=.build/docs-parts
rm -rf "$out" "$parts"
mkdir -p "$parts"

echo "Building the symbol graphs …"
modules=(SyncStore SyncStoreFoundation Replication ObjectStorageS3)
rm -rf .build/*/symbolgraph
# It fails if the tests are not built yet, because it also requests a graph of their generated module: only
# our modules count.
"$swift" package dump-symbol-graph --minimum-access-level public --skip-synthesized-members --emit-extension-block-symbols >"$parts/log" 2>&1 || true
graphs=$(sed -n 's/^Files written to //p' "$parts/log")
for module in "${modules[@]}"; do
  [[ -n $graphs && -f $graphs/$module.symbols.json ]] || { cat "$parts/log" >&2; exit 1; }
done

archives=()
for module in "${modules[@]}"; do
  mkdir "$parts/$module"
  for graph in "$graphs/$module".symbols.json "$graphs/$module"@*.symbols.json; do
    [[ ! -f $graph ]] || cp "$graph" "$parts/$module/"
  done
  "$docc" convert "Sources/$module/$module.docc" --warnings-as-errors --disable-parameters-and-returns-validation \
    --additional-symbol-graph-dir "$parts/$module" --output-path "$parts/$module.doccarchive" \
    --fallback-display-name "$module" --fallback-bundle-identifier "sync-store.$module"
  archives+=("$parts/$module.doccarchive")
done

echo "Writing the pages of the commands …"
"$swift" build --product sync-cli >"$parts/log" 2>&1 || { cat "$parts/log" >&2; exit 1; }
tool=$("$swift" build --show-bin-path)/sync-cli
"$tool" --quiet manual "$parts/CommandLine.docc" --site --configuration schemas/config.md
"$docc" convert "$parts/CommandLine.docc" --warnings-as-errors --output-path "$parts/CommandLine.doccarchive" \
  --fallback-display-name CommandLine --fallback-bundle-identifier sync-store.CommandLine
archives+=("$parts/CommandLine.doccarchive")

"$docc" merge "${archives[@]}" --synthesized-landing-page-name SyncStore --output-path "$out"
catalogues=()
for module in "${modules[@]}"; do catalogues+=("Sources/$module/$module.docc"); done
if [[ $single == yes ]]; then
  scripts/single-page.py "$out/all.html" "${catalogues[@]}" "$parts/CommandLine.docc"
  scripts/link-page.py "$out/data/documentation.json" /all.html "All pages as one, to search and to print"
else
  echo "docs: all.html is left out: cmark-gfm and python3 make it: install them, and run this again" >&2
fi
rm -rf "$parts"
echo "$out: to read it: python3 -m http.server --directory $out 8000, then http://localhost:8000/documentation; $out/all.html needs no server"
