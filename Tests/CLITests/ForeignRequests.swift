// The fuzzer is built from this file and the sources of `sync-cli`.
#if !FUZZING
  @testable import sync_cli
#endif

/// Parses untrusted bytes as the head of an HTTP request.
enum ForeignRequests {
  /// The first byte is the size of the pieces in which the rest arrives: the result must not depend on it.
  static func read(_ bytes: [UInt8]) {
    guard let size = bytes.first, size > 0 else { return }
    let head = Array(bytes.dropFirst())
    let whole = outcome(of: [head])
    let pieces = stride(from: 0, to: head.count, by: Int(size)).map {
      Array(head[$0..<min($0 + Int(size), head.count)])
    }
    precondition(outcome(of: pieces) == whole, "the pieces of a request matter")
    if case .success(let request?) = whole {
      precondition(request.path.utf8.first == 0x2F, "a path begins with a slash")
    }
  }

  private static func outcome(of pieces: [[UInt8]]) -> Result<HTTPRequest?, HTTPRefusal> {
    var parser = HTTPRequestParser()
    do throws(HTTPRefusal) {
      for piece in pieces { if let request = try parser.receive(piece) { return .success(request) } }
      return .success(nil)
    } catch {
      return .failure(error)
    }
  }
}
