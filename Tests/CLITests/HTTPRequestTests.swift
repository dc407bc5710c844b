import Testing

@testable import sync_cli

@Suite("The parser of HTTP requests")
struct HTTPRequestTests {
  private func parse(_ text: String) throws(HTTPRefusal) -> HTTPRequest? {
    var parser = HTTPRequestParser()
    return try parser.receive(Array(text.utf8))
  }

  @Test("reads method, path, query and host")
  func whole() throws {
    let get = try parse(
      "GET /status.json?a=b?c HTTP/1.1\r\nUser-Agent: x\r\nHOST: \t LocalHost:7421 \r\n\r\nrest")
    #expect(
      get == HTTPRequest(wantsHeadOnly: false, path: "/status.json", query: "a=b?c", host: "localhost"))
    let head = try parse("HEAD / HTTP/1.0\r\n\r\n")
    #expect(head == HTTPRequest(wantsHeadOnly: true, path: "/", query: "", host: nil))
    #expect(try parse("GET http://[::1]:80/x HTTP/1.1\r\nHost: y\r\n\r\n")?.host == "::1")
    #expect(try parse("GET http://h?q HTTP/1.1\r\nHost: y\r\n\r\n")?.path == "/")
    #expect(try parse("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n") != nil)
  }

  @Test("waits for the rest of a head, however it is divided", arguments: 1...9)
  func divided(size: Int) throws {
    let bytes = Array("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n".utf8)
    var parser = HTTPRequestParser()
    for start in stride(from: 0, to: bytes.count, by: size) {
      let request = try parser.receive(Array(bytes[start..<min(start + size, bytes.count)]))
      #expect((request != nil) == (start + size >= bytes.count))
    }
  }

  @Test(
    "refuses what servers understand in different ways, and what would change something",
    arguments: [
      ("GET / HTTP/1.1\r\n\r\n", HTTPResponse.Status.badRequest), ("GET  / HTTP/1.1\r\n\r\n", .badRequest),
      ("GET / HTTP/1.1 \r\nHost: a\r\n\r\n", .badRequest), ("GET x HTTP/1.1\r\nHost: a\r\n\r\n", .badRequest),
      ("GET /\u{E9} HTTP/1.1\r\nHost: a\r\n\r\n", .badRequest),
      ("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", .badRequest),
      ("GET / HTTP/1.1\r\nHost: a\r\n b: c\r\n\r\n", .badRequest),
      ("GET / HTTP/1.1\r\nHost : a\r\n\r\n", .badRequest),
      ("GET / HTTP/1.1\r\nHost: a@b\r\n\r\n", .badRequest),
      ("GET / HTTP/1.1\r\nHost: a\nX: b\r\n\r\n", .badRequest),
      ("GET / HTTP/1.1\r\nHost: a\rb\r\n\r\n", .badRequest),
      ("GET / HTTP/1.1\r\nHost: \u{0}\r\n\r\n", .badRequest), ("\r\n\r\n", .badRequest),
      ("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n", .badRequest),
      ("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n", .contentTooLarge),
      ("GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", .contentTooLarge),
      ("POST / HTTP/1.1\r\nHost: a\r\n\r\n", .methodNotAllowed),
      ("GET / HTTP/2.0\r\nHost: a\r\n\r\n", .versionNotSupported), ("GET / FTP/1.1\r\n\r\n", .badRequest),
    ])
  func refused(text: String, status: HTTPResponse.Status) {
    #expect(#expect(throws: HTTPRefusal.self) { _ = try parse(text) }?.status == status)
  }

  @Test("refuses a head of more than 8 KiB, and keeps no more of it")
  func tooLarge() throws {
    var parser = HTTPRequestParser()
    let field = Array("X: \(String(repeating: "y", count: 1000))\r\n".utf8)
    #expect(try parser.receive(Array("GET / HTTP/1.1\r\nHost: a\r\n".utf8)) == nil)
    var refusal: HTTPRefusal?
    for _ in 0..<20 where refusal == nil {
      do throws(HTTPRefusal) { #expect(try parser.receive(field) == nil) } catch { refusal = error }
    }
    #expect(refusal?.status == .headTooLarge)
  }
}
