public import SyncStore

extension Membership: BlockingCalls {
  /// A `ReplicationError` `.store` with `.cancelled`.
  public static var cancellationError: any Error { ReplicationError(StoreError.taskCancelled) }
}

/// `Node.run` is for `Node.prepare`, `Node.invite` and `Node.init`, which block.
extension Node: BlockingCalls {
  /// A `ReplicationError` `.store` with `.cancelled`.
  public static var cancellationError: any Error { ReplicationError(StoreError.taskCancelled) }
}
