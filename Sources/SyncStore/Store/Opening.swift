/// One process enters a store's directory.
///
/// Who is alone makes the control page anew and reads the journal as a crash may have left it; who is not believes the
/// page. The first who opens for writing puts right what recovery found.
struct Opening {
  private let path: String
  private let identity: StoreIdentity
  private let configuration: Configuration
  private let environment: Environment
  private let seal: JournalSeal
  private var writable: Bool { configuration.mode != .readOnly }
  private var storage: any Storage { environment.storage }

  init(
    _ path: String, _ identity: StoreIdentity, _ configuration: Configuration, _ environment: Environment,
    _ seal: JournalSeal
  ) {
    (self.path, self.identity, self.seal) = (path, identity, seal)
    (self.configuration, self.environment) = (configuration, environment)
  }

  func run() throws(StoreError) -> Store {
    let file: any StorageFile
    let page: Mapping
    do {
      file = try storage.open(path + "/" + StoreLayout.control, .openOrCreate)
      if try file.status().size < ControlPage.length { try file.allocate(to: ControlPage.length) }
      page = try file.map(ControlPage.length, writable: true)
    } catch {
      // A medium that takes no writes: nobody else can write either, so nothing need be shared.
      guard !writable, error.code == .readOnly else { throw error }
      return try detached()
    }
    guard try file.lock(byte: StoreLayout.entranceByte, .exclusive, wait: true) else { throw busy }
    defer { _ = try? file.lock(byte: StoreLayout.entranceByte, .none, wait: false) }
    let control = ControlPage(mapping: page)
    if try file.lock(byte: StoreLayout.presenceByte, .exclusive, wait: false) {
      let store = try enterAlone(file, control)
      if configuration.mode != .exclusive {
        guard try file.lock(byte: StoreLayout.presenceByte, .shared, wait: false) else { throw busy }
      }
      return store
    }
    guard configuration.mode != .exclusive,
      try file.lock(byte: StoreLayout.presenceByte, .shared, wait: false)
    else { throw busy }
    return try enterBesideOthers(file, control)
  }

  private var busy: StoreError {
    StoreError(
      .busy, "another process has the store open: stop it, or open both in shared mode", path: path)
  }

  private func journal() -> Journal {
    Journal(
      directory: path + "/" + StoreLayout.journal, environment: environment, store: identity.id,
      writable: writable,
      largestSegment: configuration.segmentBytes, seal: seal)
  }

  private func store(_ file: any StorageFile, _ control: ControlPage, _ engine: consuming sending Engine)
    -> Store
  {
    Store(
      path: path, identity: identity, configuration: configuration, environment: environment,
      control: control,
      controlFile: file, engine: engine)
  }

  private func enterBesideOthers(_ file: any StorageFile, _ control: ControlPage) throws(StoreError) -> Store
  {
    // First: what is compacted from now on is noticed at the next look.
    let compactions = control.compactions
    var journal = try loadedBesideOthers()
    // Others may have begun segments since they were listed; those behind the tail may yet be cut off by who recovers.
    let tail = Location(packed: control.tail)
    if let place = journal.place(of: tail.segment) { journal.drop(behind: place) }
    try journal.extend(to: tail.segment)
    var engine = Engine(environment: environment, journal: journal, compactions: compactions)
    engine.absorb(upTo: tail)
    let store = store(file, control, engine)
    if writable, !control.recovered { try store.recover(lastLife: nil, identity: identity, finding: nil) }
    return store
  }

  private static let attempts = 5

  /// Maps the segments, again if compaction removed one between the listing and the opening.
  private func loadedBesideOthers() throws(StoreError) -> Journal {
    var failure: StoreError?
    for _ in 0..<Self.attempts {
      var journal = journal()
      do throws(StoreError) {
        _ = try journal.load()
        return journal
      } catch {
        guard error.code == .inputOutput || error.code == .damaged else { throw error }
        failure = error
      }
    }
    throw failure ?? busy
  }

  private func enterAlone(_ file: any StorageFile, _ control: ControlPage) throws(StoreError) -> Store {
    let boot = XXH3.hash64(Array("boot \(environment.boot)".utf8), seed: 0)
    let last = control.begin(boot: boot)
    let (store, finding) = try read(file, control, last)
    if writable { try store.recover(lastLife: last, identity: identity, finding: finding) }
    return store
  }

  private func detached() throws(StoreError) -> Store {
    let control = ControlPage(mapping: .anonymous(ControlPage.length))
    _ = control.begin(boot: 0)
    let identityFile = try storage.open(path + "/" + StoreIdentity.fileName, .readOnly)
    return try read(identityFile, control, nil).0
  }

  /// Reads the journal up to where its valid part ends. Writes nothing but the control page.
  private func read(
    _ file: any StorageFile, _ control: ControlPage, _ last: ControlPage.LastLife?
  ) throws(StoreError) -> (Store, Finding) {
    var journal = journal()
    let blank = try journal.load()
    let scans = journal.scan()
    guard let plan = journal.plan(scans, atWatermark: false) else {
      throw StoreError(.damaged, "the journal has no segment: restore the store from a backup", path: path)
    }
    let tail = Location(segment: journal.segments[plan.tailIndex].number, offset: plan.tailOffset)
    let durable = Location(segment: journal.segments[plan.durableIndex].number, offset: plan.durableOffset)
    let whole = zip(journal.segments, scans).filter { $0.1.gaps.isEmpty }.map(\.0.number)
    journal.drop(behind: plan.tailIndex)
    var engine = Engine(environment: environment, journal: journal, compactions: control.compactions)
    engine.absorb(upTo: tail, seen: Set(whole))
    control.tail = tail.packed
    control.position = engine.position
    control.resetDurable(to: max(durable.packed, min(last?.durable ?? 0, tail.packed)))
    let finding = Finding(
      tail: tail, endsEmpty: plan.tailIndex > 0 && plan.tailOffset == SegmentHeader.length,
      isInOrder: !plan.cuts && blank == nil)
    return (store(file, control, engine), finding)
  }

  /// What was found when the journal was read.
  struct Finding {
    /// Where its valid part ends.
    var tail: Location
    /// Is the last segment empty?
    var endsEmpty: Bool
    /// Is there nothing to be cut off?
    var isInOrder: Bool
  }
}
