private import Synchronization

/// Types that are known to code themselves: what would have to be asked of the runtime for each value is asked once.
///
/// A table in which each type has one place, and the last one that came there stays. Invariant: a place holds 0, or the
/// address of the meta-data of a type that was noted; such addresses are never given up.
enum SelfCodingTypes {
  private static let table = Table()

  private final class Table: Sendable {
    let places = InlineArray<256, Atomic<UInt>> { _ in Atomic(0) }
  }

  @inline(__always)
  static func contains<Value>(_: Value.Type) -> Bool {
    let address = UInt(bitPattern: ObjectIdentifier(Value.self))
    return table.places[place(address)].load(ordering: .relaxed) == address
  }

  static func insert<Value>(_: Value.Type) {
    let address = UInt(bitPattern: ObjectIdentifier(Value.self))
    table.places[place(address)].store(address, ordering: .relaxed)
  }

  @inline(__always)
  private static func place(_ address: UInt) -> Int {
    Int(truncatingIfNeeded: (address >> 4 ^ address >> 12) & 255)
  }
}
