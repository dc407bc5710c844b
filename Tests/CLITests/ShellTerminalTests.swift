import Foundation
import SyncTestSupport
import Testing

/// `shell` at a terminal: script(1) provides it.
@Suite(.timeLimit(.minutes(Patience.minutes(2)))) struct ShellTerminalTests {
  /// Functions for scripts: `begin` starts a shell on a new screen, `keys` types, `shows` waits for a line.
  private static let functions = #"""
    export SYNC_STORE=$PWD/store SHELL=/bin/sh HOME=$PWD TERM=xterm NO_COLOR=1 SYNC_COMPLETE_TIMEOUT=60000
    unset XDG_STATE_HOME SYNC_HISTORY_FILE
    mkfifo typed
    until_true() { for try in $(seq 1500); do eval "$1" && return; sleep 0.01; done; cat screen; exit 9; }
    begin() {
      : > screen; rm -f ended
      (script -qefc "exec $CLI $1" screen <> typed > /dev/null 2>&1; echo $? > ended) & child=$!
      trap 'pkill -9 -P $child; kill -9 $child' EXIT
      shows "$2"
    }
    keys() { printf "$1" > typed; }
    shows() { until_true "tr -d '\r' < screen | grep -qe '$1'"; }
    ends() { until_true '[ -s ended ]'; [ "$(cat ended)" = "$1" ] || { cat ended screen; exit 8; }; }

    """#

  private func run(_ scratch: Scratch, _ script: String) throws {
    let result = try scratch.shell(Self.functions + script)
    #expect(result.code == 0, "\(result.code): \(result.out)")
  }

  @Test("lines are edited, completed and brought back, in this shell and the next one")
  func editing() throws {
    let scratch = try Scratch()
    try scratch.store().succeed("put", "user:1", "the value")
    try run(
      scratch,
      #"""
      begin shell '^store in .*store; "help" lists'
      shows 'store> '
      keys 'get us\t1\n'; shows '^the value'
      keys 'dig\t\n'; shows '^[0-9a-f]\{32\}'
      keys 'get absent\n'; shows 'store \[1\]> '
      keys 'put "a\nb" 2\n'; shows '  "> '
      keys 'list\n'; shows '^a.x0ab'
      keys ' put hidden 1\n'; keys 'join syncstore1:x\n'; shows 'invitation'
      keys 'get user:1 dropped\003'; shows '\^C'
      keys 'count\n'; shows '^3'
      keys '\004'; ends 0
      ls -l .local/state/sync-store | grep -q -- '-rw------- .*history' || exit 7
      ls -l .local/state | grep -q -- 'drwx------ .*sync-store' || exit 6
      printf '%s\n' 'get user:1' digest 'get absent' 'put "a\nb" 2' list count > expected
      sed 's/ $//' .local/state/sync-store/history | diff - expected || exit 5
      begin shell 'store> '
      keys '\033[A\033[A\n'; shows '^user:1'
      keys 'exit\n'; ends 0
      """#)
  }

  @Test("Ctrl-C stops the command, and the shell goes on")
  func interrupting() throws {
    let scratch = try Scratch()
    try scratch.store().succeed("put", "k", "v")
    try run(
      scratch,
      #"""
      seq 300 | sed 's/.*/{"key":"key &","value":"v"}/' | $CLI load - > /dev/null
      begin '--quiet shell' 'store> '
      keys 'watch --initial\n'; shows '^ready'; keys '\003'; until_true '[ $(grep -c "store> " screen) = 2 ]'
      keys 'log --follow --from 300\n'; shows '^301 '
      keys '\003'; until_true '[ $(grep -c "store> " screen) = 3 ]'
      keys 'status --watch\n'; shows '^daemon'
      keys '\003'; until_true '[ $(grep -c "store> " screen) = 4 ]'
      keys 'destroy\n'; shows 'y/N'; keys '\003'; shows '^sync-cli: destroy: interrupted by Ctrl-C'
      shows 'store \[^C\]> '
      keys 'get k\n'; shows '^v'
      keys '\004'; ends 0
      """#)
  }

  @Test("an editor gets the keys of the terminal, and the shell goes on")
  func editor() throws {
    let scratch = try Scratch()
    try scratch.store().succeed("put", "k", "v")
    try scratch.write(
      "editor", Array("trap '' INT\necho editing; read line; printf \"$line\" > \"$1\"\n".utf8))
    try run(
      scratch,
      #"""
      export EDITOR="sh $PWD/editor"
      begin shell 'store> '
      keys 'edit k\n'; shows '^editing'; keys '\003'; sleep 0.1; keys 'changed\n'
      keys 'get k\n'; shows '^changed'
      keys '\004'; ends 0
      """#)
  }

  @Test("Ctrl-D that is typed while a command runs ends the shell after the command")
  func typedAhead() throws {
    let scratch = try Scratch()
    try scratch.store().succeed("put", "k", "v")
    try scratch.write(
      "editor", Array("echo editing; until [ -e go ]; do sleep 0.01; done; echo new > \"$1\"\n".utf8))
    try run(
      scratch,
      #"""
      export EDITOR="sh $PWD/editor"
      begin shell 'store> '
      keys 'edit k\n'; shows '^editing'; keys 'get k\n\004'; sleep 0.1; touch go; ends 0
      grep -q '^new' screen || exit 7
      """#)
  }

  @Test("a passphrase is asked for once, and lines about an encrypted store are not kept")
  func passphrase() throws {
    let scratch = try Scratch()
    try run(
      scratch,
      #"""
      SYNC_PASSPHRASE=secret $CLI init --name store --encrypt > /dev/null
      begin shell 'store> '
      keys 'count\n'; shows 'passphrase: '; keys '\003'; shows '^sync-cli: count: interrupted'
      keys 'count\n'; until_true '[ $(grep -c "passphrase: " screen) = 2 ]'; keys 'wrong\n'
      shows 'the passphrase is wrong'
      keys 'count\n'; until_true '[ $(grep -c "passphrase: " screen) = 3 ]'; keys 'secret\n'; shows '^0'
      keys 'put user:1 private\n'; keys 'get us\t1\n'; shows '^private'
      keys '\004'; ends 0
      [ $(grep -c 'passphrase: ' screen) = 3 ] || exit 7
      [ ! -e .local/state/sync-store/history ] || exit 6
      """#)
  }

  @Test("a terminal that can do nothing but print has prompts, and lines without editing")
  func dumb() throws {
    let scratch = try Scratch()
    try scratch.store().succeed("put", "k", "v")
    try run(
      scratch,
      #"""
      export TERM=dumb
      begin shell 'store> '
      keys 'get k\n'; shows '^v'
      keys 'watch --initial\n'; shows '^ready'; keys '\003'; shows 'watch: ended'
      keys 'get absent\n'; shows 'store \[1\]> '
      keys '\004'; ends 0
      begin '--quiet shell' 'store> '
      kill -TERM $(pgrep -P $(pgrep -P $child -x script) -x sync-cli) ; ends 143
      """#)
  }

  @Test("the history has at most 1,000 lines, in the file that is named, and an empty name keeps none")
  func history() throws {
    let scratch = try Scratch()
    _ = try scratch.store()
    try run(
      scratch,
      #"""
      seq 1200 | sed 's/^/get /' > lines
      export SYNC_HISTORY_FILE=$PWD/lines
      begin shell 'store> '; keys 'count\ncount\n\004'; ends 0
      [ $(wc -l < lines) = 1000 ] && [ "$(tail -n 2 lines | tr '\n' ,)" = 'get 1200,count,' ] || exit 7
      export SYNC_HISTORY_FILE=$PWD/missing/lines
      begin '--verbose shell' 'store> '; keys 'count\n'; shows 'the line is not kept: '; keys '\004'; ends 0
      export SYNC_HISTORY_FILE=
      begin '--verbose shell' 'store> '; keys 'count\n'; shows '^0'; keys '\004'; ends 0
      grep -q 'not kept' screen && exit 6
      [ ! -e .local ] || exit 5
      """#)
  }
}
