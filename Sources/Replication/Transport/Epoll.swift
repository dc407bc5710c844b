private import CLinux
private import Glibc
internal import SyncStore

/// The conditions that a descriptor is watched for. Errors and hang-ups are always reported.
struct IOInterest: OptionSet {
  /// Bits of epoll.
  let rawValue: UInt32

  /// Bytes can be read, or a connection can be accepted.
  static let read = IOInterest(rawValue: UInt32(sync_epoll_in))
  /// Bytes can be written, or a connection attempt has ended.
  static let write = IOInterest(rawValue: UInt32(sync_epoll_out))
}

/// An epoll instance and the descriptor that wakes it.
///
/// This is one of the few files that use `unsafe`: the operating system fills buffers.
struct Epoll: ~Copyable {
  /// The state of a descriptor.
  struct Event {
    /// The token that the descriptor was registered with.
    var token: UInt64
    /// Bytes can be read, or the other side has closed.
    var isReadable: Bool
    /// Bytes can be written.
    var isWritable: Bool
    /// The descriptor has an error.
    var isBroken: Bool
  }

  /// The token of the wake-up descriptor, reserved for it.
  static let wakeToken: UInt64 = 0
  private static let capacity = 256

  private let descriptor: Int32
  /// A write to it wakes a blocked `wait`.
  let wakeDescriptor: Int32

  /// Fails only if descriptors or memory are exhausted.
  init() throws(ReplicationError) {
    let poll = sync_epoll_create()
    let wake = sync_event_descriptor()
    guard poll >= 0, wake >= 0 else {
      let why = SystemCall.text(of: errno)
      if poll >= 0 { close(poll) }
      throw ReplicationError(
        .network, "cannot start the event loop: \(why): raise the limit on open files (ulimit -n)")
    }
    descriptor = SystemCall.moveAboveStdio(poll)
    wakeDescriptor = SystemCall.moveAboveStdio(wake)
    _ = sync_epoll_control(descriptor, 0, wakeDescriptor, IOInterest.read.rawValue, Self.wakeToken)
  }

  deinit {
    close(wakeDescriptor)
    close(descriptor)
  }

  /// Watches a descriptor. False if the operating system has no room for it.
  func add(_ watched: Int32, interest: IOInterest, token: UInt64) -> Bool {
    sync_epoll_control(descriptor, 0, watched, interest.rawValue, token) == 0
  }

  /// Changes the watched conditions.
  func change(_ watched: Int32, interest: IOInterest, token: UInt64) {
    _ = sync_epoll_control(descriptor, 1, watched, interest.rawValue, token)
  }

  /// Stops watching the descriptor.
  func remove(_ watched: Int32) { _ = sync_epoll_control(descriptor, 2, watched, 0, 0) }

  /// Waits for at most `milliseconds` (-1: without limit). A wake-up alone returns no event.
  func wait(milliseconds: Int32) -> [Event] {
    unsafe withUnsafeTemporaryAllocation(of: UInt32.self, capacity: Self.capacity) { bits in
      unsafe withUnsafeTemporaryAllocation(of: UInt64.self, capacity: Self.capacity) { tokens in
        let count = unsafe sync_epoll_wait(
          descriptor, bits.baseAddress, tokens.baseAddress, Int32(Self.capacity), milliseconds)
        var events: [Event] = []
        events.reserveCapacity(max(0, Int(count)))
        for index in 0..<max(0, Int(count)) {
          let (token, bits) = unsafe (tokens[index], bits[index])
          if token == Self.wakeToken {
            Self.drain(wakeDescriptor)
          } else {
            events.append(
              Event(
                token: token, isReadable: bits & UInt32(sync_epoll_in) != 0,
                isWritable: bits & UInt32(sync_epoll_out) != 0,
                isBroken: bits & UInt32(sync_epoll_error | sync_epoll_hang_up) != 0))
          }
        }
        return events
      }
    }
  }

  /// Makes the current or next `wait` return at once. Callable from any thread.
  static func wake(_ wakeDescriptor: Int32) {
    var one: UInt64 = 1
    _ = unsafe write(wakeDescriptor, &one, 8)
  }

  private static func drain(_ wakeDescriptor: Int32) {
    var count: UInt64 = 0
    _ = unsafe read(wakeDescriptor, &count, 8)
  }
}

/// The clock of timers; it never jumps.
enum MonotonicClock {
  /// Milliseconds since some point in the past.
  static func milliseconds() -> UInt64 { nanoseconds() / 1_000_000 }

  /// Nanoseconds since the same point.
  static func nanoseconds() -> UInt64 {
    var time = timespec()
    unsafe clock_gettime(CLOCK_MONOTONIC, &time)
    return UInt64(time.tv_sec) * 1_000_000_000 + UInt64(time.tv_nsec)
  }
}
