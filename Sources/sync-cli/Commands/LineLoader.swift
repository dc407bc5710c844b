import SyncStore

/// Stores the lines of a dump, many per transaction. A line that cannot be stored is reported as a failure;
/// the others are stored.
struct LineLoader {
  let store: Store
  /// Name of the file or stream in messages.
  let source: String
  private(set) var failures: ItemFailures
  /// Lines that were stored.
  private(set) var loaded = 0
  private var batch: [Line] = []
  private var batchBytes = 0
  private static let transactionBytes = 1 << 20
  private static let transactionLines = 500
  private static let smallValueBytes = 16 << 10
  /// The allowed members of a line. `shown` (for people), `exact` and `version` (of `get --json`) are
  /// ignored.
  private static let members = [
    "key", "key_base64", "value", "base64", "shown", "type", "expires", "version", "exact",
  ]

  private struct Line {
    let number: Int
    let key: Key
    let bytes: [UInt8]
    let type: ValueType
    let deadline: UInt64?
  }

  init(store: Store, source: String, failures: ItemFailures) {
    (self.store, self.source, self.failures) = (store, source, failures)
  }

  /// Stores all lines of `reader`. If an error ends it, the lines before it are stored.
  mutating func run(_ reader: LineReader) throws {
    var reader = reader
    do {
      while let line = try reader.next() {
        do { try add(line, reader.number) } catch let reason as Reason {
          try recordFailure(reason.text, line: reader.number)
        }
      }
    } catch {
      try commit()
      throw error
    }
    try commit()
  }

  private mutating func recordFailure(_ reason: String, line number: Int) throws {
    // A strict load ends here: the message states how many lines are stored by then.
    if failures.isStrict { try commit() }
    let before = failures.isStrict ? " (\(Text.count(loaded, noun: "line")) before it stored)" : ""
    try failures.record(
      Failure(
        .usage, "load \(source), line \(number): \(reason): mend the line and load it again\(before)"))
  }

  private mutating func add(_ line: LineReader.Line, _ number: Int) throws {
    guard case .text(let text) = line else {
      throw Reason("it is longer than \(Text.size(LineReader.lineBytes)), which no line of a dump is")
    }
    if text.allSatisfy({ $0 == 0x20 || $0 == 0x09 || $0 == 0x0D }) { return }
    let read = try Self.read(text, number)
    guard read.bytes.count <= Self.smallValueBytes else {
      try commit()
      return try put([read], durability: .full)
    }
    batch.append(read)
    batchBytes += read.bytes.count
    if batchBytes >= Self.transactionBytes || batch.count >= Self.transactionLines { try commit() }
  }

  private static func read(_ text: [UInt8], _ number: Int) throws -> Line {
    let line: JSON
    // The object of the line adds one level to the deepest allowed value.
    do { line = try JSONParser.parse(text, depth: Limits.codedValueDepth + 1) } catch {
      throw Reason(error.reason)
    }
    try checkMembers(of: line)
    let (bytes, type) = try ValueText.value(of: line)
    let key: Key
    do { key = try Key(bytes: try KeyLine.key(of: line)) } catch let error as StoreError {
      throw Reason(error.message)
    }
    return Line(number: number, key: key, bytes: bytes, type: type, deadline: try deadline(of: line))
  }

  /// An unknown member may be a typing error: ignoring it would change the meaning of the line.
  private static func checkMembers(of line: JSON) throws(Reason) {
    guard case .object(let found) = line else { throw Reason("it is no JSON object") }
    for member in found where !members.contains(where: { $0.utf8.elementsEqual(member.name.utf8) }) {
      let meant = ArgumentParser.nearest(to: member.name, in: members).map { ", \"\($0)\" is" } ?? ""
      throw Reason("\"\(Text.printable(member.name.utf8))\" is no member of a line\(meant)")
    }
  }

  private static func deadline(of line: JSON) throws(Reason) -> UInt64? {
    guard let member = line["expires"] else { return nil }
    guard case .number(let text) = member, let milliseconds = UInt64(text) else {
      throw Reason("\"expires\" is not a whole number of milliseconds since 1970")
    }
    return milliseconds
  }

  // MARK: Storing

  private mutating func commit() throws {
    let batch = batch
    self.batch = []
    batchBytes = 0
    try put(batch[...], durability: .relaxed)
  }

  /// Stores lines in one transaction, or individually if one of them makes that fail.
  private mutating func put(_ lines: ArraySlice<Line>, durability: Durability) throws {
    guard let first = lines.first else { return }
    do {
      try store.transaction(durability: durability) { transaction in
        for line in lines {
          try transaction.put(
            line.key, line.bytes, type: line.type, expiration: line.deadline.map { .at($0) })
        }
      }
      loaded += lines.count
    } catch let error as StoreError where error.concernsOneItem {
      // A store that is read-only, or too full for small values, accepts no other line either.
      guard error.code != .readOnly, error.code != .diskFull || durability == .full else { throw error }
      if lines.count > 1 {
        for index in lines.indices { try put(lines[index...index], durability: durability) }
      } else {
        try failures.record(Failure(StoreError(error, to: "load \(source), line \(first.number)")))
      }
    }
  }
}
