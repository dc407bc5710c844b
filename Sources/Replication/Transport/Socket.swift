private import CLinux
private import Glibc
internal import SyncStore

/// A non-blocking TCP socket, closed when its owner releases it.
///
/// This is one of the few files that use `unsafe`: the operating system takes pointers and counts.
struct Socket: ~Copyable {
  /// The result of a read.
  enum Reading {
    case bytes([UInt8])
    /// No bytes are available yet.
    case wouldBlock
    /// The other side has closed its direction.
    case end
    case failed(Int32)
  }

  /// The result of a write.
  enum Writing {
    case wrote(Int)
    /// No room at the moment.
    case wouldBlock
    case failed(Int32)
  }

  /// The result of an accept.
  enum Accepting: ~Copyable {
    case accepted(Socket, from: SocketAddress)
    /// No connection is waiting.
    case wouldBlock
    /// Descriptors or memory are exhausted (F33).
    case exhausted
    /// The connection was closed before it could be accepted.
    case gone
  }

  let descriptor: Int32

  private init(descriptor: Int32) { self.descriptor = SystemCall.moveAboveStdio(descriptor) }

  deinit { close(descriptor) }

  /// Creates a socket that is bound to `address` and accepts connections.
  static func listening(at address: SocketAddress) throws(ReplicationError) -> Socket {
    let socket = try Socket.open(family: address.family, for: "listen on \(address)")
    socket.set(level: SOL_SOCKET, option: SO_REUSEADDR, to: 1)
    if address.family == AF_INET6 {
      socket.set(level: Int32(IPPROTO_V6), option: IPV6_V6ONLY, to: address.isWildcard ? 0 : 1)
    }
    try address.removeStaleUnixSocket()
    let bound = unsafe address.withPointer { unsafe bind(socket.descriptor, $0, $1) }
    guard bound == 0, listen(socket.descriptor, 4096) == 0 else {
      throw ReplicationError(
        .network,
        "cannot listen on \(address): \(SystemCall.text(of: errno)): choose another address or port")
    }
    address.openToGroup()
    return socket
  }

  /// Creates a socket that connects to `address`. It becomes writable when the attempt ends; then read
  /// `pendingError`.
  static func connecting(to address: SocketAddress) throws(ReplicationError) -> Socket {
    let socket = try Socket.open(family: address.family, for: "connect to \(address)")
    let code = unsafe address.withPointer { unsafe connect(socket.descriptor, $0, $1) }
    guard code == 0 || errno == EINPROGRESS || errno == EINTR else {
      throw ReplicationError(
        .network, "cannot connect to \(address): \(SystemCall.text(of: errno)): check that it is up")
    }
    socket.sendAtOnce()
    socket.boundRetransmission()
    return socket
  }

  /// Accepts the next waiting connection.
  func accept() -> Accepting {
    var count = UInt32(SocketAddress.capacity)
    var bytes = [UInt8](repeating: 0, count: SocketAddress.capacity)
    let accepted = SystemCall.retrying {
      unsafe bytes.withUnsafeMutableBytes { unsafe sync_accept(descriptor, $0.baseAddress, &count) }
    }
    guard accepted >= 0 else {
      switch errno {
      case EAGAIN: return .wouldBlock
      case EMFILE, ENFILE, ENOBUFS, ENOMEM: return .exhausted
      default: return .gone
      }
    }
    let socket = Socket(descriptor: accepted)
    socket.sendAtOnce()
    socket.boundRetransmission()
    return .accepted(socket, from: SocketAddress(raw: Array(bytes.prefix(Int(count)))))
  }

  /// Reads up to `count` available bytes.
  func read(_ count: Int) -> Reading {
    var done = 0
    let bytes = unsafe [UInt8](unsafeUninitializedCapacity: count) { buffer, filled in
      done = SystemCall.retrying { unsafe recv(descriptor, buffer.baseAddress, count, 0) }
      filled = max(0, done)
    }
    if done > 0 { return .bytes(bytes) }
    if done == 0 { return .end }
    return errno == EAGAIN ? .wouldBlock : .failed(errno)
  }

  /// Writes as much of `bytes` from `offset` on as there is room for. A closed connection raises no signal.
  func write(_ bytes: [UInt8], from offset: Int) -> Writing {
    let done = unsafe bytes.withUnsafeBytes { source in
      SystemCall.retrying {
        unsafe send(descriptor, source.baseAddress! + offset, source.count - offset, Int32(MSG_NOSIGNAL))
      }
    }
    if done >= 0 { return .wrote(done) }
    return errno == EAGAIN ? .wouldBlock : .failed(errno)
  }

  /// Closes the sending direction.
  func endWriting() { _ = shutdown(descriptor, Int32(SHUT_WR)) }

  /// The error of the connection or the connection attempt; nil if none.
  var pendingError: Int32? {
    var code: Int32 = 0
    var count = socklen_t(MemoryLayout<Int32>.size)
    guard unsafe getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &code, &count) == 0 else { return errno }
    return code == 0 ? nil : code
  }

  /// The local address.
  var localAddress: SocketAddress {
    unsafe SocketAddress { unsafe getsockname(descriptor, $0, $1) }
  }

  fileprivate static func open(family: Int32, for purpose: String) throws(ReplicationError) -> Socket {
    let descriptor = sync_stream_socket(family)
    guard descriptor >= 0 else {
      throw ReplicationError(
        .network,
        "cannot \(purpose): \(SystemCall.text(of: errno)): raise the limit on open files (ulimit -n)")
    }
    return Socket(descriptor: descriptor)
  }

  // Messages are already assembled before they are sent: Nagle's algorithm would only delay them.
  private func sendAtOnce() { set(level: Int32(IPPROTO_TCP), option: TCP_NODELAY, to: 1) }

  // tcp(7). By default the kernel retransmits for a quarter of an hour. Where the option is refused, the
  // pings of the session detect the loss, later.
  private func boundRetransmission() {
    set(level: Int32(IPPROTO_TCP), option: TCP_USER_TIMEOUT, to: Int32(Limits.unacknowledgedSeconds * 1000))
  }

  private func set(level: Int32, option: Int32, to value: Int32) {
    var value = value
    _ = unsafe setsockopt(descriptor, level, option, &value, socklen_t(MemoryLayout<Int32>.size))
  }
}

// Its name in <netinet/in.h> is both a macro and an enumeration case.
private let IPPROTO_V6 = 41

/// An address and a port, in the operating system's representation.
package struct SocketAddress: Hashable, Sendable, CustomStringConvertible {
  static let capacity = 128
  private let raw: [UInt8]

  init(raw: [UInt8]) { self.raw = raw }

  fileprivate init(_ fill: (UnsafeMutablePointer<sockaddr>, UnsafeMutablePointer<socklen_t>) -> Int32) {
    var bytes = [UInt8](repeating: 0, count: Self.capacity)
    var count = socklen_t(Self.capacity)
    let code = unsafe bytes.withUnsafeMutableBytes {
      unsafe fill($0.baseAddress!.assumingMemoryBound(to: sockaddr.self), &count)
    }
    raw = code == 0 ? Array(bytes.prefix(Int(count))) : []
  }

  /// The address of a Unix socket; nil if the path is longer than the operating system takes, or empty.
  package init?(unixPath path: [UInt8]) {
    // The size of `sun_path`, which ends with a zero byte.
    guard !path.isEmpty, path.count < 108, !path.contains(0) else { return nil }
    raw = [UInt8(AF_UNIX), 0] + path + [0]
  }

  /// Removes the file of a Unix socket that no process listens at any more; connects to find out.
  ///
  /// - Throws: `.network` if a process listens there, or something other than a socket has the path.
  fileprivate func removeStaleUnixSocket() throws(ReplicationError) {
    guard let path = unixPath else { return }
    var status = stat()
    guard unsafe lstat(path, &status) == 0 else { return }
    guard status.st_mode & S_IFMT == S_IFSOCK else {
      throw ReplicationError(
        .network, "cannot listen on \(self): another file is there: remove it, or choose another path")
    }
    let socket = try Socket.open(family: family, for: "listen on \(self)")
    if unsafe withPointer({ unsafe connect(socket.descriptor, $0, $1) }) == 0 {
      throw ReplicationError(
        .network, "cannot listen on \(self): another process does: end it, or choose another path")
    }
    guard errno == ECONNREFUSED else {
      throw ReplicationError(
        .network, "cannot listen on \(self): \(SystemCall.text(of: errno)): choose another path")
    }
    _ = unsafe unlink(path)
  }

  /// Lets the group of the socket's file connect, too.
  fileprivate func openToGroup() { if let path = unixPath { _ = unsafe chmod(path, 0o660) } }

  /// The file of a Unix socket, whatever its path leads to later; nil for other addresses.
  package var unixFile: (device: UInt64, inode: UInt64)? {
    var status = stat()
    guard let path = unixPath, unsafe lstat(path, &status) == 0 else { return nil }
    return (UInt64(status.st_dev), UInt64(status.st_ino))
  }

  /// Removes the file of a Unix socket, unless another one has taken its path.
  package func removeUnixSocket(_ file: (device: UInt64, inode: UInt64)?) {
    guard let file, let path = unixPath, let present = unixFile, present == file else { return }
    _ = unsafe unlink(path)
  }

  /// The path of a Unix socket as C takes it; nil for other addresses.
  private var unixPath: [CChar]? {
    family == AF_UNIX ? raw.dropFirst(2).map { CChar(bitPattern: $0) } : nil
  }

  /// Resolves `host` (a name, or an address as text) with `port`.
  ///
  /// **Blocks, for seconds if necessary**: never call it on the loop. With `listening`, the empty host means
  /// the wildcard address instead of loopback.
  package static func resolve(_ endpoint: Endpoint, listening: Bool = false) throws(ReplicationError)
    -> [SocketAddress]
  {
    var hints = unsafe addrinfo()
    unsafe hints.ai_socktype = Int32(SOCK_STREAM.rawValue)
    unsafe hints.ai_flags = AI_NUMERICSERV | (listening ? AI_PASSIVE : 0)
    var list: UnsafeMutablePointer<addrinfo>?
    let host: String? = endpoint.host.isEmpty ? nil : endpoint.host
    let code = unsafe getaddrinfo(host, String(endpoint.port), &hints, &list)
    guard code == 0 else {
      throw ReplicationError(
        .network,
        "cannot find \(endpoint): \(unsafe String(cString: gai_strerror(code))): check the name, or give an address"
      )
    }
    defer { unsafe freeaddrinfo(list) }
    var addresses: [SocketAddress] = []
    var next = unsafe list
    while let entry = unsafe next {
      let bytes = unsafe UnsafeRawBufferPointer(
        start: entry.pointee.ai_addr, count: Int(entry.pointee.ai_addrlen))
      let address = unsafe SocketAddress(raw: Array(bytes))
      if !addresses.contains(address) { addresses.append(address) }
      unsafe next = entry.pointee.ai_next
    }
    // An IPv6 socket can serve IPv4 too, but not the reverse.
    if endpoint.host.isEmpty, listening { addresses.sort { $0.family == AF_INET6 && $1.family != AF_INET6 } }
    return addresses
  }

  /// The addresses at which other machines may reach this one, without link-local ones.
  package static func ofThisMachine() -> [String] {
    var hosts: [String] = []
    _ = forEachOfThisMachine { host, _ in
      if host.hasPrefix("127.") || host == "::1" || host.hasPrefix("fe80:") { return }
      if !hosts.contains(host) { hosts.append(host) }
    }
    return hosts
  }

  /// The addresses of this machine on running links, as `host` formats them, and all its addresses; nil if
  /// they cannot be listed.
  static func present() -> (running: StringSet, all: StringSet)? {
    var (running, all): (StringSet, StringSet) = ([], [])
    let isKnown = forEachOfThisMachine { host, isRunning in
      all.insert(host)
      if isRunning { running.insert(host) }
    }
    return isKnown ? (running, all) : nil
  }

  /// Calls `body` with each IPv4 and IPv6 address of this machine (`getifaddrs`) and whether its link is
  /// running. False if they cannot be listed.
  private static func forEachOfThisMachine(_ body: (_ host: String, _ isRunning: Bool) -> Void) -> Bool {
    var list: UnsafeMutablePointer<ifaddrs>?
    guard unsafe getifaddrs(&list) == 0 else { return false }
    defer { unsafe freeifaddrs(list) }
    var next = unsafe list
    while let entry = unsafe next {
      unsafe next = entry.pointee.ifa_next
      guard let address = unsafe entry.pointee.ifa_addr else { continue }
      let count: Int
      switch unsafe Int32(address.pointee.sa_family) {
      case AF_INET: count = MemoryLayout<sockaddr_in>.size
      case AF_INET6: count = MemoryLayout<sockaddr_in6>.size
      default: continue
      }
      let bytes = unsafe Array(UnsafeRawBufferPointer(start: address, count: count))
      let isRunning = unsafe entry.pointee.ifa_flags & UInt32(sync_link_running) != 0
      body(SocketAddress(raw: bytes).host, isRunning)
    }
    return true
  }

  /// Whether it is that of a Unix socket.
  package var isUnix: Bool { family == AF_UNIX }

  /// Whether it is a loopback address, which no link can remove.
  package var isLoopback: Bool { host == "::1" || host.hasPrefix("127.") }

  /// The address without the port, as text; an IPv4-mapped IPv6 address is returned as IPv4.
  package var host: String { name.host }
  /// The port.
  package var port: UInt16 { name.port }
  /// `host:port`, `[host]:port` for IPv6.
  package var description: String {
    guard let path = unixPath else { return Endpoint(host: host, port: port).description }
    return "unix:" + String(decoding: path.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self)
  }

  /// The key for counting attempts: the address, or the first 64 bits of an IPv6 address, since a holder of
  /// one has the whole /64.
  var network: String {
    // The offset of the address in `sockaddr_in6`.
    guard family == AF_INET6, raw.count >= 24 else { return host }
    let address = raw[8..<24]
    let isMapped =
      address.prefix(10).allSatisfy { $0 == 0 } && address.dropFirst(10).prefix(2) == [0xFF, 0xFF]
    return isMapped ? host : Hex.string(of: Array(address.prefix(8))) + "/64"
  }

  var family: Int32 { raw.count < 2 ? AF_UNSPEC : Int32(UInt16(raw[0]) | UInt16(raw[1]) << 8) }
  fileprivate var isWildcard: Bool { ["::", "0.0.0.0"].contains(host) }

  private var name: (host: String, port: UInt16) {
    var host = [CChar](repeating: 0, count: 1025)
    var service = [CChar](repeating: 0, count: 32)
    let code = unsafe withPointer {
      unsafe getnameinfo(
        $0, $1, &host, socklen_t(host.count), &service, socklen_t(service.count),
        NI_NUMERICHOST | NI_NUMERICSERV)
    }
    guard code == 0 else { return ("unknown", 0) }
    func text(_ field: [CChar]) -> String {
      String(decoding: field.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
    }
    let address = text(host)
    let mapped = "::ffff:"
    let plain =
      address.hasPrefix(mapped) && address.contains(".") ? String(address.dropFirst(mapped.count)) : address
    return (plain, UInt16(text(service)) ?? 0)
  }

  fileprivate func withPointer<Result>(_ body: (UnsafePointer<sockaddr>, socklen_t) -> Result) -> Result {
    // A copy with the size and alignment of the largest address type.
    var storage = sockaddr_storage()
    return unsafe withUnsafeMutableBytes(of: &storage) { buffer in
      unsafe buffer.copyBytes(from: raw.prefix(buffer.count))
      return unsafe body(buffer.baseAddress!.assumingMemoryBound(to: sockaddr.self), socklen_t(raw.count))
    }
  }
}
