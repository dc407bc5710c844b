/// A directory of named stores.
public struct StoreRoot: Sendable {
  /// The absolute path of the directory.
  public let path: String
  /// How its stores are opened.
  public var configuration: Configuration
  let environment: Environment?

  /// The stores in `path`, which is created with the first of them; its parent must exist.
  public init(_ path: String, configuration: Configuration = Configuration()) {
    self.init(SystemCall.absolutePath(path), configuration: configuration, environment: nil)
  }

  /// A root with a given environment, for tests.
  package init(_ path: String, configuration: Configuration, environment: Environment?) {
    (self.path, self.configuration, self.environment) = (path, configuration, environment)
  }

  /// The user's own root: `$SYNC_ROOT`, else `$XDG_DATA_HOME/sync-stores`, else
  /// `$HOME/.local/share/sync-stores`.
  ///
  /// - Throws: `.notAStore` if none of the variables is set.
  public static func standard(configuration: Configuration = Configuration()) throws(StoreError) -> StoreRoot
  {
    StoreRoot(try standardPath("SYNC_ROOT", "sync-stores"), configuration: configuration)
  }

  static func standardPath(_ variable: String, _ name: String) throws(StoreError) -> String {
    if let path = SystemCall.environmentVariable(variable) { return path }
    if let data = SystemCall.environmentVariable("XDG_DATA_HOME") { return data + "/" + name }
    guard let home = SystemCall.environmentVariable("HOME") else {
      throw StoreError(
        .notAStore, "neither \(variable), XDG_DATA_HOME nor HOME says where stores are: set one")
    }
    return home + "/.local/share/" + name
  }

  /// The default store name.
  public static let defaultName = "default"

  var storage: any Storage { (environment ?? .real()).storage }

  /// The store of that name, opened or created at first use.
  ///
  /// - Parameter name: 1 to `Limits.nameBytes` bytes without blanks or slashes, and not beginning with a dot.
  /// - Throws: `.outOfBounds` if `name` is not valid.
  public func store(_ name: String = StoreRoot.defaultName, creates: Bool = true) throws(StoreError)
    -> StoreHandle
  {
    guard StoreIdentity.isName(name), !name.hasPrefix("."), !Self.isLeftover(name) else {
      throw StoreError(
        .outOfBounds,
        "\"\(name)\" cannot be a name: use 1 to \(Limits.nameBytes) bytes without blanks or slashes, and no dot before them",
        path: path)
    }
    let place = path + "/" + name
    if creates {
      _ = try storage.createDirectory(path)
      // Before the first store is created: a process that created the directory may have died before syncing
      // it.
      if try storage.status(place) == nil { try storage.syncParentDirectory(of: path) }
    }
    return StoreHandle.at(
      place, configuration: configuration, creates: creates, environment: environment)
  }

  private static func isLeftover(_ name: String) -> Bool {
    StagedDirectory.suffixes.contains { name.hasSuffix($0) }
  }

  /// The names of all stores in it, sorted.
  ///
  /// - Throws: `.inputOutput` if the directory cannot be listed; as `Store.exists(at:)`.
  public func names() throws(StoreError) -> [String] {
    guard try storage.status(path) != nil else { return [] }
    var names: [String] = []
    for name in try storage.list(path) where !Self.isLeftover(name) {
      if try Store.exists(at: path + "/" + name, storage) { names.append(name) }
    }
    return names
  }

  /// Whether there is a store of that name.
  ///
  /// - Throws: as `Store.exists(at:)`.
  public func contains(_ name: String) throws(StoreError) -> Bool {
    guard StoreIdentity.isName(name) else { return false }
    return try Store.exists(at: path + "/" + name, storage)
  }
}
