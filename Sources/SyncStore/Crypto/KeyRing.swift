/// The unlocked keys of an encrypted store. A value; its file is `KeyRingFile`.
///
/// Invariants: generations ascend and are never reused in a store; new data is encrypted under `current`,
/// which is 0 while a store is being decrypted; `secret` never changes for a store.
struct KeyRing: Sendable {
  /// The store that the keys belong to.
  let store: StoreID
  /// The cost of a guess at the passphrase, and its salt.
  private(set) var lock: KeyRingFile.PassphraseKDF
  /// The generation that encrypts new data; 0 for none.
  private(set) var current: UInt32
  /// Whether the store also has unencrypted segments.
  private(set) var acceptsPlain: Bool
  /// The master keys, 32 bytes each.
  private(set) var masters: [UInt32: Secret]
  /// 32 bytes that survive key rotation: the root of the keys for names and hashes.
  let secret: Secret
  /// The key that wraps all others, derived from the passphrase.
  private var wrapping: Secret

  /// Bytes of each key.
  static let keyBytes = 32

  /// New keys for a store. Nil if the key derivation fails: out of memory, or parameters out of bounds.
  init?(
    store: StoreID, passphrase: Secret, cost: Scrypt.Parameters, generation: UInt32, acceptsPlain: Bool,
    random: (Int) -> [UInt8]
  ) {
    lock = KeyRingFile.PassphraseKDF(parameters: cost, salt: random(KeyRingFile.saltBytes))
    guard let wrapping = lock.key(passphrase) else { return nil }
    self.wrapping = wrapping
    (self.store, self.acceptsPlain, current) = (store, acceptsPlain, generation)
    secret = Self.newKey(random)
    masters = [generation: Self.newKey(random)]
  }

  init(
    file: KeyRingFile, masters: [UInt32: Secret], secret: Secret, wrapping: Secret
  ) {
    (store, lock, current, acceptsPlain) = (file.store, file.lock, file.current, file.acceptsPlain)
    (self.masters, self.secret, self.wrapping) = (masters, secret, wrapping)
  }

  private static func newKey(_ random: (Int) -> [UInt8]) -> Secret {
    var bytes = random(keyBytes)
    return Secret(taking: &bytes)
  }

  /// Whether segments of more than one kind may exist, so that some must still be rewritten.
  var isInTransition: Bool { acceptsPlain || masters.count > 1 || current == 0 }

  /// Derives a key for one purpose that never changes for the store.
  func derived(_ count: Int, for purpose: String) -> [UInt8] {
    var secret = secret.copy()
    defer { Secret.zero(&secret) }
    return HKDFSHA256.derive(count, secret: secret, salt: [], info: Array(purpose.utf8))
  }

  // MARK: Changes

  /// Changes the passphrase. False if the key derivation fails.
  mutating func change(passphrase: Secret, cost: Scrypt.Parameters, random: (Int) -> [UInt8]) -> Bool {
    let lock = KeyRingFile.PassphraseKDF(parameters: cost, salt: random(KeyRingFile.saltBytes))
    guard let wrapping = lock.key(passphrase) else { return false }
    (self.lock, self.wrapping) = (lock, wrapping)
    return true
  }

  /// Adds a new master key for new data, of a generation not below `least`.
  mutating func rotate(least: UInt32, random: (Int) -> [UInt8]) {
    let generation = max(least, (masters.keys.max() ?? 0) + 1)
    masters[generation] = Self.newKey(random)
    // Segments that are unencrypted so far still have to be encrypted.
    acceptsPlain = acceptsPlain || current == 0
    current = generation
  }

  /// Ends the encryption of new data.
  mutating func stopEncrypting() { (current, acceptsPlain) = (0, true) }

  /// Drops all generations but the current one. Call it once no segment uses them and none is unencrypted;
  /// has no effect while new data is not encrypted.
  mutating func dropOldGenerations() {
    guard current != 0, let master = masters[current] else { return }
    (masters, acceptsPlain) = ([current: master], false)
  }

  // MARK: Key file

  /// The contents of the key file.
  func encoded(random: (Int) -> [UInt8]) -> [UInt8] {
    let file = KeyRingFile(
      store: store, lock: lock, current: current, acceptsPlain: acceptsPlain,
      generations: masters.keys.sorted())
    var entries: StringDictionary<KeyRingFile.Wrapped> = [:]
    entries[KeyRingFile.secretName] = file.wrap(
      secret, as: KeyRingFile.secretName, under: wrapping, random: random)
    for (index, generation) in file.generations.enumerated() {
      guard let master = masters[generation] else { continue }
      let name = KeyRingFile.masterName(generation)
      entries[name] = file.wrap(master, as: name, under: wrapping, random: random)
      guard index > 0, let before = masters[file.generations[index - 1]] else { continue }
      let link = KeyRingFile.linkName(generation)
      entries[link] = file.wrap(master, as: link, under: before, random: random)
    }
    return file.text(entries, proof: file.proof(secret))
  }

  /// The ring updated from the present file, also if another process has changed the passphrase.
  ///
  /// Nil if that is impossible: the file is another ring, or was changed without the keys.
  func updated(from bytes: [UInt8], path: String) throws(StoreError) -> KeyRing? {
    let (file, entries, proof) = try KeyRingFile.read(bytes, path: path)
    guard file.store == store, constantTimeEquals(proof, file.proof(secret)) else { return nil }
    let isStale = isStale || file.lock != lock
    var masters: [UInt32: Secret] = [:]
    var before: Secret?
    for generation in file.generations {
      let (name, link) = (KeyRingFile.masterName(generation), KeyRingFile.linkName(generation))
      let known = self.masters[generation]
      let wrapped = isStale ? nil : file.unwrap(entries[name], as: name, under: wrapping)
      let linked = before.flatMap { file.unwrap(entries[link], as: link, under: $0) }
      guard let master = known ?? wrapped ?? linked else { return nil }
      masters[generation] = master
      before = master
    }
    var ring = KeyRing(file: file, masters: masters, secret: secret, wrapping: wrapping)
    // This process cannot wrap keys for the new passphrase, so it must not write the file.
    ring.isStale = isStale
    return ring
  }

  /// Whether another process has changed the passphrase: then the file can be changed only with the new one.
  private(set) var isStale = false
}

extension KeyRing: CustomStringConvertible, CustomReflectable {
  /// Contains no secrets.
  var description: String { "keys of \(store), generation \(current)" }
  /// Hides the contents.
  var customMirror: Mirror { Mirror(self, children: [:]) }
}
