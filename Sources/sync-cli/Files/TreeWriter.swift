private import SyncStore

/// Creates files below a directory, each atomically, and never outside of it.
final class TreeWriter {
  private let root: Descriptor
  /// The directory of the last file, cached because files come in path order.
  private var last: (path: [UInt8], directory: Descriptor)?
  private static let slash = UInt8(ascii: "/")
  private static let nameBytes = 255

  /// Writes below `path`, which is created if missing.
  init(_ path: [UInt8]) throws(Failure) {
    try Descriptor.makeDirectories(path)
    root = try Descriptor.reading(path, waiting: false)
    guard try root.status().kind == .directory else {
      throw Failure(
        .usage, "\(Text.printable(path)): not a directory: files cannot be put there: give a directory")
    }
  }

  /// The reason why a file with that relative path would not lie below the directory or cannot be created;
  /// nil if it can.
  static func objection(to path: [UInt8]) -> String? {
    if path.isEmpty { return "it would have no name" }
    if path.first == slash { return "it is an absolute path" }
    if path.contains(0) { return "it holds a NUL" }
    for part in path.split(separator: slash, omittingEmptySubsequences: false) {
      if part.isEmpty { return "a part of it is empty" }
      if part.elementsEqual("..".utf8) || part.elementsEqual(".".utf8) {
        return "\"\(Text.printable(part))\" is a part of it"
      }
      if part.count > nameBytes { return "a part of it is longer than \(nameBytes) bytes" }
    }
    return nil
  }

  /// Creates the file `path` with that content.
  func make(_ path: [UInt8], holding content: [UInt8]) throws(Failure) {
    let (directory, name) = try place(path)
    let temporary = Self.temporaryName()
    do {
      try directory.creating(temporary, shownAs: name).write(content)
      try directory.rename(temporary, to: name, in: directory)
    } catch {
      directory.remove(temporary)
      throw error
    }
  }

  /// Creates the file `path`: `body` writes it at the temporary path that it is given, or returns false to
  /// create none.
  func make(_ path: [UInt8], by body: (String) throws -> Bool) throws -> Bool {
    let (directory, name) = try place(path)
    let temporary = Self.temporaryName()
    do {
      guard try body(String(decoding: Descriptor.joined(root.path, temporary), as: UTF8.self)) else {
        return false
      }
      try root.rename(temporary, to: name, in: directory)
      return true
    } catch {
      root.remove(temporary)
      // Messages name the final file instead of the temporary one.
      guard let error = error as? StoreError, error.path?.contains(Self.temporaryPrefix) ?? false else {
        throw error
      }
      let shown = Text.printable(Descriptor.joined(root.path, path))
      throw StoreError(error.code, error.message, path: shown, errno: error.errno)
    }
  }

  private static let temporaryPrefix = ".sync-cli-\(System.processID)-"

  /// A unique name for an unfinished file.
  static func temporaryName() -> [UInt8] {
    Array("\(temporaryPrefix)\(UInt64.random(in: 0 ... .max)).part".utf8)
  }

  /// Makes everything durable.
  func finish() throws(Failure) { try root.syncFileSystem() }

  private func place(_ path: [UInt8]) throws(Failure) -> (Descriptor, name: [UInt8]) {
    guard let slash = path.lastIndex(of: Self.slash) else { return (root, path) }
    let parent = Array(path[..<slash])
    let name = Array(path[(slash + 1)...])
    if let last, last.path == parent { return (last.directory, name) }
    var directory = root
    for part in parent.split(separator: Self.slash) {
      try directory.makeDirectory(Array(part))
      directory = try directory.directory(Array(part))
    }
    last = (parent, directory)
    return (directory, name)
  }
}

/// Detects paths that would lie below a file. Paths must be passed in byte order.
struct NestedPaths {
  /// Prefixes of the last path, and itself. All paths that begin with one of them are consecutive.
  private var open: [[UInt8]] = []

  /// The reason why the next path conflicts with earlier ones; nil if it does not.
  mutating func objection(to path: [UInt8]) -> String? {
    while let last = open.last, !path.starts(with: last) { open.removeLast() }
    let file = open.first { $0.count < path.count && path[$0.count] == UInt8(ascii: "/") }
    open.append(path)
    return file.map { "\"\(Text.printable($0))\" is a key, too, and would be both a file and a directory" }
  }
}
