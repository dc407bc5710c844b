import Foundation
import Replication
import SyncStore
import Testing

@Suite struct DeviceIdentityTests {
  /// RFC 8410, section 10.3: the example's private key, in one line.
  static let example: String = """
    -----BEGIN PRIVATE KEY-----
    MC4CAQAwBQYDK2VwBCIEINTuctv5E1hK1bbY8fdp+K06/nwoy/HU++CXqI9EdVhC
    -----END PRIVATE KEY-----

    """
  /// RFC 8410, section 10.1: its public key.
  static let examplePublicKeyInfo: String = "MCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE="

  static let unreadable: [String] = [
    "", "-----BEGIN PRIVATE KEY-----\n-----END PRIVATE KEY-----\n",
    example.replacing("PRIVATE", with: "ENCRYPTED PRIVATE"), example.replacing("MC4C", with: "MC4D"),
    example.replacing("VhC", with: "Vh"), example.replacing("VhC", with: "Vh="), example + example,
    example.replacing("MC4C", with: "MC 4C"), String(repeating: "A", count: 5000),
  ]

  @Test("The example of RFC 8410 has the public key given there, and is written as it was read")
  func example() throws {
    let identity = try DeviceIdentity(pem: Self.example)
    let publicKeyInfo = try #require(Data(base64Encoded: Self.examplePublicKeyInfo))
    #expect(identity.publicKeyInfo == Array(publicKeyInfo))
    #expect(identity.id.bytes == SHA256.hash(Array(publicKeyInfo)))
    #expect(identity.pem == Self.example)
  }

  @Test("A new device's file reads back as the same device with the same certificate")
  func roundTrip() throws {
    let identity = try DeviceIdentity.generate()
    let read = try DeviceIdentity(pem: identity.pem)
    #expect(read.id == identity.id)
    #expect(read.certificate == identity.certificate)
    #expect(try DeviceIdentity.generate().id != identity.id)
  }

  @Test("The certificate carries the public key and the first 4 digits of the device's name")
  func certificate() throws {
    let identities = try (0..<64).map { try DeviceIdentity(privateKey: [UInt8](repeating: $0, count: 32)) }
    for identity in identities {
      let certificate = Data(identity.certificate)
      // UTF8String of 4 bytes, once as the issuer and once as the subject.
      let name = Data([0x0C, 4] + "\(identity.id)".utf8.prefix(4))
      let issuer = try #require(certificate.range(of: name))
      #expect(certificate.range(of: name, in: issuer.upperBound..<certificate.endIndex) != nil)
      #expect(certificate.range(of: Data(identity.publicKeyInfo)) != nil)
    }
    // The tag that follows the name in DER is the digit 0: the tried names include some that continue with
    // it.
    #expect(identities.contains { "\($0.id)".dropFirst(4).first == "0" })
  }

  @Test(
    "A key in any but the one form is refused, and the message reveals nothing of it",
    arguments: unreadable)
  func refusals(pem: String) {
    let error = #expect(throws: ReplicationError.self) { try DeviceIdentity(pem: pem) }
    #expect(error?.code == .cryptography)
    #expect(error?.message.contains("MC4") == false)
  }

  @Test("An identity in a log shows no key")
  func secrecy() throws {
    let identity = try DeviceIdentity(privateKey: [UInt8](repeating: 0xAB, count: 32))
    var dumped = ""
    dump(identity, to: &dumped)
    for text in ["\(identity)", String(reflecting: identity), dumped] {
      #expect(!text.contains("171, 171") && !text.contains("abababab"))
    }
  }
}
