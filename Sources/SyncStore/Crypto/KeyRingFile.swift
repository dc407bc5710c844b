/// The file `keys/ring` of an encrypted store: the part readable without the passphrase.
///
/// Text, so that a person can see what it is; `schemas/keys.md` has its layout.
struct KeyRingFile: Equatable, Sendable {
  /// Derivation of a key from the passphrase.
  struct PassphraseKDF: Equatable, Sendable {
    var parameters: Scrypt.Parameters
    var salt: [UInt8]

    /// The key that wraps all others; nil if the parameters are out of bounds, or memory is short.
    func key(_ passphrase: Secret) -> Secret? {
      Scrypt.derive(KeyRing.keyBytes, from: passphrase, salt: salt, parameters)
    }
  }

  /// A key wrapped under another one: nonce, ciphertext and tag.
  struct Wrapped: Equatable {
    var nonce: [UInt8]
    var encrypted: [UInt8]
  }

  var store: StoreID
  var lock: PassphraseKDF
  var current: UInt32
  var acceptsPlain: Bool
  var generations: [UInt32]

  static let saltBytes = 32
  /// Maximum bytes of a file and maximum number of generations in it: only a few are in use at a time.
  static let limit = 16 << 10
  static let mostGenerations = 16
  private static let heading = "syncstore-keys 1"

  static let secretName = "secret"
  static func masterName(_ generation: UInt32) -> String { "master \(generation)" }
  static func linkName(_ generation: UInt32) -> String { "link \(generation)" }

  // MARK: Wrapping

  /// The unencrypted lines, authenticated by every wrapped key.
  private var clear: [String] {
    [
      Self.heading, "store \(store)",
      "scrypt \(lock.parameters.logN) \(lock.parameters.r) \(lock.parameters.p) \(Hex.string(of: lock.salt))",
      "seals \(current)", "plain \(acceptsPlain ? 1 : 0)",
      "generations" + generations.map { " \($0)" }.joined(),
    ]
  }

  private func header(_ name: String) -> [UInt8] {
    Array((clear.joined(separator: "\n") + "\nof \(name)\n").utf8)
  }

  /// Wraps a key. The nonce depends on the whole plaintext: repeated randomness repeats it only for identical
  /// input.
  func wrap(_ key: Secret, as name: String, under wrapping: Secret, random: (Int) -> [UInt8]) -> Wrapped {
    let header = header(name)
    var plain = key.copy()
    var under = wrapping.copy()
    var nonces = HKDFSHA256.derive(32, secret: under, salt: [], info: Array("syncstore keys nonce v1".utf8))
    var own = HKDFSHA256.derive(32, secret: under, salt: [], info: Array("syncstore keys wrap v1".utf8))
    defer {
      Secret.zero(&plain)
      Secret.zero(&under)
      Secret.zero(&nonces)
      Secret.zero(&own)
    }
    let nonce = Array(
      HMACSHA256.code(for: random(32) + header + plain, key: nonces).prefix(AES256GCM.nonceBytes))
    return Wrapped(
      nonce: nonce, encrypted: AES256GCM.encrypt(plain, key: own, nonce: nonce, authenticating: header))
  }

  /// Unwraps a key. Nil if the wrapping key is another, or anything was changed.
  func unwrap(_ wrapped: Wrapped?, as name: String, under wrapping: Secret) -> Secret? {
    guard let wrapped else { return nil }
    var under = wrapping.copy()
    var own = HKDFSHA256.derive(32, secret: under, salt: [], info: Array("syncstore keys wrap v1".utf8))
    defer {
      Secret.zero(&under)
      Secret.zero(&own)
    }
    guard
      var key = try? AES256GCM.decrypt(
        wrapped.encrypted, key: own, nonce: wrapped.nonce, authenticating: header(name)),
      key.count == KeyRing.keyBytes
    else { return nil }
    return Secret(taking: &key)
  }

  /// Proves to a process that has the store open, but may not know the present passphrase, that the
  /// unencrypted part is authentic.
  func proof(_ secret: Secret) -> [UInt8] {
    var bytes = secret.copy()
    var key = HKDFSHA256.derive(32, secret: bytes, salt: [], info: Array("syncstore keys proof v1".utf8))
    defer {
      Secret.zero(&bytes)
      Secret.zero(&key)
    }
    return HMACSHA256.code(for: header("proof"), key: key)
  }

  // MARK: Text

  func text(_ entries: StringDictionary<Wrapped>, proof: [UInt8]) -> [UInt8] {
    var lines = clear
    for name in names {
      guard let entry = entries[name] else { preconditionFailure("every key of a ring is wrapped") }
      lines.append("\(name) \(Hex.string(of: entry.nonce)) \(Hex.string(of: entry.encrypted))")
    }
    lines.append("proof \(Hex.string(of: proof))")
    lines.append(Self.checksum(lines))
    return Array((lines.joined(separator: "\n") + "\n").utf8)
  }

  /// Names of all wrapped keys, in the order of the file.
  private var names: [String] {
    [Self.secretName] + generations.map(Self.masterName) + generations.dropFirst().map(Self.linkName)
  }

  private static func checksum(_ lines: [String]) -> String {
    let hash = XXH3.hash64(Array(lines.joined(separator: "\n").utf8), seed: 0)
    return "checksum " + String(hash, radix: 16)
  }

  /// Reads a file. No expensive computation can be forced by an untrusted file (F86).
  static func read(
    _ bytes: [UInt8], path: String
  ) throws(StoreError) -> (file: KeyRingFile, entries: StringDictionary<Wrapped>, proof: [UInt8]) {
    guard bytes.count <= limit, let text = String(validating: bytes, as: UTF8.self) else {
      throw StoreError(.foreignFile, "is not a key file: restore it from a backup", path: path)
    }
    let lines = text.split(separator: "\n", omittingEmptySubsequences: false).map(String.init)
    guard let first = lines.first, first.hasPrefix("syncstore-keys ") else {
      throw StoreError(.foreignFile, "is not a key file: restore it from a backup", path: path)
    }
    guard lines.count > 8, lines[lines.count - 1].isEmpty,
      lines[lines.count - 2] == checksum(Array(lines.dropLast(2)))
    else { throw StoreError(.damaged, "does not match its checksum: restore it from a backup", path: path) }
    guard first == heading else {
      throw StoreError(
        .newerFormat, "says \"\(first)\", this program knows \"\(heading)\": update it", path: path)
    }
    guard let file = parse(lines) else {
      throw StoreError(.damaged, "lacks a field: restore it from a backup", path: path)
    }
    guard file.lock.parameters.areBounded else {
      throw StoreError(
        .outOfBounds,
        "asks for a key derivation (scrypt) that is out of bounds: it was not written by this program; "
          + "restore it from a backup", path: path)
    }
    var entries: StringDictionary<Wrapped> = [:]
    var next = file.clear.count
    for name in file.names {
      guard lines.indices.contains(next), let entry = wrapped(lines[next], name) else {
        throw StoreError(.damaged, "lacks the key \"\(name)\": restore it from a backup", path: path)
      }
      entries[name] = entry
      next += 1
    }
    // The exact form is required: one ring has one file.
    guard lines.indices.contains(next), let proof = hex(lines[next], "proof "), proof.count == 32,
      next == lines.count - 3, Array(lines.prefix(file.clear.count)) == file.clear
    else { throw StoreError(.damaged, "is not in the form it was written: restore it", path: path) }
    return (file, entries, proof)
  }

  private static func parse(_ lines: [String]) -> KeyRingFile? {
    guard let store = field(lines[1], "store ").flatMap({ StoreID($0) }),
      let scrypt = field(lines[2], "scrypt ")?.split(separator: " "), scrypt.count == 4,
      let logN = Int(scrypt[0]), let r = Int(scrypt[1]), let p = Int(scrypt[2]),
      let salt = Hex.bytes(of: scrypt[3]), salt.count == saltBytes,
      let current = field(lines[3], "seals ").flatMap({ UInt32($0) }),
      let plain = field(lines[4], "plain "), plain == "0" || plain == "1",
      let numbers = field(lines[5], "generations ")?.split(separator: " ")
    else { return nil }
    let generations = numbers.compactMap { UInt32($0) }
    guard !generations.isEmpty, generations.count == numbers.count, generations.count <= mostGenerations,
      zip(generations, generations.dropFirst()).allSatisfy({ $0 < $1 }), generations[0] > 0,
      current == 0 ? plain == "1" : generations.contains(current)
    else { return nil }
    return KeyRingFile(
      store: store, lock: PassphraseKDF(parameters: Scrypt.Parameters(logN: logN, r: r, p: p), salt: salt),
      current: current, acceptsPlain: plain == "1", generations: generations)
  }

  private static func wrapped(_ line: String, _ name: String) -> Wrapped? {
    guard let parts = field(line, name + " ")?.split(separator: " "), parts.count == 2,
      let nonce = Hex.bytes(of: parts[0]), nonce.count == AES256GCM.nonceBytes,
      let encrypted = Hex.bytes(of: parts[1]), encrypted.count == KeyRing.keyBytes + AES256GCM.tagBytes
    else { return nil }
    return Wrapped(nonce: nonce, encrypted: encrypted)
  }

  private static func field(_ line: String, _ name: String) -> String? {
    line.hasPrefix(name) ? String(line.dropFirst(name.count)) : nil
  }

  private static func hex(_ line: String, _ name: String) -> [UInt8]? {
    field(line, name).flatMap { Hex.bytes(of: $0) }
  }

  // MARK: Unlocking

  /// Unlocks the keys of a file.
  ///
  /// - Parameter derive: derives a key from the passphrase.
  /// - Throws: `.wrongKey` if the passphrase is another, or the unencrypted part was changed.
  static func unlock(
    _ bytes: [UInt8], passphrase: Secret, path: String,
    derive: (PassphraseKDF, Secret) -> Secret? = { $0.key($1) }
  ) throws(StoreError) -> KeyRing {
    let (file, entries, proof) = try read(bytes, path: path)
    guard let wrapping = derive(file.lock, passphrase) else {
      throw StoreError(
        .inputOutput, "there is no memory to derive the key from the passphrase: free some", path: path)
    }
    var masters: [UInt32: Secret] = [:]
    for generation in file.generations {
      let name = masterName(generation)
      masters[generation] = file.unwrap(entries[name], as: name, under: wrapping)
    }
    guard let secret = file.unwrap(entries[secretName], as: secretName, under: wrapping),
      masters.count == file.generations.count, constantTimeEquals(proof, file.proof(secret))
    else {
      throw StoreError(.wrongKey, "the passphrase is wrong: give the one that was set last", path: path)
    }
    return KeyRing(file: file, masters: masters, secret: secret, wrapping: wrapping)
  }
}
