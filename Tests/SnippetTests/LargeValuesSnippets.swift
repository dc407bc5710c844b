import Replication
import SyncStore
import Testing

/// The code of `LargeValues.md`. `GuideTests` checks that both are equal.
@Suite struct LargeValuesSnippets {
  private let scratch = Scratch()
  private var here: String { scratch.path + "/" }

  @Test("the examples of the page behave as described")
  func run() throws {
    let store = try Store.create(at: here + "store")
    try scratch.write("report.pdf", [UInt8](repeating: 7, count: 100_000))
    // snippet
    try store.put("report/may", fileAt: here + "report.pdf")  // streamed, not read into memory
    let found = try store.export("report/may", toFileAt: here + "copy.pdf")  // false: no value
    // end
    #expect(found)
    #expect(try scratch.read("copy.pdf").count == 100_000)
    // snippet
    if let entry = try store.entry("report/may") {
      print(entry.size, entry.blob?.hash.description ?? "in the journal")
    }
    // end
    // snippet
    try store.transaction { transaction in
      try transaction.put("report/june", fileAt: here + "report.pdf")
      try transaction.put("report/june/title", "June")
    }
    // end
    #expect(try store.entry("report/june")?.blob?.hash == store.entry("report/may")?.blob?.hash)
    #expect(try store.entry("report/june")?.blob != nil)
    try store.close()
  }

  private func frame(_ number: Int) -> [UInt8] { [UInt8](repeating: UInt8(number), count: 100_000) }

  private func send(_ piece: [UInt8]) async throws { #expect(!piece.isEmpty) }

  @Test("the examples of pieces and ranges behave as described")
  func pieces() async throws {
    let store = try Store.create(at: here + "store")
    // snippet
    try store.put("film") { writer in
      for number in 0..<100 { try writer.append(frame(number)) }
    }
    if let film = try store.reader(of: "film") {
      let part = try film.read(4096, at: film.size / 2)  // stays readable, whatever is put concurrently
      print(part.count)
    }
    // end
    #expect(try store.reader(of: "film")?.read(1, at: 5_000_000) == [50])
    let upload = AsyncStream<[UInt8]> { continuation in
      for number in 0..<50 { continuation.yield(frame(number)) }
      continuation.finish()
    }
    // snippet
    let asynchronous = AsyncStore(store)
    try await asynchronous.put("upload", from: upload)
    if let reader = try await asynchronous.run({ try $0.reader(of: "upload") }) {
      for try await piece in reader { try await send(piece) }
    }
    // end
    #expect(try store.entry("upload")?.size == 5_000_000)
    try store.close()
  }

  @Test("the examples of evicted values behave as described")
  func elsewhere() async throws {
    let hubStore = try Store.create(at: here + "hub")
    try Node.prepare(hubStore, name: "hub")
    let hub = try Node(store: hubStore)
    _ = try await hub.start(listen: Endpoint(host: "127.0.0.1", port: 0))
    for key in ["film", "another"] as [Key] {
      try hubStore.put(key, [UInt8](repeating: UInt8(key.bytes.count), count: 2 << 20))
    }
    // snippet
    let joined = try await Node.join(Node.invite(to: hubStore), at: here + "laptop", name: "laptop")
    let store = joined.store
    try store.setBlobPolicy(.eager(upTo: 1 << 20))  // larger ones when they are read
    var limits = BlobLimits()
    limits.bytes = 20 << 30
    try store.setBlobLimits(limits)

    let node = try Node(store: store)
    node.keepInStep()
    _ = try await node.synchronize(with: joined.inviterName)
    let film = try store.get("film")  // waits until it is here
    try await node.fetch("another") { print($0.bytes, "of", $0.total) }
    let report = try await node.trimBlobs()
    print(report.evicted, report.tooFewHolders)
    // end
    #expect(film?.bytes.count == 2 << 20 && report.holds)
    #expect(try store.absentValues() == AbsentValues())
    await node.stop()
    await hub.stop()
    try store.close()
    try hubStore.close()
  }
}
