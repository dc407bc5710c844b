import SyncStore

/// How a store is opened for a workload.
struct PeerSettings: Sendable {
  /// Each put is on disk when it returns; otherwise the kernel decides, and only a loss of power can take it away.
  var isDurable = false
  /// What it stores is encrypted; engines that cannot do so store it as it is.
  var isEncrypted = false
  /// Keys that it must have room for.
  var capacity: Int
  /// Bytes of the store's journal segments, where they are not its default.
  var segmentBytes: Int?
}

/// An engine under test: SyncStore itself and those it is compared with, all behind the same calls.
///
/// The loops that are timed are default implementations in `Passes.swift`. They are requirements, too, so that the witness
/// of each concrete engine holds its own specialised loop: one dynamic call for each pass, none within it.
protocol KeyValuePeer: AnyObject, Sendable {
  /// A key in the form that the engine takes.
  associatedtype Name: Sendable
  associatedtype Reader: KeyReader where Reader.Name == Name

  /// Its name in the table, in `PEERS` and in the results.
  static var title: String { get }
  /// It gets one of so many keys: 1 for all, more for those that would need minutes.
  static var share: Int { get }
  /// Can several threads put at once?
  static var takesManyWriters: Bool { get }
  /// The key in its own form.
  static func name(_ key: InlineKey) throws -> Name
  /// The keys of the run in its own form.
  static func names(of corpus: Corpus) throws -> Names<Name>

  /// Opens the store in that folder, or makes it there.
  init(at folder: String, _ settings: PeerSettings) throws
  func put(_ name: Name, _ value: [UInt8]) throws
  func delete(_ name: Name) throws
  /// Puts the same value under many keys, all or none.
  func put(_ names: ArraySlice<Name>, _ value: [UInt8]) throws
  /// What one thread reads with. It sees what was put before it was made; what comes later only if the engine wants so.
  func makeReader() throws -> Reader
  /// Everything is on disk when it returns.
  func sync() throws
  /// Readers are finished before.
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

  /// Makes the keys before anything is timed.
  static func prepare(_ corpus: Corpus) throws { _ = try names(of: corpus) }
}

/// How one thread reads.
protocol KeyReader: AnyObject {
  associatedtype Name: Sendable

  /// The value's bytes in an array of their own.
  func copy(_ name: Name) throws -> [UInt8]?
  /// The value's first byte plus its length, read where it lies; nil if there is none. Engines that always copy do so.
  func touch(_ name: Name) throws -> Int?
  /// False if the public interface has no way to read in place: then `touch` is not timed.
  static var readsInPlace: Bool { get }
  /// Goes through all in the order of the keys: how many there are, and a sum that depends on each of them.
  func scan() throws -> (count: Int, sum: Int)
  /// Ends its transaction or snapshot.
  func finish()
}
