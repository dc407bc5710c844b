internal import SyncStore

/// Performs the actions of the joiner's side of a pairing. Confined to its loop's thread.
final class JoinerDriver {
  typealias Completion = (Result<JoinAccept, Failure>) -> Void

  /// Why joining failed.
  struct Failure: Error {
    let error: ReplicationError
    /// Whether the inviter answered, and may answer differently if asked again soon.
    let isTransient: Bool

    init(_ error: ReplicationError, reached: Bool) {
      self.error = error
      isTransient = reached && [.unavailable, .timeout, .network].contains(error.code)
    }
  }

  private var joiner: Joiner
  private let link: PeerLink
  private let loop: EventLoop
  private let completion: Completion
  private var timer: UInt64?
  private var accept: JoinAccept?

  /// Connects to the inviter, redeems the invitation, and calls `completion` once.
  static func run(
    _ invitation: Invitation, as device: DeviceID, name: String, at endpoint: Endpoint, context: TLSContext,
    runtime: NodeRuntime, completion: @escaping Completion
  ) {
    let loop = runtime.loop
    TCPConnector.connect(to: endpoint, loop: loop) { result in
      do throws(ReplicationError) {
        let connection = try result.get()
        let engine = try HandshakeEngine(
          context, protocols: [WireLimits.joinProtocol], accept: { shown, _ in shown == invitation.inviter })
        let link = PeerLink(connection, engine: engine, worker: runtime.workers.queue(), loop: loop)
        // The closures keep the link alive until it ends.
        link.onEnd = { error in
          withExtendedLifetime(link) {}
          let closed = ReplicationError(.network, "\(endpoint) closed the connection: is it still inviting?")
          completion(.failure(Failure(error ?? closed, reached: true)))
        }
        link.onEstablished = { other in
          do throws(ReplicationError) {
            let proof = PairingProof(exporter: try link.exporter(), inviter: other.device, joiner: device)
            JoinerDriver(
              joiner: Joiner(invitation: invitation, proof: proof, name: name), link: link, loop: loop,
              completion: completion
            ).start()
          } catch {
            link.close()
            completion(.failure(Failure(error, reached: true)))
          }
        }
        link.start()
      } catch {
        completion(.failure(Failure(error, reached: false)))
      }
    }
  }

  private init(
    joiner: consuming Joiner, link: PeerLink, loop: EventLoop, completion: @escaping Completion
  ) {
    self.joiner = joiner
    (self.link, self.loop, self.completion) = (link, loop, completion)
  }

  private func start() {
    link.onPlaintext = { [self] in handle(.received($0)) }
    link.onEnd = { [self] error in
      // An inviter without an open invitation rejects the joiner in the handshake.
      if error?.code == .notAMember {
        close(
          .failed(.invalidInvitation, "the inviter knows of no invitation that is open: ask for a new one"))
      } else {
        handle(.disconnected)
      }
    }
    perform(joiner.start())
  }

  private func handle(_ event: PairingEvent) { perform(joiner.handle(event)) }

  private func perform(_ actions: [PairingAction]) {
    for action in actions {
      switch action {
      case .send(let bytes): link.send(bytes)
      case .setTimer(let seconds):
        timer = loop.schedule(after: seconds * 1000) { [weak self] in self?.handle(.timer) }
      case .joined(let accept): self.accept = accept
      case .lookUp, .redeem, .countWrongProof: break
      case .close(let outcome): close(outcome)
      }
    }
  }

  private func close(_ outcome: PairingOutcome) {
    if let timer { loop.cancel(timer) }
    link.finish()
    switch outcome {
    case .failed(let code, let message):
      completion(.failure(Failure(ReplicationError(code, message), reached: true)))
    case .done:
      guard let accept else { return }
      completion(.success(accept))
    }
  }
}
