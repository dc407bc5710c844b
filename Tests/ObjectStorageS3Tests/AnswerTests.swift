import Replication
import SyncStore
import SyncTestSupport
import Testing

@testable import ObjectStorageS3

private typealias Answer = ScriptedServer.Answer

/// Answers of a server that fails, lies, or breaks off.
@Suite("Answers of a server", .timeLimit(.minutes(Patience.minutes(2)))) struct AnswerTests {
  private static let object = Array("contents".utf8)

  /// A server that gives the first answers, then the object for a GET and success for everything else.
  private static func server(_ first: [Answer]) -> ScriptedServer {
    ScriptedServer { request in
      if request.number < first.count { return first[request.number] }
      if request.method == "GET" { return Answer(200, [("ETag", "\"v1\"")], body: object) }
      return Answer(request.method == "DELETE" ? 204 : 200, [("ETag", "\"v1\"")])
    }
  }

  @Test("an object is read with its version and its time, by a signed request")
  func plain() async throws {
    let server = Self.server([
      Answer(
        200, [("ETag", "\"v1\""), ("Last-Modified", "Sun, 06 Nov 1994 08:49:37 GMT")], body: Self.object,
        date: 1_700_000_000_000)
    ])
    let options = S3Options.test(server.address, prefix: "a b/ü")
    let store = try S3Store(options)
    let content = ObjectContent(
      bytes: Self.object, version: ObjectVersion(tag: "v1"), modified: 784_111_777_000)
    #expect(try await store.get("h/one") == .found(content))
    #expect(store.clock == 1_700_000_000_000)
    let request = try #require(server.requests.first)
    #expect(request.target == "/bucket/a%20b/%C3%BC/h/one")
    #expect(request["host"] == "127.0.0.1:\(server.port)")
    #expect(request["x-amz-content-sha256"] == SignedRequest.noPayload)
    #expect(request["authorization"]?.contains("Credential=test-key/") == true)
    #expect(store.figures.requests == [.init(.get, status: 200): 1])
    #expect(store.figures.receivedBytes == 8)
  }

  @Test("a bucket may be in the name of the host")
  func virtualHost() async throws {
    let server = Self.server([])
    var options = S3Options.test("http://localhost:\(server.port)", prefix: "p")
    options.addressing = .virtualHost
    let store = try S3Store(options)
    #expect(try await bytes(store.get("a")) == Self.object)
    #expect(server.requests.first?["host"] == "bucket.localhost:\(server.port)")
    #expect(server.requests.first?.target == "/p/a")
  }

  @Test("a version that is known is not sent again, and need not be read if it is")
  func known() async throws {
    let server = Self.server([Answer(304, [("ETag", "\"v1\"")])])
    let store = try S3Store.scripted(server)
    let version = ObjectVersion(tag: "v1")
    #expect(try await store.get("a", range: nil, unless: version, limit: 100) == .unchanged)
    #expect(server.requests.first?["if-none-match"] == "\"v1\"")
    // A server that ignores the condition.
    #expect(try await store.get("a", range: nil, unless: version, limit: 100) == .unchanged)
    #expect(store.figures.requests == [.init(.get, status: 304): 1, .init(.get, status: 200): 1])
  }

  @Test("a range is read from servers that serve it, ignore it, or find it outside of the object")
  func ranges() async throws {
    let server = Self.server([
      Answer(206, [("Content-Range", "bytes 2-4/8")], body: Array("nte".utf8)),
      Answer(200, body: Self.object),
      .error(416, "InvalidRange"),
      // As rclone has it.
      Answer(200, [("Content-Range", "bytes 2-4/8")], body: Array("nte".utf8)),
      Answer(206, [("Content-Range", "bytes 0-2/8")], body: Array("con".utf8)),
      Answer(206, [("Content-Range", "bytes 2-5/8")], body: Array("nte".utf8)),
      Answer(206, body: Array("nte".utf8)), Answer(206, [("Content-Range", "bytes 2-1/8")]),
    ])
    let store = try S3Store.scripted(server)
    let read = { (limit: Int) async throws in
      bytes(try await store.get("a", range: 2..<5, unless: nil, limit: limit))
    }
    #expect(try await read(3) == Array("nte".utf8))
    #expect(server.requests.first?["range"] == "bytes=2-4")
    #expect(try await read(100) == Array("nte".utf8))
    #expect(try await read(3) == [])
    #expect(try await read(3) == Array("nte".utf8))
    for _ in 0..<4 { #expect(await failure { try await read(3) }?.code == .invalid) }
  }

  // MARK: Failures

  struct Failing: Sendable, CustomTestStringConvertible {
    var status: Int
    var code: String
    var result: ObjectStoreError.Code
    var attempts = 1

    var testDescription: String { "\(status) \(code)" }
  }

  static let failing = [
    Failing(status: 403, code: "AccessDenied", result: .denied),
    Failing(status: 403, code: "InvalidAccessKeyId", result: .credentials),
    Failing(status: 403, code: "SignatureDoesNotMatch", result: .credentials),
    Failing(status: 400, code: "ExpiredToken", result: .credentials),
    Failing(status: 404, code: "NoSuchBucket", result: .missing),
    Failing(status: 400, code: "InvalidArgument", result: .invalid),
    Failing(status: 301, code: "PermanentRedirect", result: .invalid),
    Failing(status: 507, code: "", result: .full),
    Failing(status: 403, code: "QuotaExceeded", result: .full),
    Failing(status: 501, code: "NotImplemented", result: .invalid),
    Failing(status: 429, code: "", result: .throttled, attempts: 6),
    Failing(status: 503, code: "SlowDown", result: .throttled, attempts: 6),
    Failing(status: 500, code: "InternalError", result: .failed, attempts: 6),
    Failing(status: 502, code: "", result: .failed, attempts: 6),
    Failing(status: 503, code: "ServiceUnavailable", result: .failed, attempts: 6),
    Failing(status: 400, code: "RequestTimeout", result: .unreachable, attempts: 6),
  ]

  @Test(
    "each failure has its kind, is repeated if that may help, and each request is counted", arguments: failing
  )
  func failures(_ failing: Failing) async throws {
    let answer = failing.code.isEmpty ? Answer(failing.status) : .error(failing.status, failing.code)
    let server = ScriptedServer { _ in answer }
    let store = try S3Store.scripted(server)
    let calls: [(ObjectOperation, () async throws -> Void)] = [
      (.get, { _ = try await store.get("a") }),
      (.put, { _ = try await store.put("a", [1], if: .always) }),
      (.list, { _ = try await store.list("") }),
      (.delete, { try await store.delete(["a"]) }),
    ]
    for (operation, call) in calls {
      let error = try #require(await failure(of: call), "\(operation)")
      #expect(error.code == failing.result, "\(operation): \(error)")
      #expect(error.status == failing.status)
      #expect(error.message.hasPrefix("s3://bucket: "))
      #expect(!error.message.contains("test-secret"))
      #expect(store.figures[operation] == UInt64(failing.attempts), "\(operation)")
    }
    #expect(server.requests.count == 4 * failing.attempts)
  }

  @Test("failures that pass are repeated with growing waits", arguments: [429, 500, 503])
  func passing(status: Int) async throws {
    let server = Self.server([Answer](repeating: .error(status, "InternalError"), count: 4))
    let machine = TestMachine()
    let store = try S3Store.scripted(server, machine: machine)
    #expect(try await store.put("a", Self.object, if: .always) == .stored(ObjectVersion(tag: "v1")))
    #expect(server.requests.map(\.body) == [[UInt8]](repeating: Self.object, count: 5))
    let waits = machine.waits
    #expect(waits.count == 4)
    for (wait, bound) in zip(waits, [500, 1000, 2000, 4000] as [UInt64]) {
      #expect((bound / 2...bound).contains(wait))
    }
    #expect(store.figures.requests == [.init(.put, status: status): 4, .init(.put, status: 200): 1])
    #expect(store.figures.sentBytes == 5 * 8)
  }

  @Test("the wait is the one that the server asks for, and bounded")
  func retryAfter() async throws {
    let server = Self.server([
      .error(503, "SlowDown", [("Retry-After", "7")]),
      .error(503, "SlowDown", [("Retry-After", "100000")]),
      .error(
        503, "SlowDown", [("Retry-After", "Tue, 14 Nov 2023 22:13:30 GMT")], date: 1_700_000_000_000),
    ])
    let machine = TestMachine()
    let store = try S3Store.scripted(server, machine: machine)
    #expect(try await bytes(store.get("a")) == Self.object)
    #expect(machine.waits == [7000, 60_000, 10_000])
  }

  @Test("an absent object is no error, and an answer that is not of S3 is no absence")
  func absent() async throws {
    let page = Array("<html><body>Log in</body></html>".utf8)
    let server = Self.server([.error(404, "NoSuchKey"), Answer(404)])
    let store = try S3Store.scripted(server)
    #expect(try await store.get("a") == .absent)
    #expect(try await store.get("a") == .absent)
    let portal = ScriptedServer { _ in Answer(404, body: page) }
    let behind = try S3Store.scripted(portal)
    #expect(await failure { try await behind.get("a") }?.code == .invalid)
    #expect(portal.requests.count == 6)
    #expect(await failure { try await behind.delete(["a"]) }?.code == .invalid)
  }

  @Test("a bucket in another region is named with its region, and only then")
  func region() async throws {
    let fields = [("x-amz-bucket-region", "eu-north-1")]
    let server = Self.server([
      .error(301, "PermanentRedirect", fields), .error(400, "AuthorizationHeaderMalformed", fields),
      .error(403, "AccessDenied", fields),
    ])
    let store = try S3Store.scripted(server)
    for wanted in [true, true, false] {
      let error = try #require(await failure { try await store.get("a") })
      #expect(error.message.contains("eu-north-1") == wanted)
      #expect(error.code == (wanted ? .invalid : .denied))
    }
  }

  // MARK: Broken answers

  @Test("an answer that is cut at any byte is asked for again")
  func cut() async throws {
    let whole = Answer(200, [("ETag", "\"v1\"")], body: Self.object)
    for length in 0..<whole.bytes.count {
      let server = Self.server([Answer(raw: Array(whole.bytes[..<length]))])
      let store = try S3Store.scripted(server)
      #expect(try await bytes(store.get("a")) == Self.object, "\(length) bytes")
      // A client of HTTP may repeat a request by itself if a kept connection ends before any answer.
      #expect(server.requests.count == 2, "\(length) bytes")
      #expect(store.figures[.get] == 2, "\(length) bytes")
    }
  }

  @Test("an answer in chunks that is cut at any byte is asked for again")
  func cutChunks() async throws {
    let text = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n8\r\ncontents\r\n0\r\n\r\n"
    for length in 0..<text.utf8.count {
      let server = Self.server([Answer(raw: Array(text.utf8.prefix(length)))])
      let store = try S3Store.scripted(server)
      #expect(try await bytes(store.get("a")) == Self.object, "\(length) bytes")
    }
    let server = Self.server([Answer(raw: Array(text.utf8))])
    #expect(try await bytes(S3Store.scripted(server).get("a")) == Self.object)
    #expect(server.requests.count == 1)
  }

  @Test("the answer to a write that is cut at any byte is asked for again, with the whole body")
  func cutWrites() async throws {
    let whole = Answer(200, [("ETag", "\"v1\"")])
    for length in 0..<whole.bytes.count {
      let server = Self.server([Answer(raw: Array(whole.bytes[..<length]))])
      let store = try S3Store.scripted(server)
      #expect(try await store.put("a", Self.object, if: .always) == .stored(ObjectVersion(tag: "v1")))
      #expect(server.requests.map(\.body) == [Self.object, Self.object], "\(length) bytes")
    }
  }

  @Test("a length that is wrong is noticed, and one that is missing is not believed")
  func lengths() async throws {
    let object = "contents"
    for head in ["Content-Length: 9\r\n", "Content-Length: 8000\r\n", ""] {
      let server = Self.server([Answer(raw: Array("HTTP/1.1 200 OK\r\n\(head)\r\n\(object)".utf8))])
      let store = try S3Store.scripted(server)
      #expect(try await bytes(store.get("a")) == Self.object, "\(head)")
      #expect(server.requests.count == 2, "\(head)")
    }
    // Bytes after the end are of no answer.
    let server = Self.server([
      Answer(raw: Array("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n\(object)".utf8))
    ])
    let store = try S3Store.scripted(server)
    #expect(try await bytes(store.get("a")) == Array("con".utf8))
    #expect(try await bytes(store.get("a")) == Self.object)
  }

  @Test("an answer that is none of HTTP is an error")
  func foreign() async throws {
    for text in ["SSH-2.0-OpenSSH_9.2\r\n", "HTTP/1.1 9 x\r\n\r\n", "HTTP/1.1 200 OK\nno field\n"] {
      let server = ScriptedServer { _ in Answer(raw: Array(text.utf8)) }
      let error = try #require(await failure { try await S3Store.scripted(server).get("a") })
      #expect(error.code == .unreachable, "\(error)")
      #expect(server.requests.count == 6)
    }
  }

  @Test("an object above the limit is refused before it is read")
  func oversize() async throws {
    let large = [UInt8](repeating: 1, count: 8 << 20)
    let server = ScriptedServer { request in
      if request.target.hasSuffix("/chunked") {
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n800000\r\n"
        return Answer(raw: Array(head.utf8) + large)
      }
      return Answer(200, body: large)
    }
    let store = try S3Store.scripted(server)
    for name in ["plain", "chunked"] {
      let error = try #require(await failure { try await store.get(name, limit: 1000) })
      #expect(error.code == .tooLarge)
    }
    #expect(server.requests.count == 2)
    #expect(store.figures.requests == [.init(.get, status: 200): 2])
    #expect(store.figures.receivedBytes <= 1000)
    #expect(try await bytes(store.get("plain", limit: large.count))?.count == large.count)
    #expect(await failure { try await store.get("plain", limit: 0) }?.code == .tooLarge)
  }

  @Test("an error message without an end is not read")
  func longErrors() async throws {
    let server = ScriptedServer { _ in Answer(403, body: [UInt8](repeating: 0x20, count: 1 << 20)) }
    #expect(await failure { try await S3Store.scripted(server).get("a") }?.code == .unreachable)
  }

  // MARK: Time

  @Test("a server that is silent, or too slow, is given up after the timeout")
  func slow() async throws {
    let server = ScriptedServer { request in
      var answer = Answer(200, body: Self.object)
      if request.number == 0 { answer.delay = 4000 }
      if request.number == 1 { (answer.pause, answer.closes) = (50, true) }
      return answer
    }
    var options = S3Options.test(server.address)
    options.timeoutSeconds = 1
    let store = try S3Store(options, machine: TestMachine().machine())
    #expect(try await bytes(store.get("a")) == Self.object)
    #expect(server.requests.count == 3)
  }

  @Test("a call ends after its bound of time, however many requests are left")
  func patience() async throws {
    let server = ScriptedServer { _ in .error(500, "InternalError") }
    let elapsed = Locked<UInt64>(0)
    var machine = S3Machine()
    machine.elapsed = { elapsed.withLock { $0 } }
    machine.sleep = { _ in elapsed.withLock { $0 += 100_000 } }
    let store = try S3Store(.test(server.address), machine: machine)
    #expect(await failure { try await store.get("a") }?.code == .failed)
    #expect(server.requests.count == 3)
  }

  @Test(
    "a clock that is off by a day is corrected by the server's",
    arguments: [-86_400_000, 86_400_000] as [Int64])
  func clock(offset: Int64) async throws {
    for code in ["RequestTimeTooSkewed", "AccessDenied"] {
      let server = ScriptedServer { request in
        let now = SystemCall.wallMilliseconds()
        let days = [now, now - 60_000].map { RequestSigner.time($0).prefix(8) }
        let isRight = request["x-amz-date"].map { days.contains($0.prefix(8)) } == true
        return isRight ? Answer(200, body: Self.object) : .error(403, code)
      }
      let store = try S3Store.scripted(server, clockOffset: offset)
      #expect(try await bytes(store.get("a")) == Self.object)
      #expect(store.figures.requests == [.init(.get, status: 403): 1, .init(.get, status: 200): 1])
      #expect(try await bytes(store.get("a")) == Self.object)
      #expect(store.figures[.get] == 3, "the clock is known from then on")
      let clock = try #require(store.clock)
      #expect(abs(Int64(clock) - Int64(SystemCall.wallMilliseconds())) < 60_000)
    }
  }

  @Test("the clock is that of the store, not of what answers in its place")
  func foreignClock() async throws {
    let (day, now): (UInt64, UInt64) = (86_400_000, SystemCall.wallMilliseconds() / 1000 * 1000)
    let server = Self.server([
      Answer(200, body: Self.object, date: now), Answer(502, date: now + day),
      Answer(404, body: Array("<html/>".utf8), date: now + day),
      Answer(200, [("Age", "7")], body: Self.object, date: now + day),
    ])
    let store = try S3Store.scripted(server)
    #expect(try await bytes(store.get("a")) == Self.object)
    #expect(try await bytes(store.get("a")) == Self.object)
    #expect(server.requests.count == 4)
    #expect(store.clock == now)
  }

  @Test("a clock that no answer corrects is an error that says so")
  func hopelessClock() async throws {
    let server = ScriptedServer { _ in .error(403, "RequestTimeTooSkewed") }
    let error = try #require(await failure { try await S3Store.scripted(server).get("a") })
    #expect(error.code == .credentials)
    #expect(error.message.contains("clock"))
    #expect(server.requests.count <= 2)
  }

  // MARK: Connections

  @Test("calls at once share up to 16 connections, and answers out of order reach their callers")
  func outOfOrder() async throws {
    let server = ScriptedServer { request in
      let name = String(request.target.split(separator: "/").last ?? "")
      var answer = Answer(200, body: Array(name.utf8))
      answer.delay = (Int(name.dropFirst()) ?? 0) % 7 * 20
      return answer
    }
    let store = try S3Store.scripted(server)
    await withTaskGroup(of: Void.self) { group in
      for number in 0..<100 {
        group.addTask {
          let read = try? await store.get("n\(number)")
          #expect(read.flatMap(bytes) == Array("n\(number)".utf8))
        }
      }
    }
    #expect(server.requests.count == 100)
    #expect(server.connectionCount <= 16)
    #expect(store.figures[.get] == 100)
  }

  @Test(
    "a larger body is sent when the server asks for it, after a while if it is silent, and not if it refuses")
  func expectation() async throws {
    let large = pattern(3 << 20)
    for expectation in [ScriptedServer.Expectation.continue, .ignore] {
      let server = ScriptedServer(expectation: { _ in expectation }) { _ in Answer(200, [("ETag", "\"e\"")]) }
      let store = try S3Store.scripted(server)
      #expect(try await store.put("a", large, if: .always) == .stored(ObjectVersion(tag: "e")))
      #expect(server.requests.count == 1)
      #expect(server.requests.first?["expect"] == "100-continue")
      #expect(server.requests.first?.body == large)
    }
    let server = ScriptedServer(expectation: { _ in .refuse(.error(403, "AccessDenied")) }) { _ in Answer(200)
    }
    let store = try S3Store.scripted(server)
    #expect(await failure { try await store.put("a", large, if: .always) }?.code == .denied)
    #expect(store.figures.sentBytes < 1 << 20)
  }

  @Test("a cancelled call ends at once")
  func cancellation() async throws {
    let server = ScriptedServer { _ in
      var answer = Answer(200)
      answer.delay = 20_000
      return answer
    }
    let store = try S3Store.scripted(server)
    let task = Task { await failure { try await store.get("a") } }
    while server.requests.isEmpty { try await Task.sleep(for: .milliseconds(5)) }
    let began = ContinuousClock.now
    task.cancel()
    #expect(await task.value?.code == .cancelled)
    #expect(ContinuousClock.now - began < .seconds(10))
    let second = Task { await failure { try await store.get("a") } }
    second.cancel()
    #expect(await second.value?.code == .cancelled)
  }

  @Test("a server that is not there is unreachable, and nothing is counted")
  func unreachable() async throws {
    let port = ScriptedServer { _ in Answer(200) }.port
    let store = try S3Store(.test("http://127.0.0.1:\(port)"), machine: TestMachine().machine())
    #expect(await failure { try await store.get("a") }?.code == .unreachable)
    #expect(store.figures == ObjectStoreFigures())
    var options = S3Options.test("https://no-such-host.invalid")
    options.timeoutSeconds = 5
    let unknown = try S3Store(options, machine: TestMachine().machine())
    #expect(await failure { try await unknown.get("a") }?.code == .unreachable)
  }

  @Test("a store can be released while its thread has work, and another be used")
  func release() async throws {
    let server = Self.server([])
    for _ in 0..<20 {
      let store = try S3Store.scripted(server)
      #expect(try await bytes(store.get("a")) == Self.object)
    }
  }
}
