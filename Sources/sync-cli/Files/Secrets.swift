import SyncStore

/// Sources of passphrases: a file, the environment or the terminal, never the command line, which other users
/// can see.
enum Secrets {
  /// The option that names the passphrase file.
  static let option = Option(
    "passphrase-file", value: "FILE",
    "the first line of FILE opens an encrypted store (default: $SYNC_PASSPHRASE_FILE, $SYNC_PASSPHRASE, the terminal)"
  )

  /// The passphrase of the store.
  static func passphrase(_ invocation: Invocation) throws -> Passphrase {
    if let given = try given(invocation, option: "passphrase-file", variable: "SYNC_PASSPHRASE") {
      return given
    }
    if let credential = try credential("passphrase") { return credential }
    guard var bytes = Terminal.secret("passphrase: ") else {
      try Interruption.check()
      throw missing("passphrase", option: "--passphrase-file FILE", variable: "SYNC_PASSPHRASE")
    }
    return consume(&bytes)
  }

  /// A new passphrase; on the terminal it is asked for twice.
  static func newPassphrase(_ invocation: Invocation, isFirst: Bool = false) throws -> Passphrase {
    let (option, variable) =
      isFirst
      ? ("passphrase-file", "SYNC_PASSPHRASE") : ("new-passphrase-file", "SYNC_NEW_PASSPHRASE")
    if let given = try given(invocation, option: option, variable: variable) { return given }
    guard var first = Terminal.secret("new passphrase: "), var second = Terminal.secret("once more: ") else {
      try Interruption.check()
      throw missing("new passphrase", option: "--\(option) FILE", variable: variable)
    }
    guard first == second else {
      throw Failure(.usage, "passphrase: the two differ: try again")
    }
    _ = consume(&second)
    return consume(&first)
  }

  private static func given(
    _ invocation: Invocation, option: String, variable: String
  ) throws -> Passphrase? {
    if let file = invocation.value(option)?.bytes ?? System.environmentBytes(variable + "_FILE") {
      var bytes = try Descriptor.reading(file).readAll(limit: 1 << 16)
      var line = Array(bytes.prefix { $0 != 0x0A })
      erase(&bytes)
      guard !line.isEmpty else {
        throw Failure(.usage, "\(Text.printable(file)): its first line is empty: write the passphrase there")
      }
      return consume(&line)
    }
    guard var bytes = System.environmentBytes(variable) else { return nil }
    return consume(&bytes)
  }

  /// The first line of a credential of this service (`LoadCredential=`); nil if there is none, or if the line
  /// is empty: a unit for stores with and without a passphrase declares an empty one for the latter.
  private static func credential(_ name: String) throws(Failure) -> Passphrase? {
    guard let directory = System.environmentBytes("CREDENTIALS_DIRECTORY") else { return nil }
    let file: Descriptor
    do { file = try Descriptor.reading(directory + Array("/\(name)".utf8), waiting: false) } catch {
      guard error.code == .notFound else { throw error }
      return nil
    }
    var bytes = try file.readAll(limit: 1 << 16)
    var line = Array(bytes.prefix { $0 != 0x0A })
    erase(&bytes)
    return line.isEmpty ? nil : consume(&line)
  }

  private static func consume(_ bytes: inout [UInt8]) -> Passphrase {
    defer { erase(&bytes) }
    return Passphrase(bytes)
  }

  private static func erase(_ bytes: inout [UInt8]) { for index in bytes.indices { bytes[index] = 0 } }

  private static func missing(_ what: String, option: String, variable: String) -> Failure {
    Failure(
      .refused,
      "\(what): there is no terminal to ask at: give \(option), or set \(variable)_FILE or \(variable)")
  }
}
