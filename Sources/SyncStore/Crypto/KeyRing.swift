/// The keys of an encrypted store, unlocked. A value; the file it is kept in is `KeyRingFile`.
///
/// Invariants: generations ascend and are never used twice in a store; what is sealed anew is sealed under `current`,
/// which is 0 while a store becomes plain; `secret` is the same for the life of the store.
struct KeyRing: Sendable {
  /// Whose keys they are.
  let store: StoreID
  /// What a guess at the passphrase costs, and its salt.
  private(set) var lock: KeyRingFile.PassphraseKDF
  /// The generation that seals what is written from now on; 0 for none.
  private(set) var current: UInt32
  /// Does the store also have segments that are not sealed?
  private(set) var acceptsPlain: Bool
  /// The master keys, 32 bytes each.
  private(set) var masters: [UInt32: Secret]
  /// 32 bytes that stay while master keys come and go: what names and hashes are keyed by.
  let secret: Secret
  /// Wraps all the others: made of the passphrase.
  private var wrapping: Secret

  /// Bytes of each key.
  static let keyBytes = 32

  /// New keys for a store. Nil if the passphrase cannot be worked on: no memory, or out of bounds.
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

  /// Is there more than one kind of segment, so that some are still to be written anew?
  var isInTransition: Bool { acceptsPlain || masters.count > 1 || current == 0 }

  /// A key for one purpose, the same for the life of the store.
  func derived(_ count: Int, for purpose: String) -> [UInt8] {
    var secret = secret.copy()
    defer { Secret.zero(&secret) }
    return HKDFSHA256.derive(count, secret: secret, salt: [], info: Array(purpose.utf8))
  }

  // MARK: Changes

  /// Asks for another passphrase from now on. False if it cannot be worked on.
  mutating func change(passphrase: Secret, cost: Scrypt.Parameters, random: (Int) -> [UInt8]) -> Bool {
    let lock = KeyRingFile.PassphraseKDF(parameters: cost, salt: random(KeyRingFile.saltBytes))
    guard let wrapping = lock.key(passphrase) else { return false }
    (self.lock, self.wrapping) = (lock, wrapping)
    return true
  }

  /// Seals under a new master key, of a generation not below `least`, from now on.
  mutating func rotate(least: UInt32, random: (Int) -> [UInt8]) {
    let generation = max(least, (masters.keys.max() ?? 0) + 1)
    masters[generation] = Self.newKey(random)
    // What was plain until now is to be sealed, too.
    acceptsPlain = acceptsPlain || current == 0
    current = generation
  }

  /// Seals nothing from now on.
  mutating func stopEncrypting() { (current, acceptsPlain) = (0, true) }

  /// No segment uses any other generation, and none is plain unless nothing is sealed any more.
  mutating func dropOldGenerations() {
    guard current != 0, let master = masters[current] else { return }
    (masters, acceptsPlain) = ([current: master], false)
  }

  // MARK: The file

  /// The file that holds it.
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

  /// Who has the store open learns what the file says now, also when the passphrase was changed meanwhile. Nil if that
  /// cannot be: the file is another ring, or was changed by somebody who does not have the keys.
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
    // What this process cannot wrap for the new passphrase, it does not write.
    ring.isStale = isStale
    return ring
  }

  /// Was the passphrase changed by another process? Then only who knows the new one can change the file.
  private(set) var isStale = false
}

extension KeyRing: CustomStringConvertible, CustomReflectable {
  /// Says what is no secret.
  var description: String { "keys of \(store), generation \(current)" }
  /// Shows nothing.
  var customMirror: Mirror { Mirror(self, children: [:]) }
}
