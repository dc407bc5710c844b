private import Synchronization

/// A place within a transaction to come back to. It holds until the transaction ends, or is rolled back to an
/// earlier one.
public struct Savepoint: Sendable {
  fileprivate let number: UInt64
  fileprivate let composer: TransactionBuilder
  fileprivate let placed: [BlobReference]
  /// Those that were there with it, itself the last.
  fileprivate let savepoints: [UInt64]

  fileprivate static let last = Atomic<UInt64>(0)
}

extension Transaction {
  /// Does several writes as a part of this transaction: what `body` throws undoes them, and nothing that was
  /// written before. Any depth.
  ///
  /// It costs a copy of the list of what the transaction has written so far, not of the values.
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

  /// Marks this place, for `rollBack(to:)`. Costs what `nested` does.
  public mutating func savepoint() -> Savepoint {
    let number = Savepoint.last.add(1, ordering: .relaxed).newValue
    savepoints.append(number)
    return Savepoint(number: number, composer: builder, placed: pendingBlobs, savepoints: savepoints)
  }

  /// Undoes what was written since. The savepoint stays, those made after it do not.
  ///
  /// - Throws: `.outOfBounds` if it is not one of this transaction, or was undone or released itself.
  public mutating func rollBack(to savepoint: Savepoint) throws(StoreError) {
    guard savepoints.contains(savepoint.number) else {
      throw StoreError(
        .outOfBounds,
        "the savepoint is not there any more: the transaction was rolled back to an earlier one",
        path: store.path)
    }
    restore(savepoint)
  }

  /// Forgets a savepoint and those made after it: what was written since stays.
  public mutating func release(_ savepoint: Savepoint) {
    guard let index = savepoints.firstIndex(of: savepoint.number) else { return }
    savepoints.removeSubrange(index...)
  }

  private mutating func restore(_ savepoint: Savepoint) {
    builder = savepoint.composer
    // Blobs that no record refers to are swept. What is nested may have gone back further than to where it began.
    (pendingBlobs, savepoints) = (savepoint.placed, savepoint.savepoints)
  }
}
