import Foundation
import Glibc
import SyncTestSupport
import Testing

/// What the daemon tells the service manager (sd_notify(3)): the test owns the socket.
@Suite(.timeLimit(.minutes(Patience.minutes(2)))) struct NotifyTests {
  let tool: Tool
  let socket: NotifySocket

  init() throws {
    tool = try Scratch().store()
    socket = try NotifySocket(at: tool.scratch.path + "/notify")
  }

  /// Starts the daemon with that socket and these variables, and takes its first message.
  private func serve(_ variables: [String: String] = [:]) throws -> Running {
    let running = try tool.start(
      ["serve", "--listen", "127.0.0.1:0"],
      environment: variables.merging(["NOTIFY_SOCKET": socket.path]) { $1 })
    let address = try #require(running.firstLine(), "\(running.err)")
    #expect(socket.message() == "READY=1\nSTATUS=\(address)")
    return running
  }

  private func monotonicMicroseconds() -> Int {
    var time = timespec()
    unsafe clock_gettime(CLOCK_MONOTONIC, &time)
    return time.tv_sec * 1_000_000 + time.tv_nsec / 1000
  }

  @Test("the daemon tells the service manager that it is ready, alive, reloading, and ending")
  func life() throws {
    let daemon = try serve(["WATCHDOG_USEC": "200000"])
    for _ in 0..<3 { #expect(socket.message() == "WATCHDOG=1") }
    let before = monotonicMicroseconds()
    daemon.signal(SIGHUP)
    let reloading = try #require(socket.message { $0 != "WATCHDOG=1" })
    let time = try #require(reloading.wholeMatch(of: /RELOADING=1\nMONOTONIC_USEC=(\d+)/)?.1)
    #expect(try (before...monotonicMicroseconds()).contains(#require(Int(time))))
    #expect(socket.message() == "READY=1")
    #expect(socket.message() == "WATCHDOG=1")
    daemon.signal(SIGTERM)
    let stopping = try #require(socket.message { $0 != "WATCHDOG=1" })
    #expect(stopping == "STOPPING=1\nSTATUS=ending: letting sessions come to their end")
    #expect(daemon.finish().code == 0)
  }

  @Test("reloads in quick succession do not starve the watchdog")
  func reloads() throws {
    // Alive every second: a loop that only does so after a second without a signal never does.
    let daemon = try serve(["WATCHDOG_USEC": "2000000"])
    var messages: [String] = []
    for _ in 0..<15 {
      daemon.signal(SIGHUP)
      while let message = socket.message(), message != "READY=1" { messages.append(message) }
    }
    #expect(messages.contains("WATCHDOG=1"), "\(messages)")
    daemon.signal(SIGTERM)
    #expect(daemon.finish().code == 0)
  }

  @Test("a watchdog that is meant for another process is not fed")
  func otherProcess() throws {
    let daemon = try serve(["WATCHDOG_USEC": "200000", "WATCHDOG_PID": "1"])
    daemon.signal(SIGHUP)
    #expect(socket.message()?.hasPrefix("RELOADING=1\n") == true)
    #expect(socket.message() == "READY=1")
    daemon.signal(SIGTERM)
    #expect(socket.message()?.hasPrefix("STOPPING=1\n") == true)
    #expect(daemon.finish().code == 0)
  }

  @Test("a daemon whose service manager does not listen runs on")
  func nobody() throws {
    let daemon = try tool.start(
      ["serve", "--listen", "127.0.0.1:0"],
      environment: ["NOTIFY_SOCKET": tool.scratch.path + "/nobody", "WATCHDOG_USEC": "200000"])
    #expect(daemon.firstLine() != nil, "\(daemon.err)")
    daemon.signal(SIGTERM)
    #expect(daemon.finish().code == 0)
  }
}

/// The socket of a service manager.
final class NotifySocket: Sendable {
  let path: String
  private let descriptor: Int32

  struct Failed: Error { let number = errno }

  init(at path: String) throws {
    self.path = path
    descriptor = socket(AF_UNIX, Int32(SOCK_DGRAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
    guard descriptor >= 0 else { throw Failed() }
    var address = sockaddr_un()
    address.sun_family = sa_family_t(AF_UNIX)
    unsafe withUnsafeMutableBytes(of: &address.sun_path) { unsafe $0.copyBytes(from: path.utf8) }
    let code = unsafe withUnsafePointer(to: address) { pointer in
      unsafe pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
        unsafe bind(descriptor, $0, socklen_t(MemoryLayout<sockaddr_un>.size))
      }
    }
    // A daemon that says nothing fails the test instead of holding it.
    var patience = timeval(tv_sec: 20, tv_usec: 0)
    unsafe setsockopt(
      descriptor, SOL_SOCKET, SO_RCVTIMEO, &patience, socklen_t(MemoryLayout<timeval>.size))
    guard code == 0 else { throw Failed() }
  }

  deinit { close(descriptor) }

  /// The next message that passes; nil after 20 s without one.
  func message(where passes: (String) -> Bool = { _ in true }) -> String? {
    var buffer = [UInt8](repeating: 0, count: 4096)
    while true {
      let count = unsafe recv(descriptor, &buffer, buffer.count, 0)
      guard count > 0 else { return nil }
      let message = String(decoding: buffer[..<count], as: UTF8.self)
      if passes(message) { return message }
    }
  }
}
