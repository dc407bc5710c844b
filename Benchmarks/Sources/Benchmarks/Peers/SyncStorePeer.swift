import Foundation
import SyncStore

/// The store itself, through its public interface only.
final class SyncStorePeer: KeyValuePeer {
  static let title = "syncstore"
  static let share = 1
  static func name(_ key: InlineKey) throws -> Key { try Corpus.key(key) }
  static func names(of corpus: Corpus) throws -> Names<Key> { try corpus.keys() }

  let store: Store

  init(at folder: String, _ settings: PeerSettings) throws {
    var configuration = Configuration(durability: settings.isDurable ? .full : .relaxed)
    if settings.isEncrypted { configuration.passphrase = Passphrase("benchmark") }
    if let bytes = settings.segmentBytes { configuration.segmentBytes = bytes }
    store =
      FileManager.default.fileExists(atPath: folder)
      ? try Store.open(at: folder, configuration: configuration)
      : try Store.create(at: folder, configuration: configuration)
  }

  func put(_ name: Key, _ value: [UInt8]) throws { try store.put(name, value) }

  func delete(_ name: Key) throws { try store.delete(name) }

  func put(_ names: ArraySlice<Key>, _ value: [UInt8]) throws {
    try store.transaction { transaction in
      for name in names { try transaction.put(name, value) }
    }
  }

  func makeReader() throws -> StoreReader { StoreReader(store) }

  func sync() throws { try store.sync() }

  func close() throws { try store.close() }
}

/// Reads of the store need no transaction.
final class StoreReader: KeyReader {
  static let readsInPlace = true

  private let store: Store

  init(_ store: Store) { self.store = store }

  func copy(_ name: Key) throws -> [UInt8]? { try store.get(name)?.bytes }

  func touch(_ name: Key) throws -> Int? {
    try store.withValue(name) { bytes in
      bytes.byteCount &+ (bytes.isEmpty ? 0 : Int(unsafe bytes.unsafeLoad(as: UInt8.self)))
    }
  }

  func scan() throws -> (count: Int, sum: Int) {
    var (count, sum) = (0, 0)
    try store.scan { key, value in
      (count, sum) = (count &+ 1, sum &+ Self.touch(key) &+ Self.touch(value))
    }
    return (count, sum)
  }

  /// As for the other engines: the length and the first byte.
  @inline(__always)
  private static func touch(_ bytes: RawSpan) -> Int {
    bytes.isEmpty ? 0 : bytes.byteCount &+ Int(unsafe bytes.unsafeLoad(fromByteOffset: 0, as: UInt8.self))
  }

  func finish() {}
}
