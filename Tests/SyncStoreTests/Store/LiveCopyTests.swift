import Foundation
import SyncTestSupport
import Testing

@testable import SyncStore

/// A store's directory copied file by file, by an unaware program, while it is written.
@Suite("A file copy of a store in use")
struct LiveCopyTests {
  let directory = TemporaryDirectory()
  var path: String { directory.path + "/store" }

  static func value(_ number: Int) -> [UInt8] {
    [UInt8](repeating: UInt8(truncatingIfNeeded: number), count: 500 + number % 700)
  }

  /// Copies it repeatedly while `write` runs; a copy holds everything acknowledged before the copy started,
  /// except the last write, and nothing that was never written.
  @Test(
    "F104 recovers to an earlier state of the original, or is refused with a reason",
    arguments: [false, true])
  func copied(compacts: Bool) throws {
    let store = try Store.create(
      at: path, configuration: Configuration(blobThreshold: 1000, segmentBytes: 256 << 10))
    let acknowledged = Locked(0)
    let stops = Locked(false)
    let failure = Locked<String?>(nil)
    let writer = Threaded {
      var number = 0
      do {
        while !stops.withLock({ $0 }) {
          // Within one transaction with its twin: there are never halves.
          try store.transaction { transaction in
            try transaction.put(Key("a\(number)"), Self.value(number))
            try transaction.put(Key("b\(number)"), Self.value(number))
            if compacts, number >= 100 { try transaction.delete(Key("b\(number - 100)")) }
          }
          number += 1
          acknowledged.withLock { $0 = number }
          if compacts, number % 200 == 0 { try store.compact() }
        }
      } catch { failure.withLock { $0 = "\(error)" } }
    }
    writer.start()
    var opened = 0
    for attempt in 0..<8 {
      while acknowledged.withLock({ $0 }) < 150 * (attempt + 1), failure.withLock({ $0 }) == nil {
        usleep(1000)
      }
      let before = acknowledged.withLock { $0 }
      let copy = directory.path + "/copy\(attempt)"
      // Files removed during the copy cause complaints of `cp`, not of the store.
      LoopImage.run(["cp", "-r", "--preserve=mode", path, copy])
      let after = acknowledged.withLock { $0 }
      do throws(StoreError) {
        let other = try Store.open(at: copy)
        opened += 1
        try expectMoment(other, from: before - 1, to: after + 1, compacts: compacts)
        let isOther = try other.actor != store.actor
        #expect(isOther, "a copy is another actor")
        try other.put("mine", [1])
        try other.close()
      } catch {
        #expect([.damaged, .foreignFile, .notAStore].contains(error.code), "\(error)")
        #expect(error.path?.hasPrefix(copy) == true)
      }
    }
    stops.withLock { $0 = true }
    writer.join()
    #expect(failure.withLock { $0 } == nil)
    if !compacts { #expect(opened == 8) }
    try store.close()
    #expect(try Store.open(at: path).verify().isClean)
  }

  func expectMoment(_ copy: Store, from least: Int, to most: Int, compacts: Bool) throws(StoreError) {
    let report = try copy.verify()
    #expect(report.damage.filter { !$0.hasPrefix("blob") } == [])
    var number = 0
    while let entry = try copy.entry(try Key("a\(number)")) {
      // A blob may be added after its directory was copied; then it is known to be missing.
      if entry.blob == nil { #expect(try copy.get(entry.key)?.bytes == Self.value(number)) }
      if !compacts { #expect(try copy.contains(try Key("b\(number)"))) }
      number += 1
    }
    #expect(number >= least && number <= most, "\(number) of \(least)...\(most)")
    #expect(try !copy.contains(try Key("b\(number)")))
    #expect(try copy.list(prefix: Array("a".utf8)).count == number)
  }
}
