import Replication
import SyncStore

/// `invite` and `join`: adding members. `peer …`: their names on this copy.
enum MemberCommands {
  // MARK: - invite

  static let invite = Command(
    "invite", "print a token with which one other device can join",
    options: [
      Option("ttl", value: "SPAN", "how long it can be used (default: 10m; with --relay 1d)"),
      Option("read-only", "the new member may receive, not send"),
      Option(
        "address", value: "HOST:PORT", repeats: true,
        "where the daemon can be reached, at most 8 (default: where it listens now)"),
      Option(
        "relay", value: "NAME",
        "join through this relay: no member has to be online together with the new one"),
    ],
    notes: """
      The token is a secret: the first device to use it can join. It works while "sync-cli serve" runs on this store; without
      --address it must run already. With --relay, the new device leaves its request in the relay, and the first member that next
      pushes or syncs there, or whose daemon looks, answers it. At most \(Limits.invitations) invitations can be open at once, each for at most 30 days:
      "invite list" shows them, "invite revoke" withdraws one.
      """
  ) { invocation, output in
    let relay = invocation.value("relay")
    let milliseconds = try invocation.milliseconds("ttl") ?? (relay == nil ? 600_000 : 86_400_000)
    guard milliseconds <= longestInvitation else {
      throw invocation.usage("--ttl", reason: "it is longer than 30 days", advice: "give at most 30d")
    }
    let addresses = try (invocation.values["address"] ?? []).map { try endpoint($0, invocation) }
    guard relay == nil || addresses.isEmpty else {
      throw invocation.usage("--address", reason: "a relay is not dialled", advice: "give it or --relay")
    }
    let (lifetime, right) = (
      max(1, milliseconds / 1000), invocation.has("read-only") ? Member.Right.readOnly : .readWrite
    )
    let token = try invocation.withStore { store in
      guard let relay else {
        return try Node.invite(to: store, lifetime: lifetime, right: right, addresses: addresses)
      }
      let node = try Node(store: store, configuration: invocation.nodeConfiguration)
      return try blocking {
        try await node.invite(throughRelay: relay.text, lifetime: lifetime, right: right)
      }
    }
    if invocation.wantsJSON { try output.line(["token": .string(token)]) } else { try output.line(token) }
    return .done
  }.printing(JSONReference.invite)

  private static let longestInvitation: UInt64 = 30 * 86_400_000

  /// The name of a member or peer in an argument.
  static func name(_ argument: Argument, _ invocation: Invocation) throws -> String {
    guard StoreIdentity.isName(argument.text) else {
      throw invocation.usage(
        "\"\(argument.shown)\"", reason: "no name",
        advice: "use 1 to \(Limits.nameBytes) bytes without blanks or slashes")
    }
    return argument.text
  }

  /// The address in an argument; it must have a port.
  static func endpoint(_ argument: Argument, _ invocation: Invocation) throws -> Endpoint {
    guard let endpoint = Endpoint(argument.text), !endpoint.host.isEmpty, endpoint.port > 0 else {
      throw invocation.usage("\"\(argument.shown)\"", reason: "no address", advice: "write host:port")
    }
    return endpoint
  }

  // MARK: - join

  static let join = Command(
    "join", "become a member with a new copy here, then pull everything",
    operands: [Operand("TOKEN")],
    options: [
      Option("name", value: "NAME", "what this copy is called among the members (default: the host's name)"),
      Option("no-pull", "only join"),
      Option(
        "timeout", value: "SPAN",
        "how long to ask again an inviter that answers and is too busy, or to wait for an answer in a relay (default: 3m)"
      ),
      Option(
        "prefix", value: "P", repeats: true,
        "hold only keys that begin with P (\"pull --prefix\" adds more later)"),
      Option(
        "relay", value: "ADDR",
        "where the relay of the token is from here: dir:PATH or s3://BUCKET/PREFIX (default: where the inviter finds it)"
      ),
      Option("credentials-file", value: "F", "for a bucket: read the credentials from F at each use"),
      Option("ca-file", value: "F", "for a bucket: check the server with the certificates in F"),
    ],
    notes:
      """
      TOKEN is what "sync-cli invite" printed there, or "-" for standard input. The inviter is a peer from then on, or the relay.
      In a relay the request waits until a member answers it: if it takes longer than --timeout, run the same command again later.
      If the pull breaks, this copy is a member all the same: "sync-cli pull NAME", with the inviter's name, goes on.
      The copy is a plain one: "sync-cli rekey --encrypt" makes it an encrypted one.
      """
  ) { invocation, output in
    guard !invocation.has(Secrets.option.name) else {
      throw invocation.usage(
        "--\(Secrets.option.name)", reason: "the new copy is a plain one",
        advice: "leave it out, and use \"sync-cli rekey --encrypt\" afterwards")
    }
    let path = try invocation.storePath()
    let name = try invocation.value("name").map { try Self.name($0, invocation) } ?? InitCommand.defaultName
    let token = try token(invocation)
    let configuration = invocation.configuration(.shared)
    let scope = try SyncCommands.scope(invocation)
    let timeout = try (invocation.milliseconds("timeout") ?? 180_000) / 1000
    let access = relayAccess(invocation)
    try InitCommand.makeParent(of: path)
    // A copy that is half made is not abandoned: its store would stay open in the process of a shell.
    let joined = try blocking(until: StopRequest()) {
      try await Node.join(
        token, at: path, name: name, scope: scope, configuration: configuration, timeout: timeout,
        through: access)
    }
    let source = joined.relayName ?? joined.inviterName
    let figures =
      ([
        "path": .string(path), "store": .string("\(joined.store.id)"), "name": .string(joined.memberName),
        "inviter": .string(joined.inviterName), "right": .string("\(joined.right)"),
      ] as JSON).with("relay", joined.relayName.map { .string($0) })
    if !invocation.wantsJSON, !invocation.isQuiet {
      try output.line("joined \(joined.inviterName) as \(joined.memberName) in \(path)")
      // Print the result even if the pull fails: the token is used up.
      try output.flush()
    }
    var report: SessionReport?
    if !invocation.has("no-pull") {
      do {
        report = try SyncCommands.run(invocation, joined.store, with: source, .pull)
      } catch {
        if invocation.wantsJSON { try output.line(figures) }
        try? joined.store.close()
        throw notPulled(from: source, Failure(error))
      }
    }
    if invocation.wantsJSON { try output.line(figures.with("pull", report.map { SyncCommands.json($0) })) }
    if let report, !invocation.wantsJSON, !invocation.isQuiet { try output.line(SyncCommands.text(report)) }
    try joined.store.close()
    return .done
  }.printing(JSONReference.join)

  private static func notPulled(from inviter: String, _ failure: Failure) -> Failure {
    Failure(
      failure.code,
      "join: joined, but the pull broke: \(failure.message): run \"sync-cli pull \(inviter)\", the token is used up",
      cause: failure.isBrokenPipe ? .brokenPipe : .ordinary)
  }

  /// How the relay of a token is reached from here.
  private static func relayAccess(_ invocation: Invocation) -> RelayAccess {
    var access = RelayAccess(
      location: invocation.value("relay").map { absolute($0.text) }, opens: RelayStores.open)
    access.credentialsFile = absolutePath("credentials-file", invocation)
    access.certificatesFile = absolutePath("ca-file", invocation)
    return access
  }

  /// The file that an option names; a daemon has another working directory.
  private static func absolutePath(_ option: String, _ invocation: Invocation) -> String? {
    invocation.value(option).map { SystemCall.absolutePath($0.text) }
  }

  /// A location that a daemon with another working directory understands, too.
  private static func absolute(_ location: String) -> String {
    guard location.hasPrefix("dir:"), location != "dir:" else { return location }
    return "dir:" + SystemCall.absolutePath(String(location.dropFirst(4)))
  }

  private static func token(_ invocation: Invocation) throws -> String {
    let operand = invocation.operands[0]
    guard operand.bytes == [UInt8(ascii: "-")] else { return operand.text }
    return String(decoding: try invocation.standardInput().readAll(limit: tokenBytes), as: UTF8.self)
  }

  private static let tokenBytes = 64 << 10

  // MARK: - peer

  static let list = Command("peer list", "show members and peers: name, addresses, right") {
    invocation, output in
    try invocation.withStore(toWrite: false) { store in
      for line in try lines(store) {
        if invocation.wantsJSON { try output.line(line.json) } else { try output.line(line.text) }
      }
      return .done
    }
  }.printing(JSONReference.peers)

  /// A member or a peer, as `peer list` shows it.
  struct Line {
    let name: String
    let addresses: [String]
    let right: String
    let device: DeviceID?
    var isSelf = false

    var json: JSON {
      let json: JSON = [
        "name": .string(name), "addresses": .array(addresses.map { .string($0) }), "right": .string(right),
        "self": .bool(isSelf),
      ]
      return json.with("device", device.map { .string("\($0)") })
    }

    fileprivate var text: String {
      let shown = addresses.isEmpty ? "-" : addresses.joined(separator: ",")
      return "\(name) \(Text.printable(shown.utf8)) (\(right)\(isSelf ? ", this copy" : ""))"
    }
  }

  /// The members, then the peers that are none.
  static func lines(_ store: Store) throws -> [Line] {
    let own = try StoreKeys(store).identity().id
    let membership = Membership(store)
    let (members, peers) = (try membership.members(), try membership.peers())
    let lines = members.map { member in
      let named = peers.filter { $0.device == member.device || $0.name == member.name }.flatMap(\.addresses)
      let addresses = (named + member.addresses).reduce(into: [String]()) {
        if !$0.contains($1) { $0.append($1) }
      }
      return Line(
        name: member.name, addresses: addresses, right: "\(member.right)", device: member.device,
        isSelf: member.device == own)
    }
    let others = peers.filter { peer in
      !members.contains { $0.device == peer.device || $0.name == peer.name }
    }
    return lines
      + others.map {
        Line(name: $0.name, addresses: $0.addresses, right: "address only", device: $0.device)
      }
      + (try membership.relays()).map {
        Line(name: $0.name, addresses: [$0.location], right: "relay", device: nil)
      }
  }

  static let add = Command(
    "peer add", "name an address or a relay, so that push, pull and sync can be told by name",
    operands: [Operand("NAME"), Operand("ADDR")],
    options: [
      Option("endpoint", value: "URL", "for s3: the server of the bucket (default: AWS)"),
      Option("region", value: "R", "for s3: the region (default: us-east-1)"),
      Option("credentials-file", value: "F", "for s3: read the credentials from F at each use"),
      Option("ca-file", value: "F", "for s3: check the server with the certificates in F"),
      Option("prices", value: "P", "for s3: what the bucket costs, for \"relay status\""),
    ],
    notes: """
      ADDR is host:port of a member, or a relay, which members use that never meet: dir:PATH, a directory on a stick, a share or a disk,
      or s3://BUCKET/PREFIX. A relay is first written to by "push" or "sync"; "relay check" tries what it needs.

      P is a currency and the prices of 1,000 writes and listings, of 1,000 reads, of a GiB read and of a GiB stored for a month, those
      that there are: "EUR writes=0.005 reads=0.0004 out=0.09 stored=0.023". They stand in the provider's list; none is built in. The
      same command with other options replaces them.
      """
  ) { invocation, _ in
    let name = try name(invocation.operands[0], invocation)
    let address = invocation.operands[1]
    if RelayDescription.isMeant(by: address.text) {
      let relay = try relay(name, at: address, invocation)
      try invocation.withStore { store in try Membership(store).add(relay) }
      return .done
    }
    try refuseBucketOptions(invocation)
    let endpoint = try endpoint(address, invocation)
    try invocation.withStore { store in
      let membership = Membership(store)
      let device = try membership.peer(named: name)?.device ?? membership.member(named: name)?.device
      var peer = Peer(name: name, addresses: [endpoint.description])
      peer.device = device
      try membership.add(peer)
    }
    return .done
  }

  private static func refuseBucketOptions(_ invocation: Invocation) throws {
    for option in ["endpoint", "region", "credentials-file", "ca-file", "prices"] where invocation.has(option)
    {
      throw invocation.usage(
        "--\(option)", reason: "it belongs to s3://BUCKET/PREFIX", advice: "leave it out")
    }
  }

  /// The relay that the operands and options describe. A directory must exist: a stick that is not mounted
  /// must not be taken for an empty relay.
  private static func relay(
    _ name: String, at address: Argument, _ invocation: Invocation
  ) throws -> RelayDescription {
    // Absolute paths: a daemon has another working directory.
    var location = address.text
    if location.hasPrefix("dir:") {
      try refuseBucketOptions(invocation)
      let path = String(location.dropFirst(4))
      guard !path.isEmpty, try DiskStorage().status(path)?.kind == .directory else {
        throw Failure(
          .notFound, "peer add \(address.shown): no such directory: mount it, or make it")
      }
      location = absolute(location)
    }
    var relay: RelayDescription
    do throws(ReplicationError) { relay = try RelayDescription(name: name, location: location) } catch {
      throw Failure(.usage, "peer \(error.message)")
    }
    relay.endpoint = invocation.value("endpoint")?.text
    relay.region = invocation.value("region")?.text
    relay.credentialsFile = absolutePath("credentials-file", invocation)
    relay.certificatesFile = absolutePath("ca-file", invocation)
    if let prices = invocation.value("prices") {
      guard let table = RelayPrices(prices.text) else {
        throw invocation.usage(
          "--prices \(prices.shown)", reason: "it is no list of prices",
          advice: "write \"EUR writes=0.005 reads=0.0004 out=0.09 stored=0.023\"")
      }
      relay.prices = table
    }
    return relay
  }

  static let remove = Command(
    "peer remove", "forget a name and its address", operands: [Operand("NAME")],
    notes: "The member stays one, and a relay keeps what it holds: only where to reach it is forgotten here."
  ) { invocation, _ in
    try invocation.withStore { store in
      let name = invocation.operands[0].text
      let isRemoved = try Membership(store).remove(peer: name) || Membership(store).remove(relay: name)
      guard isRemoved else {
        throw Failure(
          .notFound,
          "peer remove \(invocation.operands[0].shown): no peer is called so: \"sync-cli peer list\" shows those there are"
        )
      }
      return .done
    }
  }
}
