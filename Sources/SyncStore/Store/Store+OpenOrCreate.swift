/// Opening a store whether or not it exists yet.
extension Store {
  /// Opens the store in `path`, or creates it if there is none. Of several processes that do so concurrently,
  /// one creates it.
  ///
  /// ```swift
  /// let store = try Store.openOrCreate(at: "settings", configuration: Configuration(mode: .shared))
  /// ```
  ///
  /// - Parameters:
  ///   - path: a directory whose parent exists.
  ///   - name: the name for a new store; by default the directory's name.
  ///   - configuration: how it is opened. In read-only mode nothing is created.
  /// - Throws: as `open`, and as `create`.
  public static func openOrCreate(
    at path: String, name: String? = nil, configuration: Configuration = Configuration()
  ) throws(StoreError) -> Store {
    try openOrCreate(
      at: path, name: name, configuration: configuration,
      environment: .real(handlesSignals: configuration.handlesSignals))
  }

  /// `openOrCreate` with an explicit environment, for tests.
  package static func openOrCreate(
    at path: String, name: String? = nil, configuration: Configuration, environment: Environment
  ) throws(StoreError) -> Store {
    var isThere = configuration.mode == .readOnly
    if !isThere { isThere = try exists(at: path, environment.storage) }
    if isThere {
      return try open(at: path, configuration: configuration, environment: environment)
    }
    do throws(StoreError) {
      return try create(
        at: path, name: name, id: nil, configuration: configuration, environment: environment)
    } catch {
      // Another process created it first.
      guard error.code == .alreadyExists, try exists(at: path, environment.storage) else { throw error }
      return try open(at: path, configuration: configuration, environment: environment)
    }
  }
}
