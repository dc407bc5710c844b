import Foundation
import Testing

@testable import sync_cli

/// Interactive use: script(1) provides the terminal.
@Suite struct TerminalTests {
  @Test(
    "a signal at the passphrase prompt ends the program and restores terminal echo",
    arguments: ["init --encrypt", "list", "serve", "rekey"], ["TERM", "HUP"])
  func signals(command: String, signal: String) throws {
    let scratch = try Scratch()
    // There is no job control under script(1): SIGTSTP does not stop the program, it only repeats the prompt.
    let result = try scratch.shell(
      """
      export SYNC_STORE=store SHELL=/bin/sh
      if [ '\(command)' != 'init --encrypt' ]; then SYNC_PASSPHRASE=old $CLI init --encrypt || exit 9; fi
      if [ '\(command)' = rekey ]; then export SYNC_PASSPHRASE=old; fi
      echo 'echo $$ > pid; exec $CLI \(command)' > run
      touch pid screen state; mkfifo keys
      script -qfc 'sh run; stty -a > state' screen <> keys > /dev/null 2>&1 &
      trap 'kill -9 $(cat pid) $!' EXIT
      until_true() { for try in $(seq 1000); do eval "$1" && return; sleep 0.01; done; false; }
      until_true '[ $(grep -c "passphrase: " screen) = 1 ]' || exit 8
      kill -TSTP $(cat pid)
      until_true '[ $(grep -c "passphrase: " screen) = 2 ]' || exit 7
      kill -\(signal) $(cat pid)
      until_true '[ -s state ]' || exit 6
      grep ' echo ' state || exit 5
      """)
    #expect(result.code == 0, "\(result.out)")
  }

  @Test("a progress line is never wider than the terminal", arguments: [20, 40, 75, 200])
  func widths(columns: Int) throws {
    let scratch = try Scratch()
    try scratch.store().succeed("load", "-", input: Array("{\"key\":\"k\",\"value\":\"v\"}".utf8))
    let result = try scratch.shell(
      """
      mkdir tree; for i in $(seq 9); do head -c 100000 /dev/zero > tree/f$i; done; export SYNC_STORE=store SHELL=/bin/sh
      for command in 'import tree' 'export out' 'verify' 'backup file'; do
        script -qec "stty cols \(columns); $CLI $command" screen < /dev/null > /dev/null; cat screen
      done
      """)
    // script(1) writes a header line.
    let shown = result.out.components(separatedBy: "\r").filter { $0.contains("\u{1B}[K") }
      .compactMap {
        $0.components(separatedBy: "\u{1B}[K").first?.split(separator: "\n").last.map(String.init)
      }
      .filter { !$0.isEmpty }
    #expect(shown.contains { $0.contains("%") }, "\(result.out)")
    for line in shown { #expect(line.count < columns, "\(line.count): \(line)") }
    // A wide terminal shows the full text.
    #expect(
      shown.contains { $0.hasPrefix("import [") && $0.contains(" files, ") } == (columns >= 75), "\(shown)")
  }

  @Test("each progress text gives way to a shorter one, and the last is truncated")
  func fitting() {
    let texts = Progress.lines("import", bytes: 500, of: 1000, seconds: 10, "5 of 10 files")
    #expect(texts.map(\.count) == texts.map(\.count).sorted(by: >))
    for columns in 1...100 {
      #expect(Progress.fitting(texts, columns).count < max(2, columns))
    }
    #expect(
      Progress.fitting(texts, 20) == "import 50%, 10s left" || Progress.fitting(texts, 20) == "import 50%")
    #expect(Progress.fitting(texts, 4) == "50%" && Progress.fitting(texts, 3) == "50")
  }
}
