import Foundation
import Glibc
import SyncTestSupport

/// Two hosts with a network of their own: network namespaces connected by a virtual cable (ip-netns(8),
/// veth(4)). Their addresses are reserved for documentation (RFC 5737). Needs superuser rights and iproute2.
final class HostPair: Sendable {
  static let addresses = ["192.0.2.1", "192.0.2.2"]

  private static let program = ["/usr/sbin/ip", "/sbin/ip"].first {
    FileManager.default.isExecutableFile(atPath: $0)
  }

  /// Whether this process can create a pair.
  static let isAvailable = geteuid() == 0 && (try? HostPair()) != nil

  struct Failure: Error, CustomStringConvertible {
    let description: String
  }

  /// The names of the namespaces.
  private let names: [String]

  init() throws {
    let number = UUID().uuidString.prefix(8).lowercased()
    names = ["a", "b"].map { "sync-test-\(number)-\($0)" }
    for name in names { try Self.ip("netns", "add", name) }
    try Self.ip(
      "link", "add", "cable", "netns", names[0], "type", "veth", "peer", "name", "cable", "netns", names[1])
    for (name, address) in zip(names, Self.addresses) {
      try Self.ip("-n", name, "address", "add", address + "/24", "dev", "cable")
      for link in ["lo", "cable"] { try Self.ip("-n", name, "link", "set", link, "up") }
    }
  }

  deinit { for name in names { try? Self.ip("netns", "delete", name) } }

  /// Command prefix that starts a program on one of the hosts, 0 or 1.
  func launcher(of host: Int) -> [String] { [Self.program ?? "", "netns", "exec", names[host]] }

  /// Drops all packets silently in both directions: each host sends to a link-layer address that does not
  /// exist.
  func cut() throws { for host in [0, 1] { try cut(from: host) } }

  /// Drops the packets that this host sends, silently; those of the other one still arrive.
  func cut(from host: Int) throws {
    for (name, other) in [(names[host], Self.addresses[1 - host])] {
      try Self.ip(
        "-n", name, "neighbour", "replace", other, "lladdr", "02:00:00:00:00:01", "dev", "cable", "nud",
        "permanent")
    }
  }

  /// Restores both directions.
  func mend() throws { for host in [0, 1] { try mend(from: host) } }

  /// Restores the packets that this host sends.
  func mend(from host: Int) throws {
    for (name, other) in [(names[host], Self.addresses[1 - host])] {
      try Self.ip("-n", name, "neighbour", "delete", other, "dev", "cable")
    }
  }

  /// Replaces the host's address.
  func move(_ host: Int, from old: String, to new: String) throws {
    try Self.ip("-n", names[host], "address", "delete", old + "/24", "dev", "cable")
    try Self.ip("-n", names[host], "address", "add", new + "/24", "dev", "cable")
  }

  /// Unplugs the host's cable or plugs it in again; both kernels see the link state.
  func plug(_ host: Int, isIn: Bool) throws {
    try Self.ip("-n", names[host], "link", "set", "cable", isIn ? "up" : "down")
  }

  private static func ip(_ words: String...) throws {
    guard let program else { throw Failure(description: "there is no ip: install iproute2") }
    let result = try ChildProcess.run([program] + words)
    guard result.code == 0 else {
      throw Failure(description: "ip \(words.joined(separator: " ")): \(result.text)")
    }
  }
}
