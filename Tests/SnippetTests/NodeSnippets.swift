import Replication
import SyncStore
import Testing

/// The code of `Replication.md`. `GuideTests` checks that both are equal.
@Suite struct NodeSnippets {
  private let scratch = Scratch()
  private var here: String { scratch.path + "/" }

  @Test("the examples of the page behave as described")
  func run() async throws {
    // snippet
    let hubStore = try Store.create(at: here + "hub")
    try Node.prepare(hubStore, name: "hub")
    let hub = try Node(store: hubStore)
    _ = try await hub.start(listen: Endpoint(host: "127.0.0.1", port: 0))

    let joined = try await Node.join(Node.invite(to: hubStore), at: here + "edge", name: "edge")
    let edge = try Node(store: joined.store)
    try joined.store.put("reading/1", 21.5)
    let report = try await edge.synchronize(with: joined.inviterName)
    print(report.sentRecords)
    // end
    #expect(report.sentRecords > 0)
    #expect(try hubStore.get("reading/1", default: 0.0) == 21.5)
    await edge.stop()
    await hub.stop()
    try joined.store.close()
    try hubStore.close()
  }
}
