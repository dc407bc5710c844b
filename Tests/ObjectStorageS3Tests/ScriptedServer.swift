import Foundation
import Glibc
import SyncStore

/// A server of HTTP on loopback whose answers, byte for byte, come from a script.
final class ScriptedServer: Sendable {
  /// A request as it arrived.
  struct Request: Sendable {
    /// The number of requests before it.
    var number = 0
    var method = ""
    /// The path and the parameters, encoded.
    var target = ""
    var fields: [(name: String, value: String)] = []
    var body: [UInt8] = []

    subscript(name: String) -> String? { fields.first { $0.name == name }?.value }
  }

  /// An answer and how it is sent.
  struct Answer: Sendable {
    var bytes: [UInt8] = []
    /// Milliseconds before the first byte.
    var delay = 0
    /// Milliseconds between two bytes; 0: all at once.
    var pause = 0
    /// Whether the connection ends after it.
    var closes = false

    /// An answer with its length, and with the time of this machine unless one is given.
    init(
      _ status: Int, _ fields: [(String, String)] = [], body: [UInt8] = [], date: UInt64? = nil
    ) {
      let time = TestTime.http(date ?? SystemCall.wallMilliseconds())
      let lines = fields + [("Date", time), ("Content-Length", "\(body.count)")]
      bytes =
        Array(
          ("HTTP/1.1 \(status) Scripted\r\n" + lines.map { "\($0.0): \($0.1)\r\n" }.joined() + "\r\n").utf8)
        + body
    }

    /// An answer of these bytes, after which the connection ends.
    init(raw: [UInt8]) { (bytes, closes) = (raw, true) }

    /// An error as S3 states it.
    static func error(
      _ status: Int, _ code: String, _ fields: [(String, String)] = [], date: UInt64? = nil
    ) -> Answer {
      let text = "<?xml version=\"1.0\"?>\n<Error><Code>\(code)</Code><Message>said</Message></Error>"
      return Answer(
        status, fields + [("Content-Type", "application/xml")], body: Array(text.utf8), date: date)
    }
  }

  /// The reaction to a head that asks whether the body may be sent.
  enum Expectation: Sendable {
    case `continue`
    /// Nothing: the client sends the body after a while.
    case ignore
    /// The final answer: the body is not read.
    case refuse(Answer)
  }

  private struct State {
    var requests: [Request] = []
    var connections: Set<Int32> = []
    var accepted = 0
    var isStopped = false
  }

  /// What the threads share, which outlive the server by a moment.
  private final class Core: Sendable {
    let state = Locked(State())
    let script: @Sendable (Request) -> Answer
    let expectation: @Sendable (Request) -> Expectation

    init(
      script: @escaping @Sendable (Request) -> Answer,
      expectation: @escaping @Sendable (Request) -> Expectation
    ) {
      (self.script, self.expectation) = (script, expectation)
    }
  }

  private let core: Core
  private let listener: Int32
  let port: UInt16

  /// Begins to listen. The script is called for each request, on the thread of its connection.
  init(
    expectation: @escaping @Sendable (Request) -> Expectation = { _ in .continue },
    _ script: @escaping @Sendable (Request) -> Answer
  ) {
    core = Core(script: script, expectation: expectation)
    let listener = socket(AF_INET, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
    var address = sockaddr_in()
    address.sin_family = sa_family_t(AF_INET)
    address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
    var size = socklen_t(MemoryLayout<sockaddr_in>.size)
    unsafe withUnsafeMutablePointer(to: &address) { pointer in
      unsafe pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { generic in
        guard unsafe bind(listener, generic, size) == 0, listen(listener, 64) == 0,
          unsafe getsockname(listener, generic, &size) == 0
        else { fatalError("no port on loopback") }
      }
    }
    port = UInt16(bigEndian: address.sin_port)
    self.listener = listener
    let core = core
    Thread { Self.accept(on: listener, core) }.start()
  }

  deinit {
    core.state.withLock { state in
      state.isStopped = true
      for connection in state.connections { shutdown(connection, Int32(SHUT_RDWR)) }
    }
    // The thread closes it.
    shutdown(listener, Int32(SHUT_RDWR))
  }

  var address: String { "http://127.0.0.1:\(port)" }
  var requests: [Request] { core.state.withLock { $0.requests } }
  /// Connections so far.
  var connectionCount: Int { core.state.withLock { $0.accepted } }

  private static func accept(on listener: Int32, _ core: Core) {
    while true {
      let connection = Glibc.accept(listener, nil, nil)
      guard connection >= 0 else { break }
      let isStopped = core.state.withLock { state in
        state.connections.insert(connection)
        state.accepted += 1
        return state.isStopped
      }
      if isStopped { shutdown(connection, Int32(SHUT_RDWR)) }
      Thread {
        serve(connection, core)
        core.state.withLock { _ = $0.connections.remove(connection) }
        close(connection)
      }.start()
    }
    close(listener)
  }

  private static func serve(_ connection: Int32, _ core: Core) {
    var input: [UInt8] = []
    let end = Array("\r\n\r\n".utf8)
    while true {
      while input.firstRange(of: end) == nil { guard receive(connection, &input) else { return } }
      guard let head = input.firstRange(of: end) else { return }
      var request = parse(input[..<head.lowerBound])
      input = Array(input[head.upperBound...])
      let length = Int(request["content-length"] ?? "0") ?? 0
      if request["expect"] != nil {
        switch core.expectation(request) {
        case .continue: guard send(connection, Array("HTTP/1.1 100 Continue\r\n\r\n".utf8)) else { return }
        case .ignore: break
        case .refuse(let answer):
          record(&request, core)
          _ = send(connection, answer.bytes)
          return
        }
      }
      while input.count < length { guard receive(connection, &input) else { return } }
      request.body = Array(input[..<length])
      input = Array(input[length...])
      record(&request, core)
      let answer = core.script(request)
      if answer.delay > 0 { usleep(UInt32(answer.delay) * 1000) }
      if answer.pause > 0 {
        for byte in answer.bytes {
          guard send(connection, [byte]) else { return }
          usleep(UInt32(answer.pause) * 1000)
        }
      } else if !send(connection, answer.bytes) {
        return
      }
      if answer.closes { return }
    }
  }

  private static func record(_ request: inout Request, _ core: Core) {
    request.number = core.state.withLock { state in
      var counted = request
      counted.number = state.requests.count
      state.requests.append(counted)
      return counted.number
    }
  }

  private static func parse(_ head: ArraySlice<UInt8>) -> Request {
    let lines = String(decoding: head, as: UTF8.self).components(separatedBy: "\r\n")
    let words = lines[0].components(separatedBy: " ")
    var request = Request(method: words[0], target: words.count > 1 ? words[1] : "")
    for line in lines.dropFirst() {
      let parts = line.split(separator: ":", maxSplits: 1)
      guard parts.count == 2 else { continue }
      request.fields.append((parts[0].lowercased(), parts[1].trimmingCharacters(in: .whitespaces)))
    }
    return request
  }

  private static func receive(_ connection: Int32, _ input: inout [UInt8]) -> Bool {
    var buffer = [UInt8](repeating: 0, count: 64 << 10)
    let count = unsafe recv(connection, &buffer, buffer.count, 0)
    guard count > 0 else { return false }
    input += buffer[..<count]
    return true
  }

  private static func send(_ connection: Int32, _ bytes: [UInt8]) -> Bool {
    var sent = 0
    while sent < bytes.count {
      let count = unsafe bytes.withUnsafeBytes { buffer in
        unsafe Glibc.send(
          connection, buffer.baseAddress! + sent, buffer.count - sent, Int32(MSG_NOSIGNAL))
      }
      guard count > 0 else { return false }
      sent += count
    }
    return true
  }
}

/// Times in the forms of HTTP.
enum TestTime {
  /// `Sun, 06 Nov 1994 08:49:37 GMT`.
  static func http(_ milliseconds: UInt64) -> String {
    let formatter = DateFormatter()
    formatter.locale = Locale(identifier: "en_US_POSIX")
    formatter.timeZone = TimeZone(identifier: "GMT")
    formatter.dateFormat = "EEE, dd MMM yyyy HH:mm:ss 'GMT'"
    return formatter.string(from: Date(timeIntervalSince1970: Double(milliseconds / 1000)))
  }
}
