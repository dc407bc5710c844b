#!/usr/bin/env bash
# Verifies the promises of the product on real input: one line per item, with figures; exits with 1 if one is
# broken.
#
#   scripts/acceptance.sh [ITEM…]      items: tree again kills strangers flips large; all of them by default
#
# Set FILES, MIB, KILLS, FLIPS, GIB and SEED to change the size, or to repeat a run.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/common.sh

FILES=${FILES:-20000} MIB=${MIB:-256} KILLS=${KILLS:-20} FLIPS=${FLIPS:-200} GIB=${GIB:-8} SEED=${SEED:-$$}
RANDOM=$SEED
failures=0

now() { date +%s%N; }
since() { awk -v a="$1" -v b="$(now)" 'BEGIN { printf "%.1f s", (b - a) / 1e9 }'; }
field() { sed -nE "s/.*\"$1\":\"?([^,\"}]*).*/\1/p"; }
pass() { printf 'ok      %-10s %s\n' "$1" "$2"; }
broken() {
  printf 'BROKEN  %-10s %s\n' "$1" "$2"
  failures=$((failures + 1))
}
a() { "$cli" --store "$work/a" "$@"; }
b() { "$cli" --store "$work/b" "$@"; }

# Distinct files from empty to 8 MiB with spaces and UTF-8 in their names, $MIB in all.
make_tree() {
  perl -e '
    my ($top, $files, $bytes, $seed) = @ARGV;
    srand($seed);
    open(my $source, "<:raw", "/dev/urandom") or die;
    read($source, my $pool, 9 << 20);
    my @sizes = map { my $r = rand();
      $r < 0.03 ? 0 : $r < 0.90 ? int(rand(8192)) : $r < 0.995 ? int(16384 + rand(70000)) : int((1 << 20) + rand(3 << 20))
    } 1 .. $files;
    $sizes[0] = 0; $sizes[1] = 8 << 20; $sizes[2] = 20480; $sizes[3] = 20481;
    my $sum = 0; $sum += $_ for @sizes;
    my $scale = ($bytes - (8 << 20)) / ($sum - (8 << 20));
    for my $i (4 .. $#sizes) { $sizes[$i] = int($sizes[$i] * $scale); $sizes[$i] = 8 << 20 if $sizes[$i] > 8 << 20; }
    mkdir $top;
    for my $i (0 .. $#sizes) {
      my $folder = sprintf("%s/%02d %s", $top, $i % 40, $i % 3 ? "folder" : "ключи \xc3\xa9");
      mkdir $folder;
      open(my $file, ">:raw", sprintf("%s/%s %d", $folder, $i % 2 ? "file" : "\xe6\x96\x87\xe4\xbb\xb6", $i)) or die;
      next unless $sizes[$i];
      my $text = "$i:";
      print $file substr($text . substr($pool, int(rand(1 << 20)), $sizes[$i]), 0, $sizes[$i]);
    }' "$1" "$FILES" $((MIB << 20)) "$SEED"
}

# Two members: b was invited by a and has pulled nothing; its daemon runs.
pair() {
  rm -rf "$work/a" "$work/b"
  a init --name a >/dev/null
  start_daemon "$work/a"
  b join "$(a invite)" --name b --no-pull >/dev/null
  stop_daemon "$daemon"
  start_daemon "$work/b"
  a peer add b "$address"
}

same_digest() { [[ $(a digest) == $(b digest) ]]; }

item_tree() {
  local begin figures count import push export keys=() shared=() key value index side
  make_tree "$work/tree"
  count=$(find "$work/tree" -type f | wc -l)
  pair
  begin=$(now)
  a import "$work/tree" >/dev/null
  import=$(since "$begin")
  begin=$(now)
  figures=$(a push b --json)
  push=$(since "$begin")
  begin=$(now)
  b export "$work/exported" >/dev/null
  export=$(since "$begin")
  if ! diff -r "$work/tree" "$work/exported" >/dev/null; then
    broken tree "the exported tree differs"
    return
  fi
  pass tree "$count files, $(du -sm --apparent-size "$work/tree" | cut -f1) MiB: import $import, push $push ($(field sent_bytes <<<"$figures") bytes sent, $(field sent_blobs <<<"$figures") blobs), export $export, diff -r: no difference"

  # Offline: 200 writes on each side, 50 of them to the same keys.
  stop_daemon "$daemon"
  mapfile -t keys < <(a list | shuf -n 350 --random-source=<(yes "$SEED"))
  declare -A expected
  for ((index = 0; index < 200; index++)); do
    for side in $( ((RANDOM % 2)) && echo a b || echo b a); do
      if ((index < 50)); then key=${keys[index]}; elif [[ $side == a ]]; then key=${keys[index]}; else key=${keys[index + 150]}; fi
      if ((RANDOM % 3 == 0)); then
        "$side" delete -- "$key" || true
        expected[$key]=deleted
      else
        value="$side writes $index"
        "$side" put -- "$key" "$value"
        expected[$key]="=$value"
      fi
    done
  done
  start_daemon "$work/b"
  a peer add b "$address"
  figures=$(a sync b --json)
  same_digest || broken offline "the digests differ after the sync"
  local wrong=0 got
  for key in "${!expected[@]}"; do
    for side in a b; do
      if got=$("$side" get -- "$key" 2>/dev/null); then got="=$got"; else got=deleted; fi
      [[ $got == "${expected[$key]}" ]] || wrong=$((wrong + 1))
    done
  done
  if [[ $wrong == 0 ]]; then
    pass offline "200 writes on each side, 50 on the same keys: sent $(field sent_records <<<"$figures"), received $(field received_records <<<"$figures") records; digests equal; all ${#expected[@]} keys have the later write on both sides"
  else
    broken offline "$wrong keys do not have the later write"
  fi
}

item_again() {
  local figures bytes
  figures=$(a push b --json)
  bytes=$(($(field sent_bytes <<<"$figures") + $(field received_bytes <<<"$figures")))
  local line
  line="a push with nothing new: $(field round_trips <<<"$figures") round trips, $bytes bytes on the wire, $(field seconds <<<"$figures") s, $(a list | wc -l) keys"
  if (($(field round_trips <<<"$figures") <= 2 && bytes < 8192)); then pass again "$line"; else broken again "$line"; fi
  stop_daemon "$daemon"
}

item_kills() {
  local name kill pusher moment length verified=0 lost=0 killed_daemons=0 killed_pushers=0 index begin status
  [[ -d $work/tree ]] || make_tree "$work/tree"
  pair
  a import "$work/tree" >/dev/null
  begin=$(now)
  a push b >/dev/null
  length=$((($(now) - begin) / 1000000))
  stop_daemon "$daemon"
  local acknowledged=()
  for ((kill = 0; kill < KILLS; kill++)); do
    # A new, empty copy whenever the last one is complete, so that there is something to push.
    if ((kill % 4 == 0)); then
      rm -rf "$work/b"
      start_daemon "$work/a"
      name=b$kill
      b join "$(a invite)" --name "$name" --no-pull >/dev/null
      stop_daemon "$daemon"
    fi
    a put "round $kill" "acknowledged"
    start_daemon "$work/b"
    a peer add "$name" "$address"
    # The program itself, not a shell that waits for it.
    "$cli" --store "$work/a" push "$name" >/dev/null 2>&1 &
    pusher=$!
    moment=$((RANDOM * 32768 + RANDOM))
    moment=$((moment % (length + 1)))
    sleep "$(awk -v m="$moment" 'BEGIN { print m / 1000 }')"
    if ((kill % 2 == 0)); then
      kill -9 "$daemon" 2>/dev/null || true
      status=0
      wait "$daemon" 2>/dev/null || status=$?
      if ((status == 137)); then killed_daemons=$((killed_daemons + 1)); fi
      status=0
      wait "$pusher" 2>/dev/null || status=$?
    else
      # Signalling a process that has exited but was not waited for succeeds: its exit status says whether it
      # was killed.
      kill -9 "$pusher" 2>/dev/null || true
      status=0
      wait "$pusher" 2>/dev/null || status=$?
      if ((status == 137)); then killed_pushers=$((killed_pushers + 1)); fi
      stop_daemon "$daemon"
    fi
    if ((status == 0)); then acknowledged+=("round $kill"); fi
    for side in a b; do
      if "$side" verify >"$work/verify" 2>&1; then verified=$((verified + 1)); else broken kills "verify of $side after kill $kill: $(tail -1 "$work/verify")"; fi
    done
    for ((index = 0; index <= kill; index++)); do
      [[ $(a get "round $index" 2>/dev/null) == acknowledged ]] || lost=$((lost + 1))
    done
    for key in "${acknowledged[@]}"; do
      # A later copy starts empty; everything the present one acknowledged must be in it.
      if ((${key#round } / 4 == kill / 4)); then
        [[ $(b get "$key" 2>/dev/null) == acknowledged ]] || lost=$((lost + 1))
      fi
    done
  done
  start_daemon "$work/b"
  a peer add "$name" "$address"
  a push "$name" >/dev/null
  rm -rf "$work/exported"
  b export "$work/exported" >/dev/null
  rm -f "$work/exported/round "*
  if ((${#acknowledged[@]} == 0)); then
    broken kills "no push was acknowledged: nothing could be lost"
  elif same_digest && diff -r "$work/tree" "$work/exported" >/dev/null && ((lost == 0 && verified == 2 * KILLS)); then
    pass kills "$killed_daemons daemons and $killed_pushers pushers killed within pushes of $length ms: $verified of $((2 * KILLS)) verifications clean, none of ${#acknowledged[@]} acknowledged pushes lost, the last push completed, digests equal, tree equal"
  else
    broken kills "lost $lost, verified $verified of $((2 * KILLS)), or the digests or trees differ"
  fi
  stop_daemon "$daemon"
}

# memory FIELD PROCESS: a memory figure of a process from /proc, in KiB. Fails once the process has exited.
memory() { awk -v field="$1:" '$1 == field { print $2 }' "/proc/$2/status"; }

item_strangers() {
  local host port before after said=$work/said refused=$work/refused raw=$work/raw silent=() index served=0 tried=0 connection
  pair
  for index in $(seq 20); do a put "k$index" v; done
  a push b >/dev/null
  host=${address%:*} port=${address##*:}
  before=$(memory VmRSS "$daemon")
  : >"$said"
  : >"$refused"
  : >"$raw"
  # Strangers are only listened to while an invitation is open.
  b invite >/dev/null
  openssl req -x509 -newkey ed25519 -nodes -keyout "$work/self.key" -out "$work/self.pem" -subj /CN=b -days 1 2>/dev/null

  # Silent connections for a minute, more than the limit for strangers; reopened when they are dropped.
  for index in $(seq 40); do
    (
      end=$((SECONDS + 60))
      while ((SECONDS < end)); do
        (exec 3<>"/dev/tcp/$host/$port" && timeout $((end - SECONDS + 1)) cat <&3 >>"$raw") || true
        sleep 0.5
      done
    ) 2>/dev/null &
    silent+=($!)
  done
  # Sends its standard input over TLS, then waits for an answer: records only decrypted content.
  stranger() { { cat; sleep 1; } | timeout 15 openssl s_client -connect "$address" -quiet "$@" >>"${heard:-$said}" 2>>"$work/strangers.log" || true; }
  echo hello >"$work/hello"
  printf '\377\377\377\177%0100000d' 0 >"$work/length"
  for index in $(seq 5); do
    stranger <"$work/hello"
    stranger <"$work/hello" -tls1_2
    stranger <"$work/hello" -cert "$work/self.pem" -key "$work/self.key"
    stranger <"$work/hello" -cert "$work/self.pem" -key "$work/self.key" -alpn syncstore/1
    stranger <"$work/length" -cert "$work/self.pem" -key "$work/self.key"
    # A request to join is always answered, if only with a refusal.
    heard=$refused stranger <"$work/length" -cert "$work/self.pem" -key "$work/self.key" -alpn syncstore-join/1
    (exec 3<>"/dev/tcp/$host/$port" && head -c 1000000 /dev/urandom >&3 && timeout 5 cat <&3 >>"$raw") 2>/dev/null || true
    (exec 3<>"/dev/tcp/$host/$port" && printf '\200\000\000\000\026\003\001\377\377' >&3 && timeout 2 cat <&3 >>"$raw") 2>/dev/null || true
    tried=$((tried + 1))
    a put "k$index" "beside strangers $index"
    if a push b >/dev/null 2>>"$work/strangers.log"; then served=$((served + 1)); fi
  done
  for connection in "${silent[@]}"; do wait "$connection" 2>/dev/null || true; done
  kill -0 "$daemon" || broken strangers "the daemon has ended"
  a put last word
  a push b >/dev/null && served=$((served + 1)) && tried=$((tried + 1))
  after=$(memory VmRSS "$daemon")
  # A rejected peer receives no application byte, except the refusal of a request to join (frames of kind 14);
  # on raw connections only TLS alerts, which state the reason, and no other record.
  local alerts refusals
  refusals=$(perl -0777 -ne '
    my ($at, $count) = (0, 0);
    while ($at < length) {
      my ($size, $kind) = unpack("VC", substr($_, $at, 5));
      last if $kind != 14 || $size < 2 || $size > 1100 || $at + 4 + $size > length;
      ($at, $count) = ($at + 4 + $size, $count + 1);
    }
    print $at == length ? $count : "other frames";' "$refused")
  alerts=$(od -An -v -tx1 "$raw" | tr -d ' \n')
  if [[ -s $said ]]; then
    broken strangers "$(stat -c %s "$said") bytes were said to strangers: $(od -An -c "$said" | head -2)"
  elif [[ $refusals != 5 ]]; then
    broken strangers "5 requests to join were answered with ${refusals:-nothing}, not with 5 refusals"
  elif ! [[ $alerts =~ ^(15030[0-4]0002....)*$ ]]; then
    broken strangers "raw connections were sent more than alerts: ${alerts:0:200}"
  elif same_digest && ((served == tried && after < before + 20000)); then
    pass strangers "openssl without and with a self-made certificate, TLS 1.2, garbage, lengths of 2 GiB, 40 silent connections for 60 s: no application byte but $refusals refusals to join, $((${#alerts} / 14)) alerts; members served $served of $tried times; resident $before → $after KiB, peak $(memory VmHWM "$daemon") KiB"
  else
    broken strangers "served $served of $tried, resident $before → $after KiB"
  fi
  stop_daemon "$daemon"
}

item_flips() {
  local flip named=0 harmless=0 wrong=0 place status
  rm -rf "$work/a" "$work/flipped"
  a init --name a >/dev/null
  for flip in $(seq 40); do a put "key $flip" "value $flip of this store"; done
  a delete "key 7"
  for flip in 1 2 3 4 5 6; do head -c $((flip * 30000)) /dev/urandom | a put "blob $flip" -; done
  a import "$PWD/Sources/SyncStore/Store" --prefix src/ >/dev/null
  a dump | sort >"$work/truth"
  for ((flip = 0; flip < FLIPS; flip++)); do
    rm -rf "$work/flipped"
    cp -a "$work/a" "$work/flipped"
    # Half of them anywhere, half in used bytes; the segments are mostly empty.
    place=$(perl -e '
      use File::Find;
      my ($top, $seed, $used) = @ARGV;
      srand($seed);
      my (@files, $sum);
      find(sub { push @files, [$File::Find::name, -s _] if -f $_ && -s _ }, $top);
      @files = sort { $a->[0] cmp $b->[0] } @files;
      $sum += $_->[1] for @files;
      for (1 .. 10000) {
        my ($at, $file) = int(rand($sum));
        for my $f (@files) { $file = $f, last if $at < $f->[1]; $at -= $f->[1]; }
        chmod 0600, $file->[0];
        open(my $h, "+<:raw", $file->[0]) or die;
        seek($h, $at, 0); read($h, my $byte, 1);
        next if $used && $byte eq "\0";
        seek($h, $at, 0); print $h chr(ord($byte) ^ (1 << int(rand(8))));
        print substr($file->[0], length($top) + 1), " byte $at";
        last;
      }' "$work/flipped" $((SEED * 1000 + flip)) $((flip % 2)))
    status=0
    "$cli" --store "$work/flipped" verify >"$work/verify" 2>&1 || status=$?
    "$cli" --store "$work/flipped" dump 2>/dev/null | sort >"$work/dumped" || true
    if [[ -n $(comm -13 "$work/truth" "$work/dumped") ]]; then
      wrong=$((wrong + 1))
      broken flips "a wrong value after a flip in $place"
    elif ((status != 0)); then
      named=$((named + 1))
    elif cmp -s "$work/truth" "$work/dumped"; then
      harmless=$((harmless + 1))
    else
      wrong=$((wrong + 1))
      broken flips "verify is clean, but values are missing after a flip in $place"
    fi
    ((status < 70)) || broken flips "verify ended with $status after a flip in $place: $(tail -1 "$work/verify")"
  done
  ((wrong > 0)) || pass flips "$FLIPS bits flipped, each in a fresh copy (seed $SEED): $named named by verify, $harmless provably harmless, no wrong value"
}

# Peak anonymous memory of a command, and of a daemon next to it, sampled 50 times a second: sets $most and
# $beside, in KiB. File pages are not counted: the kernel reclaims them when needed.
watched() {
  local other=$1 process found
  shift
  "$@" >"$work/said" 2>&1 &
  process=$!
  most=0 beside=0
  while found=$(memory RssAnon "$process" 2>/dev/null) && [[ -n $found ]]; do
    if ((found > most)); then most=$found; fi
    found=$(memory RssAnon "$other" 2>/dev/null || true)
    if ((${found:-0} > beside)); then beside=$found; fi
    sleep 0.02
  done
  wait "$process" || broken large "\"${*:2}\" failed: $(tail -1 "$work/said")"
}

# One value of $GIB: put, pushed, read.
item_large() {
  local file=$work/large bound=65536 begin put push get stored sent served read writing comparing status=0
  head -c "${GIB}G" /dev/zero | openssl enc -aes-256-ctr -pass "pass:$SEED" -pbkdf2 -nosalt -out "$file"
  pair
  begin=$(now)
  watched "$daemon" "$cli" --store "$work/a" put --file "$file" large
  put=$(since "$begin") stored=$most
  begin=$(now)
  watched "$daemon" "$cli" --store "$work/a" push b
  push=$(since "$begin") sent=$most served=$beside
  mkfifo "$work/read"
  # Held open, so that the comparison also ends where nothing is written.
  exec {writing}<>"$work/read"
  cmp "$file" "$work/read" {writing}>&- &
  comparing=$!
  begin=$(now)
  watched "$daemon" "$cli" --store "$work/b" get --output "$work/read" large
  get=$(since "$begin") read=$most
  exec {writing}>&-
  wait "$comparing" || status=$?
  local line="one value of $GIB GiB: put $put, push $push, get $get; most memory of its own: $stored, $sent and $served, $read KiB"
  if ((status == 0 && stored < bound && sent < bound && served < bound && read < bound)); then
    pass large "$line"
  else
    broken large "$line; cmp ended with $status"
  fi
  stop_daemon "$daemon"
  rm -rf "$file" "$work/read" "$work/a" "$work/b"
}

begin openssl
items=("$@")
[[ ${#items[@]} -gt 0 ]] || items=(tree again kills strangers flips large)
for item in "${items[@]}"; do
  # The second push needs what the tree left.
  if [[ $item == again && ! -d $work/a ]]; then item_tree; fi
  "item_$item"
done
((failures == 0)) || exit 1
