import Replication
import SyncStore

/// `init`: a new store.
enum InitCommand {
  static let command = Command(
    "init", "create a store",
    options: [
      Option("name", value: "NAME", "what this copy is called among its peers (default: the host's name)"),
      Option("encrypt", "seal keys and values under a passphrase, which is asked for"),
    ],
    notes: """
      Makes the directory, the identity of this device, and the key that all copies will share.
      """
  ) { invocation, output in
    let path = try invocation.storePath()
    let name = invocation.value("name")?.text ?? defaultName
    var configuration = invocation.configuration(.exclusive)
    if !invocation.has("encrypt"), invocation.has(Secrets.option.name) {
      throw invocation.usage(
        "--\(Secrets.option.name)", "without --encrypt the store would be a plain one",
        "add --encrypt, or leave it out")
    }
    try makeParent(of: path)
    if invocation.has("encrypt") {
      configuration.passphrase = try Secrets.newPassphrase(invocation, isFirst: true)
    }
    let store = try Store.create(at: path, name: name, configuration: configuration)
    try Node.prepare(store, name: name)
    try invocation.tell(
      "created \(store.name) in \(path)",
      json: ["path": .string(path), "name": .string(store.name), "store": .string(store.id.description)],
      output)
    try store.close()
    return .done
  }

  /// The host's name, without its domain.
  static var defaultName: String {
    String(System.hostName.prefix { $0 != "." }.prefix(Limits.nameBytes))
  }

  /// Makes the directories above a store that is to be made, durably as the store will be.
  static func makeParent(of path: String) throws {
    guard let slash = path.lastIndex(of: "/"), slash > path.startIndex else { return }
    try Descriptor.makeDirectories(Array(path[..<slash].utf8), durably: true)
  }
}
