private import Synchronization

/// A point within a transaction to roll back to. Valid until the transaction ends, or is rolled back to an
/// earlier savepoint.
public struct Savepoint: Sendable {
  fileprivate let number: UInt64
  fileprivate let builder: TransactionBuilder
  fileprivate let placed: [BlobReference]
  /// The savepoints valid when it was made, itself the last.
  fileprivate let savepoints: [UInt64]

  fileprivate static let last = Atomic<UInt64>(0)
}

extension Transaction {
  /// Groups several writes within this transaction: if `body` throws, they are undone, and earlier ones stay.
  /// Can be nested to any depth.
  ///
  /// Costs a copy of the list of the transaction's writes so far, not of the values.
  ///
  /// - Throws: what `body` throws, and nothing else.
  public mutating func nested<Result, Failure: Error>(
    _ body: (inout Transaction) throws(Failure) -> Result
  ) throws(Failure) -> Result {
    let start = savepoint()
    do throws(Failure) {
      let result = try body(&self)
      release(start)
      return result
    } catch {
      restore(start)
      release(start)
      throw error
    }
  }

  /// Makes a savepoint for `rollBack(to:)`. Costs as much as `nested`.
  public mutating func savepoint() -> Savepoint {
    let number = Savepoint.last.add(1, ordering: .relaxed).newValue
    savepoints.append(number)
    return Savepoint(number: number, builder: builder, placed: pendingBlobs, savepoints: savepoints)
  }

  /// Undoes everything written since the savepoint. The savepoint stays valid; later ones do not.
  ///
  /// - Throws: `.outOfBounds` if it does not belong to this transaction, or was itself undone or released.
  public mutating func rollBack(to savepoint: Savepoint) throws(StoreError) {
    guard savepoints.contains(savepoint.number) else {
      throw StoreError(
        .outOfBounds,
        "the savepoint is not there any more: the transaction was rolled back to an earlier one",
        path: store.path)
    }
    restore(savepoint)
  }

  /// Forgets a savepoint and all later ones; the writes made since stay.
  public mutating func release(_ savepoint: Savepoint) {
    guard let index = savepoints.firstIndex(of: savepoint.number) else { return }
    savepoints.removeSubrange(index...)
  }

  private mutating func restore(_ savepoint: Savepoint) {
    builder = savepoint.builder
    // A sweep removes blobs that no record refers to. `body` may have rolled back further than to where it
    // began.
    (pendingBlobs, savepoints) = (savepoint.placed, savepoint.savepoints)
  }
}
