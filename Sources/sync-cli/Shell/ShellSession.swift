import SyncStore

/// The state of a shell between commands: passphrases, and names of stores.
///
/// A store is opened for each command and closed after it (decision 52).
final class ShellSession: Sendable {
  /// A passphrase that opened, or is to open, a store.
  private struct Known {
    let path: String
    /// The file that was named for it.
    let source: Argument?
    let passphrase: Passphrase
  }

  private struct State {
    var passphrases: [Known] = []
    var names: StringDictionary<String> = [:]
  }

  private let state = LockedField(State())
  /// Maximum number of stores whose passphrases are kept.
  private static let mostPassphrases = 8

  /// The passphrase of the store at `path`, the first time from `ask`. Its memory is zeroed at the end of the
  /// shell, or when it is forgotten.
  func passphrase(
    of path: String, _ source: Argument?, _ ask: () throws -> Passphrase
  ) throws -> Passphrase {
    if let known = knownPassphrase(of: path, source) { return known }
    let passphrase = try ask()
    state.withLock { state in
      if state.passphrases.count == Self.mostPassphrases { state.passphrases.removeFirst() }
      state.passphrases.append(Known(path: path, source: source, passphrase: passphrase))
    }
    return passphrase
  }

  /// The passphrase of the store at `path`, if it was given before.
  func knownPassphrase(of path: String, _ source: Argument?) -> Passphrase? {
    state.withLock { state in
      state.passphrases.first { $0.path == path && $0.source == source }?.passphrase
    }
  }

  /// Forgets all passphrases: one was wrong, or was changed.
  func forgetPassphrases() { state.withLock { $0.passphrases = [] } }

  /// Takes note of the name of an open store.
  func note(_ store: Store, at path: String) {
    let name = store.name
    state.withLock { $0.names[path] = name }
  }

  /// The name of the store at `path`, if a command has opened it.
  func name(of path: String) -> String? { state.withLock { $0.names[path] } }
}
