import Replication
import SyncStore

/// The other members of this store, by what they last reported.
struct OtherCopies {
  /// A member that is not revoked.
  struct Copy {
    let name: String
    let right: Member.Right
    let device: DeviceID
    /// The report of its last session; nil if there was none.
    let contact: Contact?
  }

  /// Writes are counted for a member only up to this number: more would take time without helping the reader.
  static let countedWrites = 10_000

  let members: [Copy]
  private var byActor: [ActorID: String] = [:]

  init(_ store: Store) throws {
    let own = try? StoreKeys(store).identity().id
    let contacts = Contacts(store)
    let all = try Membership(store).members()
    members = try all.filter { $0.device != own && $0.right != .revoked }.map {
      Copy(name: $0.name, right: $0.right, device: $0.device, contact: try contacts.contact($0.device))
    }
    for member in members { if let contact = member.contact { byActor[contact.actor] = member.name } }
    if let name = all.first(where: { $0.device == own })?.name { byActor[try store.actor] = name }
  }

  func name(of actor: ActorID) -> String? { byActor[actor] }

  /// The position of the journal up to which some member has acknowledged everything.
  var acknowledged: UInt64 { members.compactMap(\.contact?.received).max() ?? 0 }

  /// Members that have neither acknowledged a write to this copy nor made it themselves.
  func lacking(_ entry: LogEntry) -> [String] {
    members.filter { member in
      guard let contact = member.contact else { return true }
      return contact.received < entry.position && contact.actor != entry.dot.actor
    }.map(\.name)
  }

  // MARK: - Output of `status`

  /// A line per member: missing writes, clock difference, acknowledged position, last session.
  static func lines(_ store: Store) throws -> [String] {
    let members = try OtherCopies(store).members
    let hasMetAny = members.contains { $0.contact != nil }
    return try members.map { member in
      let unknown = try unknown(to: member, store)
      let (lacking, oldest) = (unknown.count, unknown.oldest)
      let count =
        lacking > countedWrites ? "more than \(countedWrites) keys" : Text.count(lacking, noun: "key")
      var words = [lacking == 0 ? "lacks nothing that is here" : "not known to have \(count)"]
      guard let contact = member.contact else {
        // A member that syncs with others, as this copy does, is no cause for alarm: they pass on the writes
        // of this copy.
        if hasMetAny, lacking > 0 { words = ["met only through others"] } else { words.append("not met yet") }
        return "member     \(Text.printable(member.name.utf8)): " + words.joined(separator: ", ")
      }
      words.append("clock \(contact.clockOffset < 0 ? "" : "+")\(contact.clockOffset) ms")
      words.append(contact.received == 0 ? "no receipt yet" : "receipt up to position \(contact.received)")
      words.append("met \(Text.date(milliseconds: contact.time))")
      if let oldest { words.append("the oldest that it lacks is of \(Text.date(milliseconds: oldest))") }
      return "member     \(Text.printable(member.name.utf8)): " + words.joined(separator: ", ")
    }
  }

  /// Members whose clock is too far away to sync, that were never met, or are late.
  func problems(_ store: Store, maximumLag: UInt64?) throws -> [StatusCheck.Problem] {
    let now = System.wallMilliseconds
    let hasMetAny = members.contains { $0.contact != nil }
    var problems: [StatusCheck.Problem] = []
    for member in members {
      let name = Text.printable(member.name.utf8)
      guard let contact = member.contact else {
        if !hasMetAny { problems.append(.init(name: "never-met", text: "\(name) was not met yet")) }
        continue
      }
      if contact.clockOffset.magnitude > Limits.clockDriftMilliseconds {
        problems.append(
          .init(
            name: "clock", text: "that of \(name) differs by \(contact.clockOffset) ms: copies do not sync so"
          ))
      }
      let unknown = try Self.unknown(to: member, store)
      guard let maximumLag, let oldest = unknown.oldest, oldest < now, now - oldest > maximumLag else {
        continue
      }
      let late = Text.duration(seconds: Double(now - oldest) / 1000)
      problems.append(
        .init(
          name: "lag",
          text:
            "\(name) lacks \(Text.count(min(unknown.count, Self.countedWrites), noun: "key")) for up to \(late), and was met "
            + Text.date(milliseconds: contact.time)))
    }
    return problems
  }

  /// The members as JSON.
  static func json(_ store: Store) throws -> JSON {
    .array(
      try OtherCopies(store).members.map { member in
        let unknown = try unknown(to: member, store)
        let (lacking, oldest) = (unknown.count, unknown.oldest)
        let json: JSON = [
          "name": .string(member.name), "device": .string("\(member.device)"),
          "right": .string("\(member.right)"),
          "lacking": .integer(min(lacking, countedWrites)),
          "lacking_is_bounded": .bool(lacking > countedWrites), "met": .bool(member.contact != nil),
        ]
        return json.with("received_position", member.contact.map { .integer($0.received) })
          .with("offset_ms", member.contact.map { .integer($0.clockOffset) })
          .with("oldest_lacking_ms", oldest.map { .integer($0) }).with(
            "met_ms", member.contact.map { .integer($0.time) })
      })
  }

  /// The writes that a member is not known to have, counted up to `countedWrites`, and one more.
  static func unknown(to member: Copy, _ store: Store) throws -> UnknownWrites {
    try store.unknown(
      to: member.contact?.actor, after: member.contact?.received ?? 0, limit: countedWrites + 1)
  }
}
