import Foundation
import SyncTestSupport
import Testing

@testable import Replication
@testable import SyncStore

/// `schemas/vectors/full-state.json`, made by another implementation of `schemas/wire.md`: the fate of each
/// record that a copy holds when it receives another copy's full state.
@Suite("The verdict on each record of a full state") struct FullStateVectorTests {
  struct Vectors: Decodable {
    struct Close: Decodable {
      var vector: [String: UInt64]
      var horizon: UInt64
    }
    struct Held: Decodable {
      var key, actor, kind, outcome: String
      var sequence, stamp, deadline, position: UInt64
      var row: Int
      var parked: Bool
    }
    struct Receiver: Decodable {
      var name, actor: String
      var former, parted: [String]
      var suspects: [String: UInt64]
      var mending: Bool
      var own_horizon, first_step: UInt64
      var held: [Held]
    }
    var now: UInt64
    var payload: String
    var close: Close
    var receivers: [Receiver]

    static let read = Result { try Checkout.vector("full-state.json", as: Vectors.self) }
  }

  private static func actor(_ hex: String) throws -> ActorID {
    try #require(Hex.bytes(of: hex).flatMap { ActorID(bytes: $0) })
  }

  private static func record(_ held: Vectors.Held) throws -> Record {
    Record(
      version: Version(
        stamp: Stamp(rawValue: held.stamp), dot: Dot(actor: try actor(held.actor), sequence: held.sequence)),
      deadline: held.deadline == 0 ? nil : held.deadline, key: try #require(Hex.bytes(of: held.key)),
      content: held.kind == "value" ? .inline([1]) : .tombstone)
  }

  private static func state(_ receiver: Vectors.Receiver) throws -> ReplicaState {
    var state = ReplicaState()
    state.author.actor = try actor(receiver.actor)
    state.incarnations.all = try ([receiver.actor] + receiver.former).map(actor)
    state.incarnations.unconfirmedRanges = try receiver.suspects.map {
      Incarnations.UnconfirmedRange(actor: try actor($0.key), above: $0.value)
    }
    state.incarnations.abandoned = try Set(receiver.parted.map(actor))
    state.isRecovering = receiver.mending
    return state
  }

  @Test("is that of the golden vectors", arguments: 0..<2)
  func verdicts(index: Int) throws {
    let vectors = try Vectors.read.get()
    let receiver = vectors.receivers[index]
    let state = try Self.state(receiver)
    let payload = try RecordCodec.decode(try #require(Hex.bytes(of: vectors.payload)))
    let sender = try Self.actor(try #require(vectors.close.vector.keys.sorted().last))
    let full = FullState()
    full.record(
      IncomingBatch(
        sender: sender, mark: try #require(RoundMark(bytes: [UInt8](repeating: 1, count: 16))),
        position: payload.position,
        records: payload.records, present: payload.present))
    var vector = VersionVector()
    for (actor, sequence) in vectors.close.vector { vector[try Self.actor(actor)] = sequence }
    let horizon = Stamp(rawValue: vectors.close.horizon)
    let close = RoundClose(
      sender: sender, mark: try #require(RoundMark(bytes: [UInt8](repeating: 1, count: 16))),
      position: payload.position, vector: vector, floor: VersionVector(), horizon: horizon, kind: .fullState)
    for held in receiver.held {
      let record = try Self.record(held)
      let limit = held.position > receiver.first_step ? Stamp(rawValue: receiver.own_horizon) : horizon
      let same = payload.records.first { $0.record.key == record.key }?.record
      if state.incarnations.isUnconfirmed(record.dot), let same {
        full.record(doubtful: same, against: record, isTaken: same.dot != record.dot)
      }
      let verdict =
        held.parked
        ? FullStateVerdict(parked: record, close, horizon: limit, isPresent: full.isPresent(record.dot))
        : FullStateVerdict(
          record, state: state, close: close, horizon: limit,
          senderHolds: full.holding(of: record, in: state), at: vectors.now)
      let outcome =
        switch verdict {
        case .keep: "stays"
        case .drop: "given up"
        case .reissue: "issued again"
        case .setAside: "set aside"
        }
      #expect(outcome == held.outcome, "\(receiver.name): \(held.key), row \(held.row)")
    }
    #expect(receiver.held.count > 4)
  }
}
