import Foundation
import SyncStore

/// A run: several rounds in which all engines take turns at each workload, each time another one first, so
/// that other activity of the machine affects all of them. The median of the rounds counts.
final class Bench {
  /// Nanoseconds that the rounds may take: a run with a million keys stays below ten minutes.
  private static let budget: UInt64 = 360_000_000_000

  let options: Options
  let report = Report()
  /// The store first.
  let contestants: [Contestant]
  /// See `bytesPerRecord()`.
  var knownBytesPerRecord: Double?
  private let manager = FileManager.default

  init(_ options: Options) {
    self.options = options
    var corpora: [Int: Corpus] = [:]
    contestants = ([SyncStorePeer.self] + options.peers).map { (type: any KeyValuePeer.Type) in
      let corpus = corpora[type.share] ?? Corpus(count: options.keys / type.share)
      corpora[type.share] = corpus
      return Contestant(type: type, corpus: corpus)
    }
  }

  func run() throws {
    defer { try? manager.removeItem(atPath: options.data) }
    try? manager.removeItem(atPath: options.data)
    try manager.createDirectory(atPath: options.data, withIntermediateDirectories: true)
    note("\(options.keys) keys of 16 bytes, values of \(Payload.count) bytes, \(options.rounds) rounds")
    for contestant in contestants where contestant.type.share > 1 {
      note(
        "\(contestant.title) gets one key of \(contestant.type.share): its figures are for a smaller store")
    }
    for contestant in contestants { try contestant.type.prepare(contestant.corpus) }
    let start = Machine.now()
    var longest: UInt64 = 0
    for round in 0..<options.rounds {
      let begin = Machine.now()
      guard begin - start + longest <= Self.budget else {
        note("\(round) rounds are all that there is time for")
        break
      }
      let order = (0..<contestants.count).map { contestants[($0 + round) % contestants.count] }
      try fillAndRead(order)
      if options.wants("transaction") { try transactions(order) }
      if options.wants("encrypted") { try encryptedStore(oursFirst: round.isMultiple(of: 2)) }
      if options.wants("typed") { try typedValues() }
      if options.wants("caches") { try caches() }
      if options.wants("durable-put") { try durablePuts(order, oursFirst: round.isMultiple(of: 2)) }
      longest = max(longest, Machine.now() - begin)
      note("round \(round + 1) of \(options.rounds) done after \((Machine.now() - start) / 1_000_000_000) s")
    }
    if options.wants("sync") { try synchronization() }
    if options.wants("sync-large") { try synchronizationOfLargeValues() }
    if options.wants("relay") { try relays() }
    if options.wants("relay-large") { try relayOfLargeValue() }
    if options.wants("scan") { try buildViewOfSharedPrefixes() }
    if options.wants("open") { try open(options.keys, suffix: "") }
    if options.wants("open"), options.tenMillion { try open(10_000_000, suffix: "-10m") }
    if options.wants("put-latency") { try putLatency(options.keys, suffix: "") }
    if options.wants("put-latency"), options.tenMillion { try putLatency(10_000_000, suffix: "-10m") }
    if options.wants("memory") { try sizes() }
    if options.wants("blobs") { try blobs() }
    if options.wants("cache-trim") { try trimCache() }
    if options.wants("tier") { try trimTier() }
    if options.wants("threshold") { try threshold() }
    FileHandle.standardOutput.write(Data("\(report.table)\n".utf8))
    try manager.createDirectory(atPath: options.results, withIntermediateDirectories: true)
    let file = "\(options.results)/\(options.name).jsonl"
    try Data(report.lines.utf8).write(to: URL(fileURLWithPath: file))
    note("results are in \(file)")
    try draw()
  }

  /// Draws the headline figures, if the run has any.
  private func draw() throws {
    let caption =
      "median of \(options.rounds) rounds, \(options.keys) keys of 16 bytes, values of \(Payload.count) bytes, "
      + "one thread; \(Machine.processor)"
    guard let picture = report.plot(caption).svg else { return }
    let file = options.plot ?? "\(options.results)/\(options.name).svg"
    try Data(picture.utf8).write(to: URL(fileURLWithPath: file))
    note("their picture is in \(file)")
  }

  /// Says on standard error what is going on.
  func note(_ text: String) { FileHandle.standardError.write(Data("\(text)\n".utf8)) }

  /// A folder for an engine's store, which does not exist yet.
  func folder(_ title: String, _ purpose: String) throws -> String {
    let path = "\(options.data)/\(purpose)-\(title)"
    try? manager.removeItem(atPath: path)
    return path
  }

  /// Takes away what a workload has left.
  func remove(_ folder: String) { try? manager.removeItem(atPath: folder) }
}
