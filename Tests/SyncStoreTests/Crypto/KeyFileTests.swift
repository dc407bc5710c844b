import SyncTestSupport
import Testing

@testable import SyncStore

@Suite("Secret files")
struct KeyFileTests {
  static let path = "/store/keys/device.pem"
  static let secret = Array("a device's private key".utf8)

  func stored(_ host: SimulatedHost) throws -> [UInt8] {
    try #require(try host.storage.contents(of: Self.path, limit: 1 << 20))
  }

  @Test("are encrypted in an encrypted store, and in plaintext in a plaintext one", arguments: [false, true])
  func encrypted(sealed: Bool) throws {
    let host = SimulatedHost(encrypted: sealed)
    let store = try Store.create(on: host)
    try store.writeKeyFile("device.pem", Self.secret)
    #expect(try stored(host).contains(Self.secret) == !sealed)
    #expect(try store.readKeyFile("device.pem", limit: 100) == Self.secret)
    #expect(try store.readKeyFile("none", limit: 100) == nil)
    #expect(
      #expect(throws: StoreError.self) { try store.readKeyFile("device.pem", limit: -80) }?.code
        == .foreignFile)
    try store.close()
    #expect(try Store.open(on: host).readKeyFile("device.pem", limit: 100) == Self.secret)
  }

  @Test("are rejected if they were changed, swapped or put there in plaintext")
  func changed() throws {
    let host = SimulatedHost(encrypted: true)
    let store = try Store.create(on: host)
    try store.writeKeyFile("device.pem", Self.secret)
    let bytes = try stored(host)
    for index in bytes.indices {
      var other = bytes
      other[index] ^= 1
      try host.storage.replace(Self.path, with: other)
      let code = #expect(throws: StoreError.self, "byte \(index)") {
        try store.readKeyFile("device.pem", limit: 100)
      }?.code
      #expect(code == .damaged || code == .foreignFile)
    }
    try host.storage.replace("/store/keys/group", with: bytes)
    #expect(
      #expect(throws: StoreError.self) { try store.readKeyFile("group", limit: 100) }?.code == .damaged)
    try host.storage.replace("/store/keys/group", with: Self.secret)
    #expect(
      #expect(throws: StoreError.self) { try store.readKeyFile("group", limit: 100) }?.code == .foreignFile)
  }

  @Test("written during a decryption are readable after it")
  func writtenDuringDecryption() throws {
    let (host, plan) = (SimulatedHost(compacting: .onRequest, encrypted: true), FaultPlan())
    try Store.create(on: host).close()
    let store = try Store.open(on: host, failing: plan)
    try store.writeKeyFile("device.pem", [1])
    // The keys of the store are about to be deleted.
    plan.before(.remove, of: "/index") { try? store.writeKeyFile("device.pem", Self.secret) }
    try store.decrypt()
    #expect(try stored(host) == Self.secret)
    #expect(try store.readKeyFile("device.pem", limit: 100) == Self.secret)
  }

  @Test("created before the store are encrypted with it, and follow it when it is encrypted and decrypted")
  func rewritten() throws {
    let host = SimulatedHost(compacting: .onRequest, encrypted: false)
    let store = try Store.create(on: host)
    try store.writeKeyFile("device.pem", Self.secret)
    try store.encrypt(with: Passphrase("x"))
    #expect(try !stored(host).contains(Self.secret))
    #expect(try store.readKeyFile("device.pem", limit: 100) == Self.secret)
    try store.renewKeys()
    #expect(try store.readKeyFile("device.pem", limit: 100) == Self.secret)
    try store.decrypt()
    #expect(try stored(host) == Self.secret)
    #expect(try store.readKeyFile("device.pem", limit: 100) == Self.secret)
  }
}
