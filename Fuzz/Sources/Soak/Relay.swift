import Foundation

/// A link that can be cut: a port of this machine that forwards to another one.
final class Relay: @unchecked Sendable {
  enum State { case passing, silent, cut }

  let port: UInt16
  private let listener: Int32
  private let lock = NSLock()
  // Guarded by the lock.
  private var target: UInt16
  private var state = State.passing
  private var pairs: [Int: (Int32, Int32)] = [:]
  private var next = 0
  private var bytes = 0

  /// Listens on a free port, and forwards to `target`.
  init(to target: UInt16) throws {
    self.target = target
    (listener, port) = try Self.listen()
    Thread { [self] in accept() }.start()
  }

  /// Forwarded bytes.
  var passed: Int { lock.withLock { bytes } }

  /// A silent link accepts and keeps bytes; a cut one breaks connections and refuses new ones.
  func set(_ state: State) {
    lock.withLock {
      self.state = state
      guard state == .cut else { return }
      for (one, other) in pairs.values {
        shutdown(one, Int32(SHUT_RDWR))
        shutdown(other, Int32(SHUT_RDWR))
      }
    }
  }

  private func accept() {
    while true {
      let one = Glibc.accept(listener, nil, nil)
      guard one >= 0 else { return }
      // A process started in between inherits it; therefore ends are shut down, not only closed.
      _ = fcntl(one, F_SETFD, FD_CLOEXEC)
      let (target, isCut) = lock.withLock { (self.target, state == .cut) }
      guard !isCut, let other = Self.connect(target) else {
        close(one)
        continue
      }
      let number = lock.withLock {
        next += 1
        pairs[next] = (one, other)
        return next
      }
      let ends = Ends(2)
      for (from, to) in [(one, other), (other, one)] {
        Thread { [self] in
          pass(from, to)
          shutdown(from, Int32(SHUT_RDWR))
          shutdown(to, Int32(SHUT_RDWR))
          if ends.isLast() {
            lock.withLock { pairs[number] = nil }
            close(one)
            close(other)
          }
        }.start()
      }
    }
  }

  private func pass(_ from: Int32, _ to: Int32) {
    var buffer = [UInt8](repeating: 0, count: 1 << 16)
    while true {
      let count = read(from, &buffer, buffer.count)
      guard count > 0 else { return }
      while lock.withLock({ state == .silent }) { usleep(20_000) }
      var done = 0
      while done < count {
        let sent = buffer.withUnsafeBytes {
          send(to, $0.baseAddress! + done, count - done, Int32(MSG_NOSIGNAL))
        }
        guard sent > 0 else { return }
        done += sent
      }
      lock.withLock { bytes += count }
    }
  }

  private static func address(_ port: UInt16) -> sockaddr_in {
    var address = sockaddr_in()
    address.sin_family = sa_family_t(AF_INET)
    address.sin_port = port.bigEndian
    address.sin_addr.s_addr = UInt32(0x7f00_0001).bigEndian
    return address
  }

  private static func listen() throws -> (Int32, UInt16) {
    let socket = Glibc.socket(AF_INET, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
    var address = address(0)
    var length = socklen_t(MemoryLayout<sockaddr_in>.size)
    let isBound = withUnsafeMutablePointer(to: &address) {
      $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
        bind(socket, $0, length) == 0 && Glibc.listen(socket, 64) == 0
          && getsockname(socket, $0, &length) == 0
      }
    }
    guard socket >= 0, isBound else {
      throw Failure("no port for a relay: \(String(cString: strerror(errno)))")
    }
    return (socket, UInt16(bigEndian: address.sin_port))
  }

  private static func connect(_ port: UInt16) -> Int32? {
    let socket = Glibc.socket(AF_INET, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
    var address = address(port)
    let isConnected = withUnsafePointer(to: &address) {
      $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
        Glibc.connect(socket, $0, socklen_t(MemoryLayout<sockaddr_in>.size)) == 0
      }
    }
    guard isConnected else {
      close(socket)
      return nil
    }
    return socket
  }
}

/// Counts finished directions.
private final class Ends: @unchecked Sendable {
  private let lock = NSLock()
  private var left: Int
  init(_ count: Int) { left = count }

  func isLast() -> Bool {
    lock.withLock {
      left -= 1
      return left == 0
    }
  }
}
