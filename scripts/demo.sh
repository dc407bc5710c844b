#!/usr/bin/env bash
# Demonstrates the product on thousands of real files: two copies of one store, both written offline, synced
# over the network and verified to be equal. Takes a minute after the build, ends the processes it started and
# removes its files.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/common.sh

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
# Prints a command as typed, and runs it.
run() {
  local word line='' quote="'"
  for word in "$@"; do
    if [[ $word == *[^[:alnum:]_./:=+-]* ]]; then word=$quote$word$quote; fi
    line+=" $word"
  done
  line=${line//$cli/sync-cli}
  printf '  $%s\n' "${line//$work\//}"
  "$@" | sed "s|$work/||g; s/^/    /"
}
fail() {
  printf '\nThe demo failed: %s\n' "$*" >&2
  exit 1
}

# The first sufficiently large one of a few trees present on every Debian machine; at most 6,000 files and 100
# MB of it.
choose_tree() {
  local candidate figures
  for candidate in /usr/include /usr/share/doc /usr/share /usr; do
    [[ -d $candidate ]] || continue
    figures=$(find "$candidate" -xdev -type f -readable -size -16M -printf '%s\n' 2>/dev/null |
      awk '{ n++; s += $1 } END { print (n > 2000 && s > 20000000) ? "yes" : "no" }')
    if [[ $figures == yes ]]; then
      tree=$candidate
      return
    fi
  done
  fail "no tree with 2,000 files and 20 MB was found on this machine"
}

copy_tree() {
  mkdir "$work/original"
  # A name with a line break would need another separator, which not every awk supports.
  find "$tree" -xdev -type f -readable -size -16M ! -name $'*\n*' -printf '%s %P\n' 2>/dev/null |
    LC_ALL=C awk '{ n++; s += $1 } n <= 6000 && s <= 100000000 { print substr($0, index($0, " ") + 1) }' |
    tar -C "$tree" --verbatim-files-from -T - --hard-dereference -cf - |
    tar -C "$work/original" --no-same-owner --no-same-permissions -xf -
  chmod -R u+rwX "$work/original"
}

begin
choose_tree
copy_tree
files=$(find "$work/original" -type f | wc -l)
large=$(find "$work/original" -type f -size +20k | wc -l)
mib=$(($(find "$work/original" -type f -printf '%s\n' | awk '{ s += $1 } END { print s }') >> 20))
workshop="$work/workshop"
vessel="$work/vessel"

say "A real tree: $files files of $tree, $mib MiB, $large of them large values (above 20 KiB)."

say "1. A store in the workshop takes in the whole tree."
run "$cli" --store "$workshop" init --name workshop
run "$cli" --store "$workshop" import "$work/original"

say "2. Its daemon listens; a token invites one other machine, which joins and pulls everything."
start_daemon "$workshop"
echo "  \$ sync-cli --store workshop serve --listen 127.0.0.1:0 &"
echo "    listening on $address"
token=$("$cli" --store "$workshop" invite)
echo "  \$ sync-cli --store workshop invite"
echo "    ${token:0:40}…"
echo "  \$ sync-cli --store vessel join TOKEN --name vessel"
"$cli" --store "$vessel" join "$token" --name vessel | sed "s|$work/||; s/^/    /"

say "3. What the vessel has is the original, byte for byte."
run "$cli" --store "$vessel" export "$work/exported"
echo "  \$ diff -r original exported"
diff -r "$work/original" "$work/exported" || fail "the exported tree differs from the original"
echo "    no difference in $files files"

say "4. The network is gone. Both go on working, on the same key among others."
stop_daemon "$daemon" || fail "the daemon did not end well"
victim=$(cd "$work/original" && find . -type f -printf '%P\n' | sort | sed -n 10p)
run "$cli" --store "$workshop" put plan/departure "Monday, says the workshop"
run "$cli" --store "$workshop" put parts/pump "ordered"
run "$cli" --store "$workshop" delete "$victim"
sleep 0.01
run "$cli" --store "$vessel" put plan/departure "Tuesday, says the vessel"
run "$cli" --store "$vessel" put position "54.3 N 10.1 E"
head -c 3000000 /dev/urandom >"$work/photo.jpg"
run "$cli" --store "$vessel" put photo.jpg --file "$work/photo.jpg"
echo "  The digests differ now:"
run "$cli" --store "$workshop" digest
run "$cli" --store "$vessel" digest

say "5. The network is back, at another address. One sync moves what is new, both ways."
start_daemon "$workshop"
run "$cli" --store "$vessel" peer add workshop "$address"
run "$cli" --store "$vessel" sync workshop

say "6. Both copies are equal: the same digest."
run "$cli" --store "$workshop" digest
run "$cli" --store "$vessel" digest
[[ $("$cli" --store "$workshop" digest) == $("$cli" --store "$vessel" digest) ]] || fail "the digests differ"
"$cli" --store "$workshop" get photo.jpg | cmp - "$work/photo.jpg" || fail "the photo did not arrive whole"
if "$cli" --store "$vessel" get "$victim" >/dev/null 2>&1; then fail "a deleted file came back"; fi

say "7. Both wrote plan/departure. The later write won, on both sides, and the store can tell why."
run "$cli" --store "$workshop" get plan/departure
echo
run "$cli" --store "$vessel" get plan/departure
echo
run "$cli" --store "$workshop" why plan/departure
[[ $("$cli" --store "$workshop" get plan/departure) == "Tuesday, says the vessel" ]] || fail "the earlier write won"

say "8. Nothing is new: pushing again costs a kilobyte or two, most of it the handshake, whatever the size of the store."
run "$cli" --store "$vessel" push workshop --json

say "9. Every record and every large value is what was written."
run "$cli" --store "$workshop" verify
run "$cli" --store "$vessel" verify
stop_daemon "$daemon" || fail "the daemon did not end well"

say "10. Other machines never meet the vessel. All of them use a relay: a directory, as on a stick."
office="$work/office"
mkdir "$work/stick"
for store in "$workshop" "$vessel"; do "$cli" --store "$store" peer add stick "dir:$work/stick"; done
echo "  \$ sync-cli peer add stick dir:stick     on both"
run "$cli" --store "$workshop" push stick
token=$("$cli" --store "$workshop" invite --relay stick)
echo "  \$ sync-cli --store workshop invite --relay stick"
echo "  The office joins while no other machine is on. Its request waits in the relay, until the vessel looks."
echo "  \$ sync-cli --store office join TOKEN --name office --timeout 1s"
"$cli" --store "$office" join "$token" --name office --timeout 1s && fail "a member answered that was not on"
run "$cli" --store "$vessel" sync stick
echo "  \$ sync-cli --store office join TOKEN --name office"
"$cli" --store "$office" join "$token" --name office
run "$cli" --store "$office" put visit/tuesday "the pilot comes aboard"
run "$cli" --store "$office" sync stick
run "$cli" --store "$vessel" sync stick
run "$cli" --store "$workshop" sync stick
run "$cli" --store "$workshop" get visit/tuesday
echo
run "$cli" --store "$workshop" relay status stick
for store in "$vessel" "$office"; do
  [[ $("$cli" --store "$workshop" digest) == $("$cli" --store "$store" digest) ]] ||
    fail "the digests of the members of the relay differ"
done
"$cli" --store "$office" get photo.jpg | cmp - "$work/photo.jpg" || fail "the photo did not arrive through the relay"

say "Done: everything that was started has ended, and the work area is removed."
