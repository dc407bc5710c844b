private import SyncStore

/// Makes files below a directory, each at once or not at all, and never outside of it.
final class TreeWriter {
  private let root: Descriptor
  /// The directory that the last file went to: files come in the order of their paths.
  private var last: (path: [UInt8], directory: Descriptor)?
  private static let slash = UInt8(ascii: "/")
  private static let nameBytes = 255

  /// Writes below `path`, which is made if it is missing.
  init(_ path: [UInt8]) throws(Failure) {
    try Descriptor.makeDirectories(path)
    root = try Descriptor.reading(path, waiting: false)
    guard try root.status().kind == .directory else {
      throw Failure(
        .usage, "\(Text.printable(path)): not a directory: files cannot be put there: give a directory")
    }
  }

  /// Why a file of that relative path would not lie below the directory, or could not be made there; nil if it can.
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

  /// Makes the file `path` with that content.
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

  /// Makes the file `path` of one that `body` makes at the path it is given; false if it made none.
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
      // People know the file by the name that it was to get.
      guard let error = error as? StoreError, error.path?.contains(Self.temporaryPrefix) ?? false else {
        throw error
      }
      let shown = Text.printable(Descriptor.joined(root.path, path))
      throw StoreError(error.code, error.message, path: shown, errno: error.errno)
    }
  }

  private static let temporaryPrefix = ".sync-cli-\(System.processID)-"

  /// A name that no file of ours has, for one that is not finished.
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

/// Finds paths that would lie below a file, among paths that come in the order of their bytes.
struct NestedPaths {
  /// Those that the last one begins with, and itself. All that begin with one of them come without a gap.
  private var open: [[UInt8]] = []

  /// Why the next path could not be made beside those before it; nil if it can.
  mutating func objection(to path: [UInt8]) -> String? {
    while let last = open.last, !path.starts(with: last) { open.removeLast() }
    let file = open.first { $0.count < path.count && path[$0.count] == UInt8(ascii: "/") }
    open.append(path)
    return file.map { "\"\(Text.printable($0))\" is a key, too, and would be both a file and a directory" }
  }
}
