import CLevelDB
import Foundation

/// LevelDB with a Bloom filter of 10 bits per key, a cache and write buffer larger than its defaults, and no
/// compression (the values are incompressible). Durable: `sync` on each write.
@safe
final class LevelDBPeer: KeyValuePeer, @unchecked Sendable {
  static let title = "leveldb"
  static let share = 2
  static func name(_ key: InlineKey) -> InlineKey { key }
  static func names(of corpus: Corpus) -> Names<InlineKey> { corpus.inline }

  private let database: OpaquePointer
  private let options = unsafe leveldb_options_create()
  private let writing = unsafe leveldb_writeoptions_create()
  private let filter = unsafe leveldb_filterpolicy_create_bloom(10)
  private let cache = unsafe leveldb_cache_create_lru(256 << 20)

  init(at folder: String, _ settings: PeerSettings) throws {
    unsafe leveldb_options_set_create_if_missing(options, 1)
    unsafe leveldb_options_set_compression(options, Int32(leveldb_no_compression))
    unsafe leveldb_options_set_filter_policy(options, filter)
    unsafe leveldb_options_set_cache(options, cache)
    unsafe leveldb_options_set_write_buffer_size(options, 16 << 20)
    unsafe leveldb_writeoptions_set_sync(writing, settings.isDurable ? 1 : 0)
    var message: UnsafeMutablePointer<CChar>?
    let opened = unsafe leveldb_open(options, folder, &message)
    try unsafe LevelDBPeer.check(message)
    guard let opened = unsafe opened else { throw BenchmarkError("LevelDB did not open \(folder)") }
    unsafe database = opened
  }

  func put(_ name: InlineKey, _ value: [UInt8]) throws {
    var message: UnsafeMutablePointer<CChar>?
    unsafe withCharacters(of: name) { key, keyCount in
      unsafe withCharacters(of: value) { bytes, count in
        unsafe leveldb_put(database, writing, key, keyCount, bytes, count, &message)
      }
    }
    try unsafe Self.check(message)
  }

  func put(_ names: ArraySlice<InlineKey>, _ value: [UInt8]) throws {
    let batch = unsafe leveldb_writebatch_create()
    defer { unsafe leveldb_writebatch_destroy(batch) }
    for name in names {
      unsafe withCharacters(of: name) { key, keyCount in
        unsafe withCharacters(of: value) { bytes, count in
          unsafe leveldb_writebatch_put(batch, key, keyCount, bytes, count)
        }
      }
    }
    var message: UnsafeMutablePointer<CChar>?
    unsafe leveldb_write(database, writing, batch, &message)
    try unsafe Self.check(message)
  }

  func delete(_ name: InlineKey) throws {
    var message: UnsafeMutablePointer<CChar>?
    unsafe withCharacters(of: name) { key, count in
      unsafe leveldb_delete(database, writing, key, count, &message)
    }
    try unsafe Self.check(message)
  }

  func makeReader() throws -> LevelDBReader { unsafe LevelDBReader(database) }

  /// There is no such call: a durable write includes all earlier ones.
  func sync() throws {
    let durable = unsafe leveldb_writeoptions_create()
    defer { unsafe leveldb_writeoptions_destroy(durable) }
    unsafe leveldb_writeoptions_set_sync(durable, 1)
    let batch = unsafe leveldb_writebatch_create()
    defer { unsafe leveldb_writebatch_destroy(batch) }
    var message: UnsafeMutablePointer<CChar>?
    unsafe leveldb_write(database, durable, batch, &message)
    try unsafe Self.check(message)
  }

  func close() throws {
    unsafe leveldb_close(database)
    unsafe leveldb_options_destroy(options)
    unsafe leveldb_writeoptions_destroy(writing)
    unsafe leveldb_filterpolicy_destroy(filter)
    unsafe leveldb_cache_destroy(cache)
  }

  fileprivate static func check(_ message: UnsafeMutablePointer<CChar>?) throws {
    guard let message = unsafe message else { return }
    defer { unsafe leveldb_free(message) }
    throw BenchmarkError("LevelDB failed: \(unsafe String(cString: message))")
  }
}

/// Reads of LevelDB; its interface in C always copies.
@safe
final class LevelDBReader: KeyReader {
  static let readsInPlace = false

  private let database: OpaquePointer
  private let reading = unsafe leveldb_readoptions_create()

  init(_ database: OpaquePointer) { unsafe self.database = database }

  func copy(_ name: InlineKey) throws -> [UInt8]? {
    try unsafe get(name) { bytes, count in unsafe copied(bytes, count)
    }
  }

  func touch(_ name: InlineKey) throws -> Int? {
    try unsafe get(name) { bytes, count in unsafe count &+ Int(UInt8(bitPattern: bytes.pointee)) }
  }

  func scan() throws -> (count: Int, sum: Int) {
    let iterator = unsafe leveldb_create_iterator(database, reading)
    defer { unsafe leveldb_iter_destroy(iterator) }
    var (count, sum, length) = (0, 0, 0)
    unsafe leveldb_iter_seek_to_first(iterator)
    while unsafe leveldb_iter_valid(iterator) != 0 {
      guard let key = unsafe leveldb_iter_key(iterator, &length) else { break }
      sum &+= Int(UInt8(bitPattern: unsafe key.pointee))
      guard let value = unsafe leveldb_iter_value(iterator, &length) else { break }
      (count, sum) = (count &+ 1, sum &+ length &+ Int(UInt8(bitPattern: unsafe value.pointee)))
      unsafe leveldb_iter_next(iterator)
    }
    return (count, sum)
  }

  func finish() { unsafe leveldb_readoptions_destroy(reading) }

  @inline(__always)
  private func get<Result>(
    _ name: InlineKey, _ body: (UnsafeMutablePointer<CChar>, Int) -> Result
  ) throws -> Result? {
    var (message, count): (UnsafeMutablePointer<CChar>?, Int) = (nil, 0)
    let bytes = unsafe withCharacters(of: name) { key, keyCount in
      unsafe leveldb_get(database, reading, key, keyCount, &count, &message)
    }
    try unsafe LevelDBPeer.check(message)
    guard let bytes = unsafe bytes else { return nil }
    defer { unsafe leveldb_free(bytes) }
    return unsafe body(bytes, count)
  }
}
