import SyncStore

/// The way a store is opened for a workload.
struct PeerSettings: Sendable {
  /// Each put is on disk when it returns; otherwise the kernel decides, and only a power loss can lose it.
  var isDurable = false
  /// Data is encrypted; engines without encryption ignore this.
  var isEncrypted = false
  /// Required capacity in keys.
  var capacity: Int
  /// Size of the store's journal segments, if not its default.
  var segmentBytes: Int?
}

/// An engine under test: SyncStore and the engines it is compared with, through the same calls.
///
/// The timed loops are default implementations in `Passes.swift`. They are also requirements, so that each
/// concrete engine's witness holds a specialised loop: one dynamic call per pass, none within it.
protocol KeyValuePeer: AnyObject, Sendable {
  /// A key in the engine's own form.
  associatedtype Name: Sendable
  associatedtype Reader: KeyReader where Reader.Name == Name

  /// Its name in the table, in `PEERS` and in the results.
  static var title: String { get }
  /// It gets 1/n of the keys: 1 for all, more for engines that would need minutes.
  static var share: Int { get }
  /// Whether several threads can put concurrently.
  static var takesManyWriters: Bool { get }
  /// A key in its own form.
  static func name(_ key: InlineKey) throws -> Name
  /// The keys of the run in its own form.
  static func names(of corpus: Corpus) throws -> Names<Name>

  /// Opens or creates the store in that folder.
  init(at folder: String, _ settings: PeerSettings) throws
  func put(_ name: Name, _ value: [UInt8]) throws
  func delete(_ name: Name) throws
  /// Puts the same value under many keys, atomically.
  func put(_ names: ArraySlice<Name>, _ value: [UInt8]) throws
  /// A reader for one thread. It sees earlier puts; later ones only if the engine provides that.
  func makeReader() throws -> Reader
  /// Everything is on disk when it returns.
  func sync() throws
  /// Readers are finished beforehand.
  func close() throws

  // The timed passes; see `Passes.swift`.
  func fill(_ corpus: Corpus) throws -> Double
  func overwrite(_ corpus: Corpus) throws -> Double
  func transactions(_ corpus: Corpus, each size: Int) throws -> Double
  func copyAll(_ corpus: Corpus) throws -> Double
  func touchAll(_ corpus: Corpus) throws -> Double?
  func missAll(_ corpus: Corpus) throws -> Double
  @discardableResult func scanAll(_ count: Int) throws -> Double
  func copyAll(_ corpus: Corpus, threads: Int, putsPerSecond: Int) throws -> Double
  func putAll(_ corpus: Corpus, threads: Int, each: Int) throws -> Double
  func firstGet(_ index: Int) throws
  func load(_ range: Range<Int>, _ pattern: KeyPattern, each size: Int) throws
  func load(_ range: Range<Int>, timedBy histogram: inout Histogram) throws
  func readAll(_ range: Range<Int>) throws
}

extension KeyValuePeer {
  static var takesManyWriters: Bool { true }

  /// Makes the keys before timing starts.
  static func prepare(_ corpus: Corpus) throws { _ = try names(of: corpus) }
}

/// One thread's reader.
protocol KeyReader: AnyObject {
  associatedtype Name: Sendable

  /// A copy of the value's bytes.
  func copy(_ name: Name) throws -> [UInt8]?
  /// The value's first byte plus its length, read in place; nil if absent. Engines that always copy do so.
  func touch(_ name: Name) throws -> Int?
  /// False if the public interface has no in-place read: then `touch` is not timed.
  static var readsInPlace: Bool { get }
  /// Scans all keys in order: returns their number, and a sum that depends on each value.
  func scan() throws -> (count: Int, sum: Int)
  /// Ends its transaction or snapshot.
  func finish()
}
