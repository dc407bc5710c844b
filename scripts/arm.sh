#!/usr/bin/env bash
# Compiles the C shims for aarch64 with warnings as errors, and runs their check under an emulator. Before that
# the same for this machine, once with vector loads and once with the word loads of a line that ARM uses.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/deps.sh gcc libc6-dev gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user

out=.build/shims
mkdir -p "$out"
sources=(Tests/Shims/shims.c Sources/CLinux/*.c)
flags=(-std=gnu11 -O2 -Wall -Wextra -Werror -ISources/CLinux/include -pthread)

gcc "${flags[@]}" -o "$out/vectors" "${sources[@]}"
"$out/vectors" "$out/file"
gcc "${flags[@]}" -DSYNC_LINE_BY_WORDS -o "$out/words" "${sources[@]}"
"$out/words" "$out/file"
aarch64-linux-gnu-gcc "${flags[@]}" -static -o "$out/aarch64" "${sources[@]}"
qemu-aarch64 "$out/aarch64" "$out/file"
