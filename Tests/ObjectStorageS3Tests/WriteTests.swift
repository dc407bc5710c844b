import Replication
import SyncStore
import SyncTestSupport
import Testing

@testable import ObjectStorageS3

private typealias Answer = ScriptedServer.Answer

/// Conditional writes, writes in parts, and credentials.
@Suite("Writes to a server", .timeLimit(.minutes(Patience.minutes(2)))) struct WriteTests {
  private static let version = ObjectVersion(tag: "v1")

  @Test("a condition that does not hold is no error")
  func refused() async throws {
    for answer in [Answer.error(412, "PreconditionFailed"), .error(409, "ConditionalRequestConflict")] {
      let server = ScriptedServer { _ in answer }
      let store = try S3Store.scripted(server)
      #expect(try await store.put("a", [1], if: .absent) == .refused)
      #expect(try await store.put("a", [1], if: .version(Self.version)) == .refused)
      #expect(server.requests.map { $0["if-none-match"] } == ["*", nil])
      #expect(server.requests.map { $0["if-match"] } == [nil, "\"v1\""])
      #expect(await failure { try await store.put("a", [1], if: .always) } != nil)
    }
    let server = ScriptedServer { _ in .error(404, "NoSuchKey") }
    #expect(try await S3Store.scripted(server).put("a", [1], if: .version(Self.version)) == .refused)
  }

  @Test("a server that does not implement conditions is written to without them from then on")
  func unimplemented() async throws {
    let server = ScriptedServer { request in
      request["if-none-match"] == nil && request["if-match"] == nil
        ? Answer(200, [("ETag", "\"v1\"")]) : .error(501, "NotImplemented")
    }
    let store = try S3Store.scripted(server)
    #expect(try await store.put("a", [1], if: .absent) == .stored(Self.version))
    #expect(try await store.put("a", [1], if: .absent) == .stored(Self.version))
    #expect(store.figures.requests == [.init(.put, status: 501): 1, .init(.put, status: 200): 2])
  }

  @Test("a name that is none is refused before any request")
  func names() async throws {
    let server = ScriptedServer { _ in Answer(200) }
    let store = try S3Store.scripted(server)
    for name in ["", "/a", "a/../b", "A", "a b", "ü"] {
      #expect(await failure { try await store.get(name) }?.code == .invalid)
      #expect(await failure { try await store.put(name, [], if: .always) }?.code == .invalid)
      #expect(await failure { try await store.delete(["a", name]) }?.code == .invalid)
    }
    #expect(await failure { try await store.list("../") }?.code == .invalid)
    #expect(server.requests.isEmpty)
  }

  @Test("all names are deleted, absent ones too, and a failure ends it")
  func deletion() async throws {
    let server = ScriptedServer { request in
      request.target.hasSuffix("/n3") ? .error(404, "NoSuchKey") : Answer(204)
    }
    let store = try S3Store.scripted(server)
    try await store.delete((0..<40).map { "n\($0)" })
    #expect(Set(server.requests.map(\.target)).count == 40)
    #expect(store.figures[.delete] == 40)
    try await store.delete([])
    let refusing = ScriptedServer { _ in .error(403, "AccessDenied") }
    let other = try S3Store.scripted(refusing)
    #expect(await failure { try await other.delete((0..<1000).map { "n\($0)" }) }?.code == .denied)
    #expect(refusing.requests.count < 100)
  }

  // MARK: Parts

  /// A bucket that takes uploads in parts; `fault` may answer in its place.
  private final class PartServer: Sendable {
    let parts = Locked<[Int: [UInt8]]>([:])
    let server: ScriptedServer

    init(_ fault: @escaping @Sendable (ScriptedServer.Request) -> ScriptedServer.Answer? = { _ in nil }) {
      let parts = parts
      server = ScriptedServer { request in
        if let answer = fault(request) { return answer }
        switch request.method {
        case "POST" where request.target.hasSuffix("?uploads="):
          return Self.xml(
            "<InitiateMultipartUploadResult xmlns=\"x\"><UploadId>u&amp;1</UploadId>"
              + "</InitiateMultipartUploadResult>"
          )
        case "POST":
          return Self.xml(
            "<CompleteMultipartUploadResult><ETag>&quot;all-3&quot;</ETag></CompleteMultipartUploadResult>")
        case "PUT":
          let number = request.target.split(separator: "=").dropFirst().first?.prefix { $0.isNumber } ?? "0"
          parts.withLock { $0[Int(number) ?? 0] = request.body }
          return Answer(200, [("ETag", "\"part\(number)\"")])
        default: return Answer(204)
        }
      }
    }

    static func xml(_ text: String) -> ScriptedServer.Answer {
      Answer(200, [("Content-Type", "application/xml")], body: Array(text.utf8))
    }

    func store(_ size: Int = 1000) throws -> S3Store {
      var machine = TestMachine().machine()
      (machine.singlePutBytes, machine.partBytes) = (size, size)
      return try S3Store(.test(server.address), machine: machine)
    }
  }

  @Test("a large object is written in parts, in any order, and completed in theirs")
  func parts() async throws {
    let bucket = PartServer()
    let store = try bucket.store()
    let object = pattern(2500)
    #expect(try await store.put("a", object, if: .absent) == .stored(ObjectVersion(tag: "all-3")))
    let parts = bucket.parts.withLock { $0 }
    #expect(parts == [1: Array(object[..<1000]), 2: Array(object[1000..<2000]), 3: Array(object[2000...])])
    let last = try #require(bucket.server.requests.last)
    #expect(last.target == "/bucket/a?uploadId=u%261")
    #expect(last["if-none-match"] == "*")
    let numbers = (1...3).map { "<PartNumber>\($0)</PartNumber><ETag>&quot;part\($0)&quot;</ETag>" }
    let text = String(decoding: last.body, as: UTF8.self)
    #expect(text.contains(numbers.joined(separator: "</Part><Part>")))
    #expect(store.figures[.put] == 5)
    #expect(store.figures.sentBytes == 2500)
    // One of exactly the bound is written at once.
    #expect(try await store.put("b", Array(object[..<1000]), if: .always) != .refused)
    #expect(store.figures[.put] == 6)
  }

  @Test("an upload that fails, or whose condition does not hold, is aborted")
  func aborted() async throws {
    let faults: [(@Sendable (ScriptedServer.Request) -> ScriptedServer.Answer?, ObjectStoreError.Code?)] = [
      ({ $0.method == "PUT" ? .error(403, "AccessDenied") : nil }, .denied),
      ({ $0.method == "PUT" ? Answer(200) : nil }, .invalid),
      ({ $0.body.isEmpty || $0.method != "POST" ? nil : .error(412, "PreconditionFailed") }, nil),
      ({ $0.body.isEmpty || $0.method != "POST" ? nil : .error(404, "NoSuchUpload") }, .failed),
      // An error with the status of success.
      ({ $0.body.isEmpty || $0.method != "POST" ? nil : .error(200, "InternalError") }, .failed),
      ({ $0.body.isEmpty || $0.method != "POST" ? nil : .error(200, "InvalidPart") }, .invalid),
    ]
    for (fault, code) in faults {
      let bucket = PartServer(fault)
      let store = try bucket.store()
      let object = pattern(2500)
      let outcome = Locked<PutOutcome?>(nil)
      let error = await failure { () async throws in
        let result = try await store.put("a", object, if: .absent)
        outcome.withLock { $0 = result }
      }
      #expect(error?.code == code, "\(String(describing: error))")
      if code == nil { #expect(outcome.withLock { $0 } == .refused) }
      // A cancelled part may still be on its way when the upload is aborted.
      let aborts = bucket.server.requests.filter { $0.method == "DELETE" }
      #expect(aborts.map(\.target) == ["/bucket/a?uploadId=u%261"])
    }
    let nameless = PartServer { $0.method == "POST" ? Answer(200, body: Array("<a/>".utf8)) : nil }
    #expect(
      await failure { try await nameless.store().put("a", pattern(2500), if: .always) }?.code == .invalid)
  }

  @Test("a cancelled upload is aborted")
  func cancelled() async throws {
    let bucket = PartServer { request in
      guard request.method == "PUT" else { return nil }
      var answer = Answer(200, [("ETag", "\"p\"")])
      answer.delay = 1000
      return answer
    }
    let store = try bucket.store()
    let task = Task { await failure { try await store.put("a", pattern(9000), if: .always) } }
    while !bucket.server.requests.contains(where: { $0.method == "PUT" }) {
      try await Task.sleep(for: .milliseconds(5))
    }
    task.cancel()
    #expect(await task.value?.code == .cancelled)
    #expect(bucket.server.requests.count { $0.method == "DELETE" } == 1)
  }

  @Test("parts that fail for a passing reason are sent again")
  func passing() async throws {
    let failed = Locked(0)
    let bucket = PartServer { request in
      guard request.method == "PUT",
        failed.withLock({
          $0 += 1; return $0 <= 3
        })
      else { return nil }
      return .error(503, "SlowDown")
    }
    let store = try bucket.store()
    let object = pattern(5000)
    #expect(try await store.put("a", object, if: .always) != .refused)
    let parts = bucket.parts.withLock { $0 }
    #expect(parts.keys.sorted().flatMap { parts[$0] ?? [] } == object)
  }

  // MARK: Credentials

  @Test("credentials that are refused are read again, and replaced while the store is in use")
  func replaced() async throws {
    let directory = TemporaryDirectory()
    let path = directory.path + "/credentials"
    let storage = DiskStorage()
    let write = { (key: String) in
      try storage.replace(path, with: Array("aws_access_key_id = \(key)\naws_secret_access_key = s\n".utf8))
    }
    try write("old")
    let server = ScriptedServer { request in
      request["authorization"]?.contains("Credential=new/") == true
        ? Answer(200) : .error(403, "InvalidAccessKeyId")
    }
    var options = S3Options.test(server.address)
    options.credentials = .file(path)
    let store = try S3Store(options, machine: TestMachine().machine())
    #expect(await failure { try await store.get("a") }?.code == .credentials)
    #expect(server.requests.count == 1, "the same ones are not sent twice")
    try write("new")
    #expect(try await bytes(store.get("a")) == [])
    #expect(server.requests.count == 3)
    #expect(try await bytes(store.get("a")) == [])
    #expect(server.requests.count == 4)
    _ = try storage.remove(path)
    let other = try S3Store(options)
    #expect(await failure { try await other.get("a") }?.code == .credentials)
    #expect(server.requests.count == 4)
  }
}
