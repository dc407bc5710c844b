internal import CCurl
private import Dispatch
internal import Replication
internal import SyncStore

/// One thread that moves the bytes of all requests of a store, with libcurl's multi interface.
///
/// Connections are kept and reused. At most `TransferLoop.most` requests are on their way at once; others
/// wait in the order of their submission. The thread begins with the first request and ends with the driver.
final class TransferDriver: Sendable {
  private let loop: TransferLoop

  /// A driver; `authorities` is a file of certificates, or nil for those of the system. A request that moves
  /// less than 256 bytes per second for `seconds` is broken off.
  init(authorities: String?, isDirect: Bool, seconds: UInt32) {
    loop = TransferLoop(authorities: authorities, isDirect: isDirect, seconds: seconds)
  }

  deinit { loop.stop() }

  /// Sends a request and waits for its answer. A cancelled task breaks it off.
  func send(_ request: HTTPRequest) async -> Transfer.Outcome {
    let handle = Locked<Transfer?>(nil)
    return await withTaskCancellationHandler {
      await withCheckedContinuation { continuation in
        let transfer = Transfer(request) { continuation.resume(returning: $0) }
        handle.withLock { $0 = transfer }
        loop.submit(transfer)
        // The task may have been cancelled before there was anything to cancel.
        if Task.isCancelled { loop.cancel(transfer) }
      }
    } onCancel: {
      if let transfer = handle.withLock({ $0 }) { loop.cancel(transfer) }
    }
  }
}

/// The state of `TransferDriver`, which its thread keeps alive until it has ended.
///
/// Invariant: `active` and the set are accessed only on the thread; `sync_curl_wake` is called under the lock
/// of `shared` and only while the set is open.
///
/// This is one of the few files that use `unsafe`: the state of the thread has no lock, and libcurl takes
/// addresses.
@safe private final class TransferLoop: Sendable {
  /// The most requests on their way at once.
  static let most = 16

  @safe private struct Shared {
    var submitted: [Transfer] = []
    var cancelled: [Transfer] = []
    var isRunning = false, isStopping = false
    /// Open while the thread can be woken.
    var set: OpaquePointer?
  }

  @safe private struct Active {
    let transfer: Transfer
    let handle: UnsafeMutableRawPointer
  }

  private let authorities: String?
  private let isDirect: Bool
  private let seconds: UInt32
  private let shared: Locked<Shared>
  /// Requests that wait for one of `most` places.
  private nonisolated(unsafe) var waiting: [Transfer] = []
  private nonisolated(unsafe) var active: [Active] = []

  init(authorities: String?, isDirect: Bool, seconds: UInt32) {
    (self.authorities, self.isDirect, self.seconds) = (authorities, isDirect, seconds)
    shared = Locked(Shared())
  }

  // MARK: Any thread

  func submit(_ transfer: Transfer) {
    let mustBegin = shared.withLock { shared in
      shared.submitted.append(transfer)
      if let set = unsafe shared.set { unsafe sync_curl_wake(set) }
      defer { shared.isRunning = true }
      return !shared.isRunning
    }
    guard mustBegin else { return }
    DispatchQueue(label: "syncstore.s3", qos: .userInitiated).async { self.run() }
  }

  func cancel(_ transfer: Transfer) {
    shared.withLock { shared in
      shared.cancelled.append(transfer)
      if let set = unsafe shared.set { unsafe sync_curl_wake(set) }
    }
  }

  func stop() {
    shared.withLock { shared in
      shared.isStopping = true
      if let set = unsafe shared.set { unsafe sync_curl_wake(set) }
    }
  }

  // MARK: The thread

  private func run() {
    if let reason = unsafe sync_curl_load() { return fail(unsafe String(cString: reason)) }
    guard let set = unsafe sync_curl_open(Self.most) else { return fail("there is no memory for libcurl") }
    shared.withLock { unsafe $0.set = set }
    while unsafe takeShared(set) {
      unsafe beginWaiting(set)
      unsafe sync_curl_perform(set)
      if unsafe finishEnded(set) { continue }
      unsafe sync_curl_wait(set, 600_000)
    }
    shared.withLock { unsafe $0.set = nil }
    for transfer in unsafe waiting { transfer.end(.cancelled, wasSent: false) }
    for item in unsafe active { unsafe end(item, .cancelled, in: set) }
    unsafe (waiting, active) = ([], [])
    unsafe sync_curl_close(set)
  }

  /// Ends all requests with a failure. The next request tries again.
  private func fail(_ reason: String) {
    let submitted = shared.withLock { shared in
      defer { (shared.submitted, shared.cancelled, shared.isRunning) = ([], [], false) }
      return shared.submitted
    }
    for transfer in submitted { transfer.end(.unusable(reason), wasSent: false) }
  }

  /// Takes over what other threads have submitted and cancelled. Returns false if the thread is to end.
  private func takeShared(_ set: OpaquePointer) -> Bool {
    let (submitted, cancelled, isStopping) = shared.withLock { shared in
      defer { (shared.submitted, shared.cancelled) = ([], []) }
      return (shared.submitted, shared.cancelled, shared.isStopping)
    }
    unsafe waiting += submitted
    for transfer in cancelled {
      if let place = unsafe waiting.firstIndex(where: { $0 === transfer }) {
        unsafe waiting.remove(at: place).end(.cancelled, wasSent: false)
      } else if let place = unsafe active.firstIndex(where: { $0.transfer === transfer }) {
        unsafe end(active.remove(at: place), .cancelled, in: set)
      }
    }
    return !isStopping
  }

  private func beginWaiting(_ set: OpaquePointer) {
    while unsafe active.count < Self.most, unsafe !waiting.isEmpty {
      let transfer = unsafe waiting.removeFirst()
      if let handle = unsafe begin(transfer, in: set) {
        unsafe active.append(Active(transfer: transfer, handle: handle))
      } else {
        transfer.end(.unusable("there is no memory for libcurl"), wasSent: false)
      }
    }
  }

  private func begin(_ transfer: Transfer, in set: OpaquePointer) -> UnsafeMutableRawPointer? {
    let request = transfer.request
    return unsafe request.method.withCString { method in
      unsafe request.url.withCString { url in
        unsafe request.headerLines.withCString { headers in
          var plan = unsafe sync_curl_request()
          unsafe (plan.method, plan.url, plan.headers) = (method, url, headers)
          unsafe plan.body_bytes = request.body.map { Int64($0.count) } ?? -1
          unsafe plan.connect_milliseconds = min(Int(seconds), 30) * 1000
          unsafe (plan.low_speed_bytes, plan.low_speed_seconds) = (256, Int(seconds))
          unsafe plan.direct = isDirect ? 1 : 0
          var calls = Transfer.calls
          let owner = unsafe Unmanaged.passUnretained(transfer).toOpaque()
          guard let authorities else { return unsafe sync_curl_begin(set, &plan, &calls, owner) }
          return unsafe authorities.withCString { file in
            unsafe plan.authorities = file
            return unsafe sync_curl_begin(set, &plan, &calls, owner)
          }
        }
      }
    }
  }

  /// Ends the requests that libcurl has finished with. Returns whether there was any.
  private func finishEnded(_ set: OpaquePointer) -> Bool {
    var (owner, result): (UnsafeMutableRawPointer?, sync_curl_result) = (nil, sync_curl_done)
    var found = false
    while let handle = unsafe sync_curl_next(set, &owner, &result) {
      found = true
      guard let place = unsafe active.firstIndex(where: { unsafe $0.handle == handle }) else { continue }
      let failure = result == sync_curl_done ? nil : unsafe Self.failure(result, handle)
      unsafe end(active.remove(at: place), failure, in: set)
    }
    return found
  }

  private static func failure(
    _ result: sync_curl_result, _ handle: UnsafeMutableRawPointer
  ) -> TransferFailure {
    let reason = unsafe String(cString: sync_curl_reason(handle)).printable
    switch result {
    case sync_curl_unresolved: return .unresolved(reason)
    case sync_curl_untrusted: return .untrusted(reason)
    case sync_curl_unusable: return .unusable(reason)
    default: return .broken(reason)
    }
  }

  private func end(_ item: Active, _ failure: TransferFailure?, in set: OpaquePointer) {
    let wasSent = unsafe sync_curl_was_sent(item.handle) != 0
    unsafe sync_curl_end(set, item.handle)
    item.transfer.end(failure, wasSent: wasSent)
  }
}
