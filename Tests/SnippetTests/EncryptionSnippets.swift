import SyncStore
import Testing

/// The code of `Encryption.md`. `GuideTests` checks that both are equal.
@Suite struct EncryptionSnippets {
  private let scratch = Scratch()
  private var here: String { scratch.path + "/" }

  @Test("the examples of the page behave as described")
  func run() throws {
    // snippet
    let encrypted = Configuration(passphrase: Passphrase("correct horse battery staple"))
    let store = try Store.create(at: here + "vault", configuration: encrypted)
    try store.put("pin", "1234")
    try store.close()
    // end
    // snippet
    do {
      _ = try Store.open(at: here + "vault", configuration: Configuration(passphrase: Passphrase("wrong")))
    } catch let error where error.code == .wrongKey {
      print("not the passphrase")
    }
    do {
      _ = try Store.open(at: here + "vault")
    } catch let error where error.code == .keyRequired {
      print("there is one")
    }
    let needsOne = try Store.isEncrypted(at: here + "vault")  // true
    // end
    #expect(needsOne)
    // snippet
    let vault = try Store.open(at: here + "vault", configuration: encrypted)
    try vault.changePassphrase(to: Passphrase("another one"))  // at once
    try vault.renewKeys()  // a new master key; all records are written anew under it
    let report = try vault.decrypt()  // a plain store from now on
    print(report.isComplete)
    try vault.encrypt(with: Passphrase("a third one"))
    // end
    #expect(report.isComplete)
    #expect(vault.isEncrypted)
    #expect(try vault.get("pin", as: String.self) == "1234")
    try vault.close()
    _ = try Store.open(
      at: here + "vault", configuration: Configuration(passphrase: Passphrase("a third one"))
    ).close()
  }
}
