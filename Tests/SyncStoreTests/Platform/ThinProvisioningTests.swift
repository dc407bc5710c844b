import SyncTestSupport
import Testing

@testable import SyncStore

/// An overcommitted disk: its blocks come from a memory file system that is smaller than the file system on
/// it.
@Suite("A thin-provisioned disk", .enabled(if: LoopImage.isAvailable, "needs the right to mount"))
struct ThinProvisioningTests {
  @Test(
    "without space for allocated blocks loses nothing acknowledged as durable (F27)",
    arguments: [4000, 30_000])
  func full(bytes: Int) throws {
    let image = try LoopImage(megabytes: 64, thin: 10)
    let path = image.path + "/store"
    var durable = 0
    func write() throws {
      let store = try Store.create(
        at: path, configuration: Configuration(durability: .relaxed, segmentBytes: 1 << 20))
      defer { try? store.close() }
      for number in 0..<60_000 {
        let isDurable = number % 16 == 15
        try store.put(
          Key("\(number)"), pattern(bytes, seed: UInt64(number)), durability: isDurable ? .full : .relaxed)
        if isDurable { durable = number + 1 }
      }
    }
    let error = #expect(throws: StoreError.self) { try write() }
    #expect(
      [.poisoned, .diskFull, .inputOutput, .readOnly].contains(error?.code), "\(String(describing: error))")
    #expect(durable > 0)
    try image.thicken(megabytes: 100)
    try image.mountAgain()
    let store = try Store.open(at: path)
    var lost: [Int] = []
    for number in 0..<durable
    where try store.get(Key("\(number)"))?.bytes != pattern(bytes, seed: UInt64(number)) {
      lost.append(number)
    }
    #expect(lost.isEmpty, "\(lost) of \(durable)")
    #expect(try store.verify().isClean)
    try store.put("more", "x", durability: .full)
    try store.close()
  }
}
