import CRocksDB
import Foundation

/// RocksDB with a Bloom filter of 10 bits per key, a cache of 256 MiB, a write buffer of 16 MiB (with its
/// default of 64 MiB, gets would not reach a table) and no compression (the values are incompressible);
/// otherwise defaults. Durable: `sync` on each write.
@safe
final class RocksDBPeer: KeyValuePeer, @unchecked Sendable {
  static let title = "rocksdb"
  static let share = 2
  static func name(_ key: InlineKey) -> InlineKey { key }
  static func names(of corpus: Corpus) -> Names<InlineKey> { corpus.inline }

  private let database: OpaquePointer
  private let options = unsafe rocksdb_options_create()
  private let tables = unsafe rocksdb_block_based_options_create()
  private let writing = unsafe rocksdb_writeoptions_create()
  private let cache = unsafe rocksdb_cache_create_lru(256 << 20)

  init(at folder: String, _ settings: PeerSettings) throws {
    unsafe rocksdb_options_set_create_if_missing(options, 1)
    unsafe rocksdb_options_set_write_buffer_size(options, 16 << 20)
    unsafe rocksdb_options_set_compression(options, Int32(rocksdb_no_compression))
    // The tables take ownership of the filter.
    unsafe rocksdb_block_based_options_set_filter_policy(tables, rocksdb_filterpolicy_create_bloom(10))
    unsafe rocksdb_block_based_options_set_block_cache(tables, cache)
    unsafe rocksdb_options_set_block_based_table_factory(options, tables)
    unsafe rocksdb_writeoptions_set_sync(writing, settings.isDurable ? 1 : 0)
    var message: UnsafeMutablePointer<CChar>?
    let opened = unsafe rocksdb_open(options, folder, &message)
    try unsafe RocksDBPeer.check(message)
    guard let opened = unsafe opened else { throw BenchmarkError("RocksDB did not open \(folder)") }
    unsafe database = opened
  }

  func put(_ name: InlineKey, _ value: [UInt8]) throws {
    var message: UnsafeMutablePointer<CChar>?
    unsafe withCharacters(of: name) { key, keyCount in
      unsafe withCharacters(of: value) { bytes, count in
        unsafe rocksdb_put(database, writing, key, keyCount, bytes, count, &message)
      }
    }
    try unsafe Self.check(message)
  }

  func put(_ names: ArraySlice<InlineKey>, _ value: [UInt8]) throws {
    let batch = unsafe rocksdb_writebatch_create()
    defer { unsafe rocksdb_writebatch_destroy(batch) }
    for name in names {
      unsafe withCharacters(of: name) { key, keyCount in
        unsafe withCharacters(of: value) { bytes, count in
          unsafe rocksdb_writebatch_put(batch, key, keyCount, bytes, count)
        }
      }
    }
    var message: UnsafeMutablePointer<CChar>?
    unsafe rocksdb_write(database, writing, batch, &message)
    try unsafe Self.check(message)
  }

  func delete(_ name: InlineKey) throws {
    var message: UnsafeMutablePointer<CChar>?
    unsafe withCharacters(of: name) { key, count in
      unsafe rocksdb_delete(database, writing, key, count, &message)
    }
    try unsafe Self.check(message)
  }

  func makeReader() throws -> RocksDBReader { unsafe RocksDBReader(database) }

  func sync() throws {
    var message: UnsafeMutablePointer<CChar>?
    unsafe rocksdb_flush_wal(database, 1, &message)
    try unsafe Self.check(message)
  }

  func close() throws {
    unsafe rocksdb_close(database)
    unsafe rocksdb_writeoptions_destroy(writing)
    unsafe rocksdb_options_destroy(options)
    unsafe rocksdb_block_based_options_destroy(tables)
    unsafe rocksdb_cache_destroy(cache)
  }

  fileprivate static func check(_ message: UnsafeMutablePointer<CChar>?) throws {
    guard let message = unsafe message else { return }
    defer { unsafe rocksdb_free(message) }
    throw BenchmarkError("RocksDB failed: \(unsafe String(cString: message))")
  }
}

/// Reads of RocksDB, in pinned slices: the value stays in the cache and is not copied.
@safe
final class RocksDBReader: KeyReader {
  static let readsInPlace = true

  private let database: OpaquePointer
  private let reading = unsafe rocksdb_readoptions_create()

  init(_ database: OpaquePointer) { unsafe self.database = database }

  func copy(_ name: InlineKey) throws -> [UInt8]? {
    try unsafe get(name) { bytes, count in unsafe copied(bytes, count)
    }
  }

  func touch(_ name: InlineKey) throws -> Int? {
    try unsafe get(name) { bytes, count in unsafe count &+ Int(UInt8(bitPattern: bytes.pointee)) }
  }

  func scan() throws -> (count: Int, sum: Int) {
    let iterator = unsafe rocksdb_create_iterator(database, reading)
    defer { unsafe rocksdb_iter_destroy(iterator) }
    var (count, sum, length) = (0, 0, 0)
    unsafe rocksdb_iter_seek_to_first(iterator)
    while unsafe rocksdb_iter_valid(iterator) != 0 {
      guard let key = unsafe rocksdb_iter_key(iterator, &length) else { break }
      sum &+= Int(UInt8(bitPattern: unsafe key.pointee))
      guard let value = unsafe rocksdb_iter_value(iterator, &length) else { break }
      (count, sum) = (count &+ 1, sum &+ length &+ Int(UInt8(bitPattern: unsafe value.pointee)))
      unsafe rocksdb_iter_next(iterator)
    }
    return (count, sum)
  }

  func finish() { unsafe rocksdb_readoptions_destroy(reading) }

  @inline(__always)
  private func get<Result>(
    _ name: InlineKey, _ body: (UnsafePointer<CChar>, Int) -> Result
  ) throws -> Result? {
    var (message, count): (UnsafeMutablePointer<CChar>?, Int) = (nil, 0)
    let slice = unsafe withCharacters(of: name) { key, keyCount in
      unsafe rocksdb_get_pinned(database, reading, key, keyCount, &message)
    }
    try unsafe RocksDBPeer.check(message)
    guard let slice = unsafe slice else { return nil }
    defer { unsafe rocksdb_pinnableslice_destroy(slice) }
    guard let bytes = unsafe rocksdb_pinnableslice_value(slice, &count) else { return nil }
    return unsafe body(bytes, count)
  }
}
