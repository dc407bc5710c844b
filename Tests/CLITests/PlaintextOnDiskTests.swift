import Foundation
import SyncTestSupport
import Testing

/// Searches the raw bytes of a file system on which encrypted stores were used: everything that a command
/// ever wrote to it, including temporary files, the log of SQLite and removed files.
@Suite(
  "The disk under encrypted stores", .enabled(if: LoopImage.isAvailable, "needs the rights to mount"),
  .timeLimit(.minutes(Patience.minutes(3))))
struct PlaintextOnDiskTests {
  /// Runs a script with `$DISK`, the mounted directory, and the passphrases; `big` is a value of some
  /// megabytes. All its writes are on the image on return.
  private func use(_ disk: LoopImage, _ script: String) throws {
    let scratch = try Scratch()
    let result = try scratch.shell(
      """
      set -u
      export DISK='\(disk.path)' SYNC_STORE='\(disk.path)/store' SYNC_PASSPHRASE=first SYNC_NEW_PASSPHRASE=second
      yes confidential-value | head -c 2000000 > big
      check() { "$@" > out 2> err || { echo "failed: $*"; cat out err; exit 9; }; }
      \(script)
      """)
    #expect(result.code == 0, "\(result.out)")
    try disk.mountAgain()
  }

  /// A synchronous mount: every write reaches the image, also of a file that is removed at once.
  private func disk() throws -> LoopImage { try LoopImage(megabytes: 128, options: "loop,sync") }

  private func expectNothing(on disk: LoopImage) {
    for word in ["topsecretkey", "confidential-value"] {
      #expect(!disk.holds(word), "\(word) is on the disk")
    }
  }

  @Test("a disk scan finds the content of deleted files: the premise of the other tests")
  func control() throws {
    let disk = try disk()
    try use(disk, "cp big $DISK/big && rm $DISK/big")
    #expect(disk.holds("confidential-value") && !disk.holds("topsecretkey"))
  }

  @Test("no key or value is on the disk, however it was written, also after a kill")
  func waysIn() throws {
    let disk = try disk()
    try use(
      disk,
      """
      check $CLI init --encrypt
      check $CLI put topsecretkey-short confidential-value
      check $CLI put topsecretkey-file --file big
      (cat big; sleep 1.5) | timeout -s KILL 1 $CLI put topsecretkey-killed -
      (cat big; sleep 0.5) | timeout -s KILL 0.4 $CLI put topsecretkey-killed -
      check $CLI put topsecretkey-stream - < big
      head -c 300000 big > packed; check $CLI put topsecretkey-packed - < packed
      mkdir -p tree/topsecretkey; cp big tree/topsecretkey/big; cp packed tree/topsecretkey/packed
      for n in 1 2 3; do echo confidential-value $n > tree/topsecretkey/$n; done
      timeout -s KILL 0.5 $CLI import tree
      check $CLI import tree
      echo '{"key":"topsecretkey-line","value":"confidential-value"}' > lines; check $CLI load lines
      check $CLI delete topsecretkey-short
      check $CLI dump; check $CLI export exported; diff -r tree/topsecretkey exported/topsecretkey || exit 8
      for words in "list --long" "get topsecretkey-line" "why topsecretkey-line" log status verify compact trim; do
        check $CLI $words
      done
      [ ! -e $DISK/store/staging ] || exit 7
      """)
    expectNothing(on: disk)
  }

  @Test(
    "no key or value is on the disk after rekeying, restoring a backup and syncing a second copy, with kills"
  )
  func otherCopies() throws {
    let disk = try disk()
    try use(
      disk,
      """
      check $CLI init --name here --encrypt
      check $CLI put topsecretkey-file --file big
      head -c 300000 big > packed; check $CLI put topsecretkey-packed --file packed
      check $CLI put topsecretkey-short confidential-value
      check $CLI backup $DISK/backup
      check env SYNC_STORE=$DISK/restored $CLI restore $DISK/backup
      timeout -s KILL 0.5 $CLI rekey --master-key
      check $CLI rekey --master-key
      check $CLI rekey
      export SYNC_PASSPHRASE=second
      $CLI serve --listen 127.0.0.1:0 > address & daemon=$!
      for n in $(seq 100); do grep -q listening address && break; sleep 0.1; done
      export SYNC_STORE=$DISK/there
      check $CLI join $(SYNC_STORE=$DISK/store $CLI invite) --name there --no-pull
      check $CLI rekey --encrypt
      timeout -s KILL 0.5 $CLI pull here
      check $CLI pull here
      check $CLI get topsecretkey-file; cmp -s out big || exit 8
      check $CLI put topsecretkey-back --file big
      check $CLI sync here
      kill -9 $daemon
      check $CLI verify
      """)
    expectNothing(on: disk)
  }
}
