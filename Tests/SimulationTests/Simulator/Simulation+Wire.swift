import Replication
import SyncTestSupport

/// Faults of the wire.
///
/// TCP hides loss, duplication and reordering of packets: a session only sees late bytes, and many at once.
/// Some links let them through, as if TCP and TLS did not protect: whole frames are lost, duplicated and
/// reordered. A session may then refuse its input, but no copy may be harmed.
struct Wire {
  /// A generator of its own, so that histories without it stay unchanged.
  private var random: SplitMix64
  private let isOn: Bool

  init(seed: UInt64, isOn: Bool) {
    random = SplitMix64(seed: seed ^ 0x5749_5245)
    self.isOn = isOn
  }

  /// Whether this new link lets every fault through.
  mutating func letsThrough() -> Bool { isOn && random.chance(5) }

  /// Extra delay in milliseconds of a piece that was retransmitted, once or several times.
  mutating func delay(_ counts: inout Simulation.Counts) -> UInt64 {
    guard isOn, random.chance(3) else { return 0 }
    counts.late += 1
    return UInt64(200 << random.below(6))
  }

  /// What arrives of these bytes, which are whole frames, on a link that lets every fault through.
  mutating func pass(_ bytes: [UInt8], _ counts: inout Simulation.Counts) throws -> [UInt8] {
    guard isOn, random.chance(20) else { return bytes }
    var decoder = FrameDecoder(stage: .session)
    decoder.append(bytes)
    var frames: [[UInt8]] = []
    while let frame = try decoder.next() { frames.append(frame.bytes) }
    let chosen = random.below(frames.count)
    switch random.below(3) {
    case 0:
      frames.remove(at: chosen)
      counts.lost += 1
    case 1:
      frames.insert(frames[chosen], at: random.below(frames.count + 1))
      counts.doubled += 1
    default:
      guard frames.count > 1 else { return bytes }
      frames.swapAt(chosen, (chosen + 1 + random.below(frames.count - 1)) % frames.count)
      counts.reordered += 1
    }
    return Array(frames.joined())
  }
}
