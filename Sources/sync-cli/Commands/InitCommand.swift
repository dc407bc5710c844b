import Replication
import SyncStore

/// `init`: a new store.
enum InitCommand {
  static let command = Command(
    "init", "create a store",
    options: [
      Option("name", value: "NAME", "what this copy is called among its peers (default: the host's name)"),
      Option("encrypt", "encrypt keys and values under a passphrase, which is asked for"),
    ],
    notes: """
      Makes the directory, the identity of this device, and the key that all copies will share. One that was interrupted
      is finished when it is run again; where there is a store that is complete it ends with 2.
      """
  ) { invocation, output in
    let path = try invocation.storePath()
    let wish = invocation.value("name")?.text
    var configuration = invocation.configuration(.exclusive)
    if !invocation.has("encrypt"), invocation.has(Secrets.option.name) {
      throw invocation.usage(
        "--\(Secrets.option.name)", reason: "without --encrypt the store would be a plain one",
        advice: "add --encrypt, or leave it out")
    }
    try makeParent(of: path)
    if invocation.has("encrypt") {
      configuration.passphrase = try Secrets.newPassphrase(invocation, isFirst: true)
    }
    let store = try create(at: path, name: wish ?? defaultName, configuration)
    try Node.prepare(store, name: wish ?? store.name)
    try invocation.report(
      "created \(store.name) in \(path)",
      json: ["path": .string(path), "name": .string(store.name), "store": .string(store.id.description)],
      output)
    try store.close()
    return .done
  }.printing(JSONReference.initial)

  /// Creates a store, or continues one whose `init` was interrupted between its two steps.
  private static func create(
    at path: String, name: String, _ configuration: Configuration
  ) throws -> Store {
    do { return try Store.create(at: path, name: name, configuration: configuration) } catch let error {
      // Even if it cannot be inspected, there is a store.
      guard error.code == .alreadyExists, (try? isUnfinished(at: path, configuration)) ?? false else {
        throw error
      }
      return try Store.open(at: path, configuration: configuration)
    }
  }

  /// Whether there are no members yet, not even this copy. A copy that joined but never pulled has its
  /// inviter as a peer: its `init` is not unfinished.
  private static func isUnfinished(at path: String, _ configuration: Configuration) throws -> Bool {
    var looking = configuration
    looking.mode = .readOnly
    let store = try Store.open(at: path, configuration: looking)
    defer { try? store.close() }
    let membership = Membership(store)
    return try membership.members().isEmpty && membership.peers().isEmpty
  }

  /// The host's name, without its domain.
  static var defaultName: String {
    String(System.hostName.prefix { $0 != "." }.prefix(Limits.nameBytes))
  }

  /// Creates the directories above a new store, as durably as the store itself.
  static func makeParent(of path: String) throws {
    // Compared as bytes, like in the kernel: a slash followed by a combining character is one too.
    guard let slash = path.utf8.lastIndex(of: UInt8(ascii: "/")), slash > path.startIndex else { return }
    try Descriptor.makeDirectories(Array(path.utf8[..<slash]), durably: true)
  }
}
