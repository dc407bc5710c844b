private import Synchronization

/// Cache of the types that implement their own coding, so that the runtime is queried once per type instead
/// of once per value.
///
/// A direct-mapped table: the last type wins a slot. Invariant: a slot holds 0, or the metadata address of a
/// recorded type; such addresses stay valid for the life of the process.
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
