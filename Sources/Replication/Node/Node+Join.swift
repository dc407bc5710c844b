public import SyncStore

/// The result of redeeming an invitation.
public struct Joined: Sendable {
  /// The new copy, open.
  public let store: Store
  /// The name of this installation among the members: the requested name, made unique.
  public let memberName: String
  /// The name of the inviter, or of the member that answered in a relay. An inviter is a peer of this copy
  /// under that name.
  public let inviterName: String
  /// The right of this member.
  public let right: Member.Right
  /// The name on this copy of the relay that it has joined through; nil if the inviter answered.
  public let relayName: String?
}

/// How a device that joins reaches the relay that its invitation names.
///
/// ```swift
/// let access = RelayAccess(location: "dir:/media/usb")
/// let joined = try await Node.join(token, at: "/var/lib/notes", name: "cabin", through: access)
/// ```
public struct RelayAccess: Sendable {
  /// Where the relay is from here; nil for where the inviter reaches it.
  public var location: String?
  /// For a bucket: the file with its credentials; nil for the environment and the usual files.
  public var credentialsFile: String?
  /// For a bucket: the file with the certificates that its server is checked with; nil for the system's.
  public var certificatesFile: String?
  /// Opens the relay's objects.
  public var opens: Node.RelayOpener

  /// Access to a relay at the inviter's location, or at another one.
  public init(location: String? = nil, opens: @escaping Node.RelayOpener = Node.opensDirectories) {
    (self.location, self.opens) = (location, opens)
  }
}

/// The services that joining runs on.
struct NodeRuntime: Sendable {
  /// The machine that the store is on.
  var environment: Environment
  /// The event loop of the connections.
  var loop: EventLoop
  /// Runs blocking work.
  var workers: WorkerPool

  /// The real machine, with the loop and the workers that the nodes of this process share.
  static func real() throws(ReplicationError) -> NodeRuntime {
    NodeRuntime(environment: .real(), loop: try EventLoop.shared(), workers: .shared)
  }
}

extension Node {
  /// Redeems an invitation: this installation becomes a member, with a new, empty copy in `path`. Pulls
  /// nothing yet.
  ///
  /// If it fails after the inviter has accepted, it can be called again with the same token and directory. An
  /// invitation through a relay leaves a request there, which any member with the right to write answers
  /// when it looks into the relay: call it again until then.
  ///
  /// - Parameters:
  ///   - token: as returned by `invite`.
  ///   - path: a directory that is empty or does not exist.
  ///   - name: the wanted name; 1 to `Limits.nameBytes` bytes without blanks or slashes.
  ///   - scope: the keys that the copy holds; nil for all. It can be widened later (`widen`).
  ///   - configuration: how the new store is opened.
  ///   - timeout: seconds for which an inviter that answers but is overloaded, or breaks the connection, is
  ///     retried; an address that does not answer is not retried. With a relay, seconds to wait for an
  ///     answer.
  ///   - access: how a relay is reached.
  /// - Throws: `.invalidInvitation` if the inviter does not know the token, or no longer does; `.notAMember`
  ///   if another device answers at the inviter's address; `.network`; `.timeout`, with a relay if no member
  ///   has answered yet; `.otherStore` if the place is another relay's; `.store` if the copy cannot be made.
  public static func join(
    _ token: String, at path: String, name: String, scope: KeyScope? = nil,
    configuration: SyncStore.Configuration = SyncStore.Configuration(), timeout: UInt64 = 180,
    through access: RelayAccess = RelayAccess()
  ) async throws(ReplicationError) -> Joined {
    let runtime = try NodeRuntime.real()
    let invitation = try Invitation(text: token)
    guard StoreIdentity.isName(name) else {
      throw ReplicationError(
        .invalidInvitation,
        "cannot join as \"\(name)\": use 1 to \(Limits.nameBytes) bytes without blanks or slashes")
    }
    let copy = try await NewCopy.prepare(
      at: path, scope: scope, configuration: configuration, runtime: runtime)
    // Made durable before it is presented: an answer that is lost can then be requested again.
    let identity = try await runtime.workers.run { () throws(ReplicationError) in
      try copy.keys.makeIdentity()
    }
    guard let ticket = invitation.relay else {
      let accept = try await redeem(
        invitation, as: identity, name: name, timeout: timeout, runtime: runtime)
      return try await copy.create(accept) { membership throws(ReplicationError) in
        try membership.add(
          Peer(name: accept.inviterName, addresses: invitation.addresses, device: invitation.inviter))
        return nil
      }
    }
    let joiner = try RelayJoiner(invitation, ticket, through: access, as: identity)
    let answer = try await joiner.redeem(called: name, timeout: timeout)
    let joined = try await copy.create(answer.accept) { membership throws(ReplicationError) in
      try membership.setIntroducer(answer.device)
      let relay = try joiner.description(avoiding: answer.accept.inviterName)
      try membership.add(relay)
      return relay.name
    }
    // The copy is made: what is left there serves nothing, and is collected in any case.
    try? await joiner.finish()
    return joined
  }

  private static func redeem(
    _ invitation: Invitation, as identity: DeviceIdentity, name: String, timeout: UInt64, runtime: NodeRuntime
  ) async throws(ReplicationError) -> JoinAccept {
    let context = try TLSContext(role: .client, identity: identity)
    let deadline = MonotonicClock.milliseconds() + min(timeout, 86_400) * 1000
    var backoff = Backoff(base: 100, cap: 2_000)
    while true {
      let failure: JoinerDriver.Failure
      switch await attempt(invitation, as: identity, name: name, context, runtime: runtime) {
      case .success(let accept): return accept
      case .failure(let why): failure = why
      }
      let pause = backoff.failed(random: UInt64.random(in: 0 ... .max))
      guard failure.isTransient, MonotonicClock.milliseconds() + pause < deadline else { throw failure.error }
      do {
        try await Task.sleep(for: .milliseconds(pause))
      } catch {
        throw failure.error
      }
    }
  }

  /// Tries one address after the other; the failure is that of the last, but a transient one takes
  /// precedence.
  private static func attempt(
    _ invitation: Invitation, as identity: DeviceIdentity, name: String, _ context: TLSContext,
    runtime: NodeRuntime
  ) async -> Result<JoinAccept, JoinerDriver.Failure> {
    var failure = JoinerDriver.Failure(
      ReplicationError(.network, "the invitation has no address: invite again"), reached: false)
    for address in invitation.addresses {
      guard let endpoint = Endpoint(address) else { continue }
      let result = await withCheckedContinuation { continuation in
        runtime.loop.execute {
          JoinerDriver.run(
            invitation, as: identity.id, name: name, at: endpoint, context: context, runtime: runtime
          ) { continuation.resume(returning: $0) }
        }
      }
      guard case .failure(let why) = result else { return result }
      // Other addresses of the same inviter would refuse as well. A transient failure takes precedence over
      // that of a dead address.
      if why.error.code == .invalidInvitation { return result }
      if why.isTransient || !failure.isTransient { failure = why }
    }
    return .failure(failure)
  }
}
