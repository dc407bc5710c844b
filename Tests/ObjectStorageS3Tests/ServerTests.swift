import Foundation
import Replication
import SyncStore
import SyncTestSupport
import Testing

@testable import ObjectStorageS3

/// The behaviour of `ObjectStore` against servers of other projects.
@Suite(
  "A store on a real server", .serialized,
  .enabled(if: S3Server.areInstalled, "no S3 servers are installed: run scripts/s3-servers.sh"),
  .timeLimit(.minutes(Patience.minutes(3))))
struct ServerTests {
  private static func entry(_ name: String, in store: S3Store) async throws -> ObjectEntry? {
    try await store.list(name).first { $0.name == name }
  }

  @Test("objects are written, read, listed and deleted", arguments: S3Server.Kind.allCases)
  func objects(kind: S3Server.Kind) async throws {
    let server = try await S3Server(kind)
    defer { withExtendedLifetime(server) {} }
    for prefix in ["", "fleet/a b/ü+1"] {
      let store = try S3Store(server.options(prefix: prefix))
      #expect(try await store.get("h/one") == .absent)
      #expect(try await store.list("") == [])
      let object = pattern(100_000)
      guard case .stored(let version?) = try await store.put("h/one", object, if: .always) else {
        Issue.record("no version is stated")
        return
      }
      guard case .found(let content) = try await store.get("h/one") else {
        Issue.record("it is not there")
        return
      }
      #expect(same(content.bytes, object))
      #expect(content.version == version)
      let now = SystemCall.wallMilliseconds()
      for time in [content.modified, store.clock] {
        #expect(abs(Int64(try #require(time)) - Int64(now)) < 120_000)
      }
      let entry = try #require(try await Self.entry("h/one", in: store))
      #expect(entry.size == 100_000)
      #expect(entry.version == version)
      #expect(abs(Int64(try #require(entry.modified)) - Int64(now)) < 120_000)
      #expect(try await store.get("h/one", range: nil, unless: version, limit: 1 << 20) == .unchanged)

      #expect(try await store.put("h/one", [7], if: .always) != .stored(version))
      #expect(try await bytes(store.get("h/one", range: nil, unless: version, limit: 1)) == [7])
      #expect(try await store.put("h/none", [], if: .always) != .refused)
      #expect(try await bytes(store.get("h/none")) == [])
      #expect(try await store.put("g/two", [1, 2], if: .always) != .refused)
      #expect(try await store.list("h/").map(\.name) == ["h/none", "h/one"])
      #expect(try await store.list("").map(\.name) == ["g/two", "h/none", "h/one"])

      try await store.delete(["h/one", "h/none", "h/absent"])
      try await store.delete(["h/one"])
      #expect(try await store.get("h/one") == .absent)
      #expect(try await store.list("").map(\.name) == ["g/two"])
    }
  }

  @Test("ranges are clamped to the object, and limits hold", arguments: S3Server.Kind.allCases)
  func ranges(kind: S3Server.Kind) async throws {
    let server = try await S3Server(kind)
    defer { withExtendedLifetime(server) {} }
    let store = try S3Store(server.options())
    let object = pattern(10_000)
    _ = try await store.put("a", object, if: .always)
    let ranges: [(Range<UInt64>, [UInt8])] = [
      (0..<1, Array(object[..<1])), (100..<5000, Array(object[100..<5000])),
      (9_999..<10_000, [object[9_999]]), (9_000..<20_000, Array(object[9_000...])), (10_000..<10_001, []),
      (50_000..<60_000, []), (5..<5, []), (0..<UInt64(Int64.max), object),
    ]
    for (range, wanted) in ranges {
      let read = try await store.get("a", range: range, unless: nil, limit: wanted.count)
      #expect(same(bytes(read), wanted), "\(range)")
    }
    #expect(try await store.get("b", range: 0..<10, unless: nil, limit: 10) == .absent)
    #expect(await failure { try await store.get("a", limit: 9_999) }?.code == .tooLarge)
    #expect(try await same(bytes(store.get("a", limit: 10_000)), object))
  }

  @Test(
    "conditional writes hold where the server has them, and write where it has not",
    arguments: S3Server.Kind.allCases)
  func conditions(kind: S3Server.Kind) async throws {
    let server = try await S3Server(kind)
    defer { withExtendedLifetime(server) {} }
    let store = try S3Store(server.options())
    guard case .stored(let first?) = try await store.put("a", [1], if: .absent) else {
      Issue.record("an absent object is refused")
      return
    }
    let second = try await store.put("a", [2], if: .absent)
    let third = try await store.put(
      "a", [3], if: .version(ObjectVersion(tag: "00000000000000000000000000000000")))
    switch kind {
    case .moto:
      #expect(second == .refused)
      #expect(third == .refused)
      #expect(try await bytes(store.get("a")) == [1])
      #expect(try await store.put("a", [4], if: .version(first)) != .refused)
      #expect(try await bytes(store.get("a")) == [4])
    case .rclone:
      #expect(second != .refused)
      #expect(third != .refused)
      #expect(try await bytes(store.get("a")) == [3])
    }
  }

  @Test("a large object is written in parts, and read whole and by ranges", arguments: S3Server.Kind.allCases)
  func parts(kind: S3Server.Kind) async throws {
    let server = try await S3Server(kind)
    defer { withExtendedLifetime(server) {} }
    let store = try S3Store(server.options())
    let object = pattern((32 << 20) + 12_345)
    guard case .stored(let version?) = try await store.put("b/large", object, if: .always) else {
      Issue.record("no version is stated")
      return
    }
    #expect(store.figures[.put] == 5, "begin, three parts, end")
    #expect(store.figures.sentBytes == UInt64(object.count))
    guard case .found(let content) = try await store.get("b/large") else {
      Issue.record("it is not there")
      return
    }
    #expect(same(content.bytes, object))
    // rclone states another version once the object is whole.
    if kind == .moto { #expect(content.version == version) }
    let middle = (16 << 20) - 10
    let part = try await store.get(
      "b/large", range: UInt64(middle)..<UInt64(middle + 20), unless: nil, limit: 20)
    #expect(bytes(part) == Array(object[middle..<(middle + 20)]))
    #expect(try await store.list("b/").map(\.size) == [UInt64(object.count)])
  }

  @Test("a listing has all of its pages", arguments: S3Server.Kind.allCases)
  func pages(kind: S3Server.Kind) async throws {
    let server = try await S3Server(kind)
    defer { withExtendedLifetime(server) {} }
    let store = try S3Store(server.options(prefix: "p"))
    let names = (0..<1100).map { "e/s\($0)" }
    let written = await ConcurrentCalls.run(names, atMost: 16) { name throws(ObjectStoreError) in
      try await store.put(name, Array(name.utf8), if: .always)
    }
    #expect(try written.get().count == 1100)
    #expect(try await store.list("e/").map(\.name) == names.sorted())
    let read = await ConcurrentCalls.run(names, atMost: 50) { name throws(ObjectStoreError) in
      try await bytes(store.get(name)) == Array(name.utf8)
    }
    #expect(try read.get().allSatisfy(\.self))
    try await store.delete(names)
    #expect(try await store.list("e/") == [])
    #expect(store.figures[.put] == 1100)
    #expect(store.figures[.delete] == 1100)
  }

  @Test("a bucket that does not exist is missing", arguments: S3Server.Kind.allCases)
  func missing(kind: S3Server.Kind) async throws {
    let server = try await S3Server(kind)
    defer { withExtendedLifetime(server) {} }
    let store = try S3Store(.test(server.endpoint, bucket: "no-such-bucket"))
    #expect(await failure { try await store.get("a") }?.code == .missing)
    #expect(await failure { try await store.list("") }?.code == .missing)
    #expect(await failure { try await store.put("a", [1], if: .always) }?.code == .missing)
    #expect(await failure { try await store.delete(["a"]) }?.code == .missing)
  }

  @Test("wrong credentials are refused by a server that checks them")
  func credentials() async throws {
    let server = try await S3Server(.rclone)
    defer { withExtendedLifetime(server) {} }
    for (key, secret) in [("test-key", "wrong"), ("unknown", "test-secret")] {
      var options = server.options()
      options.credentials = .fixed(S3Credentials(accessKeyID: key, secretAccessKey: secret))
      let store = try S3Store(options)
      let error = try #require(await failure { try await store.list("") })
      #expect(error.code == .credentials, "\(error)")
      #expect(store.figures[.list] == 1)
    }
  }

  @Test("a clock that is off by a day is corrected", arguments: [-86_400_000, 86_400_000] as [Int64])
  func clock(offset: Int64) async throws {
    let server = try await S3Server(.rclone)
    defer { withExtendedLifetime(server) {} }
    let store = try S3Store(server.options(), machine: TestMachine().machine(clockOffset: offset))
    #expect(try await store.put("a", [1], if: .always) != .refused)
    #expect(try await bytes(store.get("a")) == [1])
    #expect(store.figures[.put] <= 2)
    #expect(store.figures[.get] == 1)
  }

  @Test("a server that is killed is unreachable, and found again when it is back")
  func killed() async throws {
    var server: S3Server? = try await S3Server(.rclone)
    let endpoint = try #require(server?.endpoint)
    let store = try S3Store(.test(endpoint), machine: TestMachine().machine())
    #expect(try await store.put("a", [1], if: .always) != .refused)
    server = nil
    let error = try #require(await failure { try await store.get("a") })
    #expect(error.code == .unreachable)
    #expect(error.isTemporary)
    let port = endpoint.split(separator: ":").last ?? ""
    let again = try await S3Server(.rclone, ["--addr", "127.0.0.1:\(port)"])
    #expect(again.endpoint == endpoint)
    #expect(try await store.get("a") == .absent)
  }

  @Test("TLS is verified, against a private authority if one is named")
  func certificates() async throws {
    guard FileManager.default.isExecutableFile(atPath: "/usr/bin/openssl") else {
      return print("not checked: there is no openssl command")
    }
    let directory = TemporaryDirectory()
    let (certificate, key) = (directory.path + "/certificate", directory.path + "/key")
    let made = try ChildProcess.run([
      "/usr/bin/openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
      "-nodes",
      "-keyout", key, "-out", certificate, "-days", "2", "-subj", "/CN=test", "-addext",
      "subjectAltName=IP:127.0.0.1",
    ])
    #expect(made.code == 0, "\(made.text)")
    let server = try await S3Server(.rclone, ["--cert", certificate, "--key", key])
    defer { withExtendedLifetime(server) {} }
    #expect(server.endpoint.hasPrefix("https://"))
    let stranger = try S3Store(server.options())
    let error = try #require(await failure { try await stranger.get("a") })
    #expect(error.code == .unreachable)
    #expect(error.message.contains("certificate"))
    #expect(stranger.figures == ObjectStoreFigures(), "nothing is sent")
    var options = server.options()
    options.authorityFile = certificate
    let trusting = try S3Store(options)
    #expect(try await trusting.put("a", [1], if: .always) != .refused)
    #expect(try await bytes(trusting.get("a")) == [1])
    // The certificate is for another name.
    options.endpoint = server.endpoint.replacingOccurrences(of: "127.0.0.1", with: "localhost")
    let other = try S3Store(options)
    #expect(await failure { try await other.get("a") }?.code == .unreachable)
    options.authorityFile = directory.path + "/none"
    let nowhere = try S3Store(options)
    #expect(await failure { try await nowhere.get("a") }?.code == .invalid)
  }
}
