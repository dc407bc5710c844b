internal import SyncStore

/// One right or ability that a relay needs of its object store, tried.
public struct RelayCheck: Hashable, Sendable {
  /// A right or an ability.
  public enum Subject: String, Hashable, Sendable, CaseIterable {
    /// Listing names.
    case list
    /// Creating an object.
    case create
    /// Reading an object.
    case read
    /// Reading a part of one.
    case range
    /// A conditional read: nothing is sent again that is known.
    case conditionalRead = "conditional-read"
    /// Overwriting an object.
    case overwrite
    /// Not overwriting an object that is there, or that has changed.
    case conditionalWrite = "conditional-write"
    /// Deleting an object.
    case delete
    /// A clock that is not far from this one's.
    case clock
  }

  /// The right or ability that was tried.
  public let subject: Subject
  /// Whether it works.
  public let works: Bool
  /// Whether the relay works without it, only slower or with more care.
  public let isOptional: Bool
  /// The observation, and the remedy if it does not work.
  public let message: String
}

/// Tries all that a relay needs, with an object of its own, which is deleted again.
struct RelayChecker {
  let objects: any ObjectStore
  /// A name that no other object has.
  let name: String
  /// This machine's time, in milliseconds since 1970.
  let now: UInt64
  private var checks: [RelayCheck] = []

  init(_ objects: any ObjectStore, random: [UInt8], now: UInt64) {
    (self.objects, name, self.now) = (objects, "check-" + Hex.string(of: random), now)
  }

  /// Tries everything. What cannot be tried, since something before it failed, fails with the same message.
  mutating func run() async -> [RelayCheck] {
    let (first, second) = ([UInt8]("syncstore relay check 1".utf8), [UInt8]("second".utf8))
    let objects = objects
    let name = name
    var version: ObjectVersion?
    await attempt(.list) { () throws(ObjectStoreError) in
      "\(CountText.of(try await objects.list("").count, noun: "object"))"
    }
    await attempt(.create) { () throws(ObjectStoreError) in
      guard case .stored(let stored) = try await objects.put(name, first, if: .absent) else {
        throw ObjectStoreError(.invalid, "creating \(name): refused, although it was not there")
      }
      version = stored
      return nil
    }
    await attempt(.read) { () throws(ObjectStoreError) in
      guard case .found(let found) = try await objects.get(name), found.bytes == first else {
        throw ObjectStoreError(.invalid, "reading \(name): other bytes than were written")
      }
      version = found.version ?? version
      return nil
    }
    await attempt(.range) { () throws(ObjectStoreError) in
      guard case .found(let found) = try await objects.get(name, range: 4..<9, unless: nil, limit: 5),
        found.bytes == Array(first[4..<9])
      else { throw ObjectStoreError(.invalid, "reading bytes 4 to 8 of \(name): others came") }
      return nil
    }
    let known = version
    await attempt(.conditionalRead, optional: true) { () throws(ObjectStoreError) in
      let again = try await objects.get(name, range: nil, unless: known, limit: 100)
      guard known != nil, again == .unchanged else {
        throw ObjectStoreError(.invalid, "a known object is sent again: each look at the relay costs more")
      }
      return nil
    }
    await attemptWrites(second, known)
    await attempt(.delete) { () throws(ObjectStoreError) in
      try await objects.delete([name])
      guard try await objects.get(name) == .absent else {
        throw ObjectStoreError(.invalid, "deleting \(name): it is still there")
      }
      return nil
    }
    checkClock()
    return checks
  }

  private mutating func attemptWrites(_ bytes: [UInt8], _ known: ObjectVersion?) async {
    let (objects, name) = (objects, name)
    await attempt(.conditionalWrite, optional: true) { () throws(ObjectStoreError) in
      let ignored =
        "conditions are ignored: two programs that write for one copy at once notice it only afterwards"
      guard try await objects.put(name, bytes, if: .absent) == .refused else {
        throw ObjectStoreError(.invalid, ignored)
      }
      let other = ObjectVersion(tag: "\"0123456789abcdef0123456789abcdef\"")
      guard try await objects.put(name, bytes, if: .version(other)) == .refused else {
        throw ObjectStoreError(.invalid, ignored)
      }
      return nil
    }
    await attempt(.overwrite) { () throws(ObjectStoreError) in
      guard case .stored = try await objects.put(name, bytes, if: .always),
        case .found(let found) = try await objects.get(name), found.bytes == bytes
      else { throw ObjectStoreError(.invalid, "overwriting \(name): the old bytes came back") }
      return nil
    }
  }

  private mutating func checkClock() {
    guard let clock = objects.clock else {
      checks.append(
        RelayCheck(
          subject: .clock, works: false, isOptional: true,
          message: "it does not state the time: `relay gc` deletes nothing there"))
      return
    }
    let difference = clock > now ? clock - now : now - clock
    let works = difference <= Limits.clockDriftMilliseconds
    checks.append(
      RelayCheck(
        subject: .clock, works: works, isOptional: true,
        message: works
          ? ""
          : "it is \(difference / 1000) s \(clock > now ? "ahead of" : "behind") this machine's: set the clocks"
      ))
  }

  private mutating func attempt(
    _ subject: RelayCheck.Subject, optional: Bool = false,
    _ body: () async throws(ObjectStoreError) -> String?
  ) async {
    do throws(ObjectStoreError) {
      let message = try await body()
      checks.append(RelayCheck(subject: subject, works: true, isOptional: optional, message: message ?? ""))
    } catch {
      checks.append(RelayCheck(subject: subject, works: false, isOptional: optional, message: error.message))
    }
  }
}

extension RelayClient {
  /// Tries every right that the relay needs.
  package func check() async -> [RelayCheck] {
    var checker = RelayChecker(objects, random: SecureRandom.bytes(8), now: store.environment.now())
    return await checker.run()
  }
}
