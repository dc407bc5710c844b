internal import Replication
internal import SyncStore

/// The answer to a request: its status, its fields, and its body.
struct HTTPAnswer: Sendable {
  /// The status.
  var status = 0
  /// The fields, with names in lower case, in the order of the answer.
  var fields: [(name: String, value: String)] = []
  /// The body.
  var body: [UInt8] = []

  /// The value of a field; nil without it.
  subscript(name: String) -> String? { fields.first { $0.name == name }?.value }
}

/// Why a request has no answer.
enum TransferFailure: Error, Sendable {
  /// The connection could not be made, broke, or was too slow. Repeating the request may help.
  case broken(String)
  /// The name of the host is unknown. Repeating the request may help.
  case unresolved(String)
  /// The certificate is not trusted, or TLS failed.
  case untrusted(String)
  /// Repeating the request does not help.
  case unusable(String)
  /// The body of a successful answer is larger than the limit.
  case tooLarge
  /// The caller has cancelled it.
  case cancelled
}

/// Reads the head of an answer, line by line. An interim answer (1xx) is skipped.
struct HTTPHead {
  /// A server may send this many bytes of fields.
  private static let mostBytes = 64 << 10

  private(set) var status = 0
  private(set) var fields: [(name: String, value: String)] = []
  /// Whether the empty line at the end of the final head was read.
  private(set) var isComplete = false
  private var byteCount = 0

  /// Takes a line with its end. Returns false if this is no answer in HTTP, or too long a one.
  mutating func take(_ bytes: [UInt8]) -> Bool {
    byteCount += bytes.count
    guard byteCount <= Self.mostBytes, bytes.last == UInt8(ascii: "\n") else { return false }
    var line = bytes.dropLast()
    if line.last == UInt8(ascii: "\r") { line = line.dropLast() }
    if line.starts(with: "HTTP/".utf8) {
      // The trailer of a chunked body has no status line.
      (status, fields, isComplete) = (Self.status(line), [], false)
      return (100...599).contains(status)
    }
    if isComplete { return true }
    if line.isEmpty {
      isComplete = status >= 200
      return status >= 100
    }
    guard let colon = line.firstIndex(of: UInt8(ascii: ":")) else { return true }
    let value = line[(colon + 1)...].drop { $0 == 0x20 || $0 == 0x09 }
    fields.append(
      (
        String(decoding: line[..<colon], as: UTF8.self).lowercased(),
        String(decoding: value, as: UTF8.self).printable
      ))
    return true
  }

  /// The number after the first space.
  private static func status(_ line: ArraySlice<UInt8>) -> Int {
    let digits = line.drop { $0 != 0x20 }.dropFirst().prefix { $0 != 0x20 }
    return digits.count == 3 ? Int(String(decoding: digits, as: UTF8.self)) ?? 0 : 0
  }

  /// The size of the body that the head announces; nil if it announces none.
  var bodyBytes: UInt64? { fields.first { $0.name == "content-length" }.flatMap { UInt64($0.value) } }

  /// Whether the end of the body can be told from a broken connection.
  var isFramed: Bool {
    status == 204 || status == 304 || bodyBytes != nil
      || fields.contains { $0.name == "transfer-encoding" && $0.value.lowercased() == "chunked" }
  }
}
