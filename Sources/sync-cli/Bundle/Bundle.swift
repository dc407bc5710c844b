import Replication
import SyncStore

/// The parts of a bundle, redacted. Each is made by itself: what fails in one does not touch the others.
struct Bundle {
  /// A file of the archive.
  struct Part {
    let name: String
    let content: [UInt8]
    /// Why it could not be made; nil if it was.
    let failure: String?

    var line: String {
      "\(name)  \(Text.size(content.count))" + (failure.map { ": not made: \($0)" } ?? "")
    }

    var json: JSON {
      let line: JSON = ["part": .string(name), "bytes": .integer(content.count)]
      return line.with("failure", failure.map { .string($0) })
    }
  }

  private(set) var parts: [Part] = []
  private var redactor = Redactor()
  private let milliseconds = System.wallMilliseconds
  private var storeName = "store"

  /// Collects all parts.
  init(_ invocation: Invocation) throws {
    let path = try invocation.storePath()
    // A store with a damaged identity file gives a bundle, too.
    guard (try? Store.exists(at: path)) ?? true else {
      throw StoreError(.notAStore, "there is no store here: name the directory of one", path: path)
    }
    let time = Text.date(milliseconds: milliseconds)
    let lines = try invocation.integer("log-lines", in: 1...1_000_000) ?? 1000
    redactor.replace(path, by: "<store>")
    if let real = try? StoreInspection(at: path).path { redactor.replace(real, by: "<store>") }
    let opened = Result(catching: { try Self.open(invocation) })
    defer { try? opened.get().close() }
    if let store = try? opened.get() { learn(store) }
    redactor.replace(System.hostName, by: "this-host")
    if let home = System.environment("HOME") { redactor.replace(home, by: "<home>") }
    add("README.txt") { _ in Array(Self.readme(time).utf8) }
    add("machine.json") { _ in Self.lines(try Machine.report(of: path)) }
    add("files.json") { _ in try Self.files(path) }
    add("segments.json") { _ in try StoreInspection(at: path).segments().flatMap { Self.lines(Self.json($0)) }
    }
    add("index.json") { _ in Self.lines(Self.json(try StoreInspection(at: path).index())) }
    add("catalogue.json") { redactor in Self.lines(try Self.catalogue(path, redactor)) }
    addReports(opened)
    if let file = invocation.value("config") {
      add("configuration.json") { redactor in try Self.configuration(file, &redactor) }
    }
    if let file = invocation.value("log") {
      add("log.txt") { redactor in try Self.log(file, lines: lines, redactor) }
    }
  }

  /// Asks for the passphrase of an encrypted store on a terminal. Without one the parts that need the open
  /// store say so.
  private static func open(_ invocation: Invocation) throws -> Store {
    let opening = try invocation.opening(toWrite: false)
    return try Store.open(at: opening.path, configuration: opening.configuration)
  }

  /// Makes one part. A failure becomes its content.
  private mutating func add(_ name: String, _ body: (inout Redactor) throws -> [UInt8]) {
    do {
      parts.append(Part(name: name, content: try body(&redactor), failure: nil))
    } catch {
      let why = redactor.text(ToolWords.translated(Failure(error).message))
      parts.append(Part(name: name + ".failed", content: Array("\(why)\n".utf8), failure: why))
    }
  }

  // MARK: - Archive

  /// The name of a new file for it.
  var fileName: String {
    let name = storeName.unicodeScalars.map { $0.isASCII && $0.properties.isAlphabetic ? String($0) : "-" }
    let time = Text.date(milliseconds: milliseconds).filter { $0.isNumber || $0 == "T" }.prefix(15)
    return "sync-store-\(name.joined().prefix(40))-\(time)Z.tar.gz"
  }

  /// The archive, compressed.
  var archive: [UInt8] {
    var tar = TarWriter(time: milliseconds / 1000)
    for part in parts { tar.add("bundle/" + part.name, part.content) }
    tar.finish()
    return Compression.gzip(tar.bytes)
  }

  static func lines(_ json: JSON) -> [UInt8] { json.encoded + [0x0A] }

  // MARK: - Names

  /// Learns the names and addresses that the store knows, and the words that replace them.
  private mutating func learn(_ store: Store) {
    storeName = store.name
    let membership = Membership(store)
    let own = try? membership.own()
    let members = ((try? membership.members()) ?? []).filter { $0.device != own?.device }
    let peers = (try? membership.peers()) ?? []
    for (index, member) in members.enumerated() { redactor.replace(member.name, by: "member-\(index + 1)") }
    for (index, peer) in peers.enumerated() { redactor.replace(peer.name, by: "peer-\(index + 1)") }
    for (index, peer) in peers.enumerated() { learn(peer.addresses, by: "peer-\(index + 1)") }
    for (index, member) in members.enumerated() { learn(member.addresses, by: "member-\(index + 1)") }
    for name in [store.name, own?.name].compactMap(\.self) { redactor.replace(name, by: "this-copy") }
  }

  private mutating func learn(_ addresses: [String], by word: String) {
    for address in addresses {
      redactor.replace(address, by: word)
      if let host = Endpoint(address)?.host { redactor.replace(host, by: word) }
    }
  }

  // MARK: - Parts of the open store

  private mutating func addReports(_ opened: Result<Store, any Error>) {
    add("status.json") { redactor in Self.lines(redactor.json(try StatusCommand.json(of: opened.get()))) }
    add("problems.json") { redactor in
      try StatusCheck(opened.get(), maximumLag: nil).problems.flatMap {
        Self.lines(["name": .string($0.name), "text": .string(redactor.text($0.text))])
      }
    }
    add("peers.json") { redactor in
      try MemberCommands.lines(opened.get()).flatMap { Self.lines(redactor.json($0.json)) }
    }
    add("conflicts.json") { _ in
      let store = try opened.get()
      return Self.lines([
        "kept": .integer(try store.status().conflicts), "unsent": .integer(try Self.unsent(store)),
        "open_invitations": .integer(try Membership(store).invitations().count),
      ])
    }
  }

  private static let countedWrites = 10_000

  /// Keys with a write that no other member has confirmed, at most 10,000.
  private static func unsent(_ store: Store) throws -> Int {
    try store.ownWrites(after: OtherCopies(store).acknowledged, limit: countedWrites).count
  }
}
