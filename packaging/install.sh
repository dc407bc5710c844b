#!/usr/bin/env bash
# install.sh PROGRAM ROOT PREFIX [debian]: installs the built program with its manual pages, completions and
# units into ROOT, for a system that has them below PREFIX. `debian` takes that system's directories.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
program=$(realpath "$1") root=$2 prefix=${3%/} flavour=${4:-}

target=$root$prefix
share=$target/share
units=$target/lib/systemd/system zsh=$share/zsh/site-functions config=$share/doc/sync-store/examples
if [[ $flavour == debian ]]; then
  units=$root/lib/systemd/system zsh=$share/zsh/vendor-completions config=$root/etc/sync-store
fi

# into MODE FILE COMMAND…: writes the output of a command.
into() {
  local mode=$1 file=$2
  mkdir -p "$(dirname "$file")"
  "${@:3}" >"$file"
  chmod "$mode" "$file"
}

install -D -m 755 "$program" "$target/bin/sync-cli"
pages=$(mktemp -d)
trap 'rm -rf "$pages"' EXIT
"$program" --quiet manual "$pages" --configuration "$here/../schemas/config.md"
for section in 1 5 8; do install -D -m 644 -t "$share/man/man$section" "$pages"/*."$section"; done
into 644 "$share/bash-completion/completions/sync-cli" "$program" completions bash
into 644 "$zsh/_sync-cli" "$program" completions zsh
into 644 "$share/fish/vendor_completions.d/sync-cli.fish" "$program" completions fish
for unit in sync-store.service sync-store@.service; do
  into 644 "$units/$unit" sed "s|=/usr/bin/sync-cli|=$prefix/bin/sync-cli|" "$here/systemd/$unit"
done
install -D -m 644 "$here/systemd/sysusers.conf" "$target/lib/sysusers.d/sync-store.conf"
install -D -m 644 "$here/systemd/tmpfiles.conf" "$target/lib/tmpfiles.d/sync-store.conf"
install -D -m 644 "$here/main.json" "$config/main.json"
examples=$share/doc/sync-store/examples
install -D -m 644 -t "$examples" "$here/prometheus/syncstore.rules.yml"
into 644 "$examples/grafana-dashboard.json" cat "$here/grafana/syncstore.json"
