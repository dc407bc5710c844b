import SyncStore

/// The lines typed before, in a file that all shells of the user share.
///
/// A file that cannot be read or written is no error: there is no history then.
struct ShellHistory {
  /// Maximum number of lines.
  static let mostLines = 1000
  /// Longer lines are not kept.
  static let mostLineBytes = 16 << 10

  private let path: [UInt8]?
  private let isUsual: Bool
  private let log: (String) -> Void
  private var last: [UInt8]?

  /// The file in $SYNC_HISTORY_FILE, none if that is empty, or the usual one. `log` gets reasons.
  init(log: @escaping (String) -> Void) {
    self.log = log
    isUsual = !System.isSet("SYNC_HISTORY_FILE")
    path = isUsual ? Self.usualPath : System.environmentBytes("SYNC_HISTORY_FILE")
  }

  private static var usualPath: [UInt8]? {
    let state = System.environmentBytes("XDG_STATE_HOME")
    let home = System.environmentBytes("HOME").map { $0 + Array("/.local/state".utf8) }
    return (state ?? home).map { $0 + Array("/sync-store/history".utf8) }
  }

  /// Lines of earlier shells, oldest first.
  mutating func lines() -> [[UInt8]] {
    guard let path else { return [] }
    do throws(Failure) {
      guard try Descriptor.kind(at: path) == .file else { return [] }
      let lines = Self.lines(of: try Descriptor.reading(path, waiting: false))
      last = lines.last
      return lines
    } catch {
      log("no history: \(error.message)")
      return []
    }
  }

  /// Adds a line. It must be on one line.
  mutating func add(_ line: [UInt8]) {
    guard let path, line != last, line.count <= Self.mostLineBytes, !line.contains(0x0A) else { return }
    do throws(Failure) {
      if isUsual, let slash = path.lastIndex(of: UInt8(ascii: "/")) {
        try Descriptor.makeDirectories(Array(path[..<slash]), mode: 0o700)
      }
      let file = try Descriptor.updating(path, mode: 0o600)
      try file.lock()
      var kept = Self.lines(of: file)
      if kept.count < Self.mostLines {
        try file.write(line + [0x0A])
      } else {
        kept.removeFirst(kept.count - Self.mostLines + 1)
        try file.replaceContent((kept + [line]).flatMap { $0 + [0x0A] })
      }
      last = line
    } catch {
      log("the line is not kept: \(error.message)")
    }
  }

  private static func lines(of file: Descriptor) -> [[UInt8]] {
    guard let bytes = try? file.readAll(limit: mostLines * (mostLineBytes + 1)) else { return [] }
    return bytes.split(separator: 0x0A).suffix(mostLines).map(Array.init)
  }

  /// Whether a line may be kept: it does not begin with a space, and holds no token. `command` is nil if the
  /// words are none.
  static func mayKeep(_ line: [UInt8], _ words: [Argument], of command: Command?) -> Bool {
    guard let first = line.first, first != 0x20, !words.isEmpty else { return false }
    let mayJoin = command.map { $0.name == "join" } ?? words.contains { $0.text == "join" }
    return !mayJoin && !words.contains { $0.bytes.starts(with: "syncstore1:".utf8) }
  }
}
