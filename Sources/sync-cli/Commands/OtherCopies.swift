import Replication
import SyncStore

/// The members of this store besides this copy, by what they have told of themselves.
struct OtherCopies {
  /// One of them, that is not revoked.
  struct Copy {
    let name: String
    let right: Member.Right
    let device: DeviceID
    /// What its last session told; nil if it was never met.
    let contact: Contact?
  }

  /// No more writes than so many are counted for a member: more take time, and say no more to people.
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

  /// Up to this position of the journal some member has acknowledged all.
  var acknowledged: UInt64 { members.compactMap(\.contact?.received).max() ?? 0 }

  /// Members that have not acknowledged a write to this copy, and have not made it themselves.
  func lacking(_ entry: LogEntry) -> [String] {
    members.filter { member in
      guard let contact = member.contact else { return true }
      return contact.received < entry.position && contact.actor != entry.dot.actor
    }.map(\.name)
  }

  // MARK: - For `status`

  /// A line for each: what it lacks, by how much its clock differs, until where it has acknowledged, when it was met.
  static func lines(_ store: Store) throws -> [String] {
    let members = try OtherCopies(store).members
    let hasMetAny = members.contains { $0.contact != nil }
    return try members.map { member in
      let (lacking, oldest) = try lacking(member, store)
      let count =
        lacking > countedWrites ? "more than \(countedWrites) keys" : Text.count(lacking, noun: "key")
      var words = [lacking == 0 ? "lacks nothing that is here" : "not known to have \(count)"]
      guard let contact = member.contact else {
        // One that meets others, as this copy does, is no reason for alarm: they pass on what is here.
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

  /// The same for programs.
  static func json(_ store: Store) throws -> JSON {
    .array(
      try OtherCopies(store).members.map { member in
        let (lacking, oldest) = try lacking(member, store)
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

  private static func lacking(_ member: Copy, _ store: Store) throws -> (count: Int, oldest: UInt64?) {
    try store.unknown(
      to: member.contact?.actor, behind: member.contact?.received ?? 0, limit: countedWrites + 1)
  }
}
