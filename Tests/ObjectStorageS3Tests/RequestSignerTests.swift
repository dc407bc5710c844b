import SyncStore
import SyncTestSupport
import Testing

@testable import ObjectStorageS3

/// Compares signatures with those that AWS publishes.
@Suite("The signer", .timeLimit(.minutes(Patience.minutes(1)))) struct RequestSignerTests {
  /// The test suite of Signature Version 4: 2015-08-30 12:36:00, a service called "service".
  struct SuiteCase: Sendable, CustomTestStringConvertible {
    var name: String
    var method = "GET"
    var query: [(name: String, value: String)] = []
    var signature: String

    var testDescription: String { name }
  }

  private static let unreserved = "-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

  static let vectors = [
    SuiteCase(
      name: "get-vanilla", signature: "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"),
    SuiteCase(
      name: "get-vanilla-query-order-key-case", query: [("Param2", "value2"), ("Param1", "value1")],
      signature: "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500"),
    SuiteCase(
      name: "get-vanilla-query-order-value", query: [("Param1", "value2"), ("Param1", "value1")],
      signature: "5772eed61e12b33fae39ee5e7012498b51d56abc0abb7c60486157bd471c4694"),
    SuiteCase(
      name: "get-vanilla-query-order-encoded",
      query: [("Param-3", "Value3"), ("Param", "Value2"), ("\u{1234}", "Value1")],
      signature: "371d3713e185cc334048618a97f809c9ffe339c62934c032af5a0e595648fcac"),
    SuiteCase(
      name: "get-vanilla-query-unreserved", query: [(unreserved, unreserved)],
      signature: "9c3e54bfcdf0b19771a7f523ee5669cdf59bc7cc0884027167c21bb143a40197"),
    SuiteCase(
      name: "get-vanilla-utf8-query", query: [("\u{1234}", "bar")],
      signature: "2cdec8eed098649ff3a119c94853b13c643bcf08f8b0a1d91e12c9027818dd04"),
    SuiteCase(
      name: "post-vanilla", method: "POST",
      signature: "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"),
  ]

  @Test("the published test suite", arguments: vectors)
  func published(_ vector: SuiteCase) {
    let signer = RequestSigner(
      credentials: S3Credentials(
        accessKeyID: "AKIDEXAMPLE", secretAccessKey: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"),
      region: "us-east-1", service: "service")
    let request = SignedRequest(
      method: vector.method, host: "example.amazonaws.com", path: "/", query: vector.query,
      payloadHash: SignedRequest.noPayload)
    let fields = signer.sign(request, at: 1_440_938_160_000)
    #expect(
      fields.first { $0.name == "authorization" }?.value
        == "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, "
        + "SignedHeaders=host;x-amz-date, Signature=\(vector.signature)")
  }

  @Test(
    "blanks within and at the ends of a value are signed as the test suite has it (get-header-value-trim)")
  func blanks() {
    let signer = RequestSigner(
      credentials: S3Credentials(
        accessKeyID: "AKIDEXAMPLE", secretAccessKey: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"),
      region: "us-east-1", service: "service")
    let request = SignedRequest(
      method: "GET", host: "example.amazonaws.com", path: "/",
      headers: [("my-header1", " value1"), ("my-header2", " \"a   b   c\"")],
      payloadHash: SignedRequest.noPayload)
    #expect(
      Self.signature(signer.sign(request, at: 1_440_938_160_000))
        == "acc3ed3afb60bb290fc8d2dd0098b9911fcaa05412b367055dee359757a9c736")
  }

  /// The examples in the documentation of S3: 2013-05-24.
  @Test(
    "the examples of the documentation of S3",
    arguments: [
      ("f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41", 0),
      ("98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd", 1),
      ("fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543", 2),
      ("34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7", 3),
    ])
  func documentation(signature: String, number: Int) {
    let signer = RequestSigner(
      credentials: S3Credentials(
        accessKeyID: "AKIAIOSFODNN7EXAMPLE", secretAccessKey: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"),
      region: "us-east-1")
    var request = SignedRequest(
      method: "GET", host: "examplebucket.s3.amazonaws.com", path: "/", payloadHash: SignedRequest.noPayload)
    switch number {
    case 0: (request.path, request.headers) = ("/test.txt", [("range", "bytes=0-9")])
    case 1:
      (request.method, request.path) = ("PUT", "/test$file.text")
      request.headers = [
        ("date", "Fri, 24 May 2013 00:00:00 GMT"), ("x-amz-storage-class", "REDUCED_REDUNDANCY"),
      ]
      request.payloadHash = Hex.string(of: SHA256.hash(Array("Welcome to Amazon S3.".utf8)))
      #expect(request.target == "/test%24file.text")
    case 2: request.query = [("lifecycle", "")]
    default:
      request.query = [("prefix", "J"), ("max-keys", "2")]
      #expect(request.target == "/?max-keys=2&prefix=J")
    }
    request.headers.append(("x-amz-content-sha256", request.payloadHash))
    #expect(Self.signature(signer.sign(request, at: 1_369_353_600_000)) == signature)
  }

  @Test("a session token is sent and signed")
  func token() throws {
    let signer = RequestSigner(
      credentials: S3Credentials(accessKeyID: "a", secretAccessKey: "b", sessionToken: "c"), region: "r")
    let request = SignedRequest(method: "GET", host: "h", path: "/", payloadHash: SignedRequest.noPayload)
    let fields = signer.sign(request, at: 0)
    #expect(fields.contains { $0 == ("x-amz-security-token", "c") })
    let authorization = try #require(fields.first { $0.name == "authorization" }?.value)
    #expect(authorization.contains("SignedHeaders=host;x-amz-date;x-amz-security-token,"))
    #expect(authorization.contains("/19700101/r/s3/"))
  }

  private static func signature(_ fields: [(name: String, value: String)]) -> String? {
    fields.first { $0.name == "authorization" }?.value.components(separatedBy: "Signature=").last
  }
}

extension String {
  fileprivate func components(separatedBy mark: String) -> [String] {
    split(separator: mark, omittingEmptySubsequences: false).map(String.init)
  }
}
