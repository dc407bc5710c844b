import Replication
import SyncStore
import SyncTestSupport
import Testing

@testable import ObjectStorageS3

/// Addresses, credentials and times, without a network.
@Suite("Options of a store in S3", .timeLimit(.minutes(Patience.minutes(1)))) struct OptionsTests {
  @Test(
    "an address has a bucket and perhaps a prefix",
    arguments: [
      ("s3://fleet", "fleet", ""), ("s3://fleet/", "fleet", ""), ("s3://fleet/a", "fleet", "a"),
      ("s3://fleet/a/b/", "fleet", "a/b"), ("s3://my.own-bucket/ü x", "my.own-bucket", "ü x"),
    ])
  func addresses(text: String, bucket: String, prefix: String) throws {
    let options = try S3Options(text)
    #expect(options.bucket == bucket)
    #expect(options.prefix == prefix)
  }

  @Test(
    "an address in another form is refused, with the form",
    arguments: [
      "", "fleet", "S3://fleet", "https://fleet", "s3:/fleet", "s3://", "s3:///a", "s3://ab", "s3://Fleet",
      "s3://-ab", "s3://abc-", "s3://fleet/a//b", "s3://fleet//", "s3://fleet/../a", "s3://fleet/a\u{1B}",
      "s3://user:secret@host",
    ])
  func malformed(text: String) throws {
    do throws(ObjectStoreError) {
      _ = try S3Options(text)
      Issue.record("\(text) is taken")
    } catch {
      #expect(error.code == .invalid)
      #expect(error.message.split(separator: ": ").count >= 3, "\(error)")
      #expect(!error.message.unicodeScalars.contains("\u{1B}"))
    }
  }

  private static func address(
    _ endpoint: String?, _ style: S3Options.Addressing? = nil, bucket: String = "bucket"
  ) throws(ObjectStoreError) -> String {
    var options = S3Options(bucket: bucket, prefix: "p")
    (options.endpoint, options.addressing) = (endpoint, style)
    let address = try S3Address(options)
    return "\(address.scheme) \(address.host) \(address.basePath)"
  }

  @Test("the bucket is in the host at AWS and in the path at other servers, unless told otherwise")
  func styles() throws {
    #expect(try Self.address(nil) == "https bucket.s3.us-east-1.amazonaws.com ")
    #expect(try Self.address(nil, .path) == "https s3.us-east-1.amazonaws.com /bucket")
    #expect(try Self.address(nil, bucket: "a.bucket") == "https s3.us-east-1.amazonaws.com /a.bucket")
    #expect(try Self.address("https://Host.example:9000/") == "https host.example:9000 /bucket")
    #expect(try Self.address("https://host:443/s3/v1") == "https host /s3/v1/bucket")
    #expect(try Self.address("https://host", .virtualHost) == "https bucket.host ")
    #expect(try Self.address("http://[::1]:9000") == "http [::1]:9000 /bucket")
  }

  @Test(
    "an endpoint that is none, or has no TLS and is not this machine, is refused",
    arguments: [
      "", "host", "ftp://host", "https://", "https://user@host", "https://host:0", "https://host:x",
      "https://host?a", "https://host/a b", "https://[::1", "http://host", "http://10.0.0.1",
      "http://127.example.com", "https://ho\r\nst",
    ])
  func endpoints(text: String) throws {
    #expect(throws: ObjectStoreError.self) { try Self.address(text) }
  }

  @Test("plain HTTP to another machine needs an option of its own")
  func plainHTTP() throws {
    var options = S3Options(bucket: "bucket")
    options.endpoint = "http://10.0.0.1"
    #expect(throws: ObjectStoreError.self) { try S3Store(options) }
    options.allowsPlainHTTP = true
    _ = try S3Store(options)
    #expect(throws: ObjectStoreError.self) { try Self.address("https://10.0.0.1", .virtualHost) }
    options.region = "a\nb"
    #expect(throws: ObjectStoreError.self) { try S3Store(options) }
  }

  // MARK: Credentials

  private static func read(
    _ source: S3CredentialSource, _ variables: StringDictionary<String> = [:]
  ) throws(ObjectStoreError) -> String {
    let found = try CredentialReader(source: source, variable: { variables[$0] }).read()
    let secret = found.secretAccessKey.withBytes { String(decoding: [UInt8](copying: $0), as: UTF8.self) }
    return "\(found.accessKeyID) \(secret) \(found.sessionToken ?? "-")"
  }

  private static func write(_ text: String, _ path: String) throws {
    try DiskStorage().replace(path, with: Array(text.utf8))
  }

  @Test("credentials are read from each source")
  func sources() throws {
    let directory = TemporaryDirectory()
    let environment: StringDictionary = ["AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"]
    #expect(try Self.read(.environment, environment) == "a b -")
    var temporary = environment
    temporary["AWS_SESSION_TOKEN"] = "c"
    #expect(try Self.read(.automatic, temporary) == "a b c")

    let file = directory.path + "/file"
    try Self.write("# a comment\r\nAWS_ACCESS_KEY_ID=a\r\n aws_secret_access_key =\tb=/+ \r\n", file)
    #expect(try Self.read(.file(file)) == "a b=/+ -")

    let shared = directory.path + "/shared"
    try Self.write(
      "[default]\naws_access_key_id=d\naws_secret_access_key=e\n\n[ other ]\naws_access_key_id=f\n"
        + "aws_secret_access_key=g\naws_session_token=h\n", shared)
    #expect(try Self.read(.sharedFile(path: shared)) == "d e -")
    #expect(try Self.read(.sharedFile(path: shared, profile: "other")) == "f g h")
    #expect(try Self.read(.file(shared)) == "d e -")
    let variables: StringDictionary = ["AWS_SHARED_CREDENTIALS_FILE": shared, "AWS_PROFILE": "other"]
    #expect(try Self.read(.automatic, variables) == "f g h")
    #expect(try Self.read(.sharedFile(), variables) == "f g h")

    try Self.write("aws_access_key_id = i\naws_secret_access_key = j\n", directory.path + "/s3-credentials")
    var service = variables
    service["CREDENTIALS_DIRECTORY"] = directory.path
    #expect(try Self.read(.systemd, service) == "i j -")
    #expect(try Self.read(.automatic, service) == "i j -")
  }

  @Test("the environment comes before the service manager's credential, and that before the shared file")
  func order() throws {
    let directory = TemporaryDirectory()
    func text(_ name: String) -> String {
      "aws_access_key_id = \(name)\naws_secret_access_key = of-\(name)\n"
    }
    let (shared, service) = (directory.path + "/shared", directory.path + "/s3-credentials")
    try Self.write("[default]\n" + text("shared"), shared)
    try Self.write(text("service"), service)
    var variables: StringDictionary<String> = [
      "AWS_ACCESS_KEY_ID": "environment", "AWS_SECRET_ACCESS_KEY": "of-environment",
      "CREDENTIALS_DIRECTORY": directory.path, "AWS_SHARED_CREDENTIALS_FILE": shared,
    ]
    #expect(try Self.read(.automatic, variables) == "environment of-environment -")
    // A relay's own file comes before all of them.
    #expect(try Self.read(.file(shared), variables) == "shared of-shared -")
    (variables["AWS_ACCESS_KEY_ID"], variables["AWS_SECRET_ACCESS_KEY"]) = (nil, nil)
    #expect(try Self.read(.automatic, variables) == "service of-service -")
    // A unit declares an empty one where there may be none.
    for nothing in ["", "\n", " \r\n\t\n"] {
      try Self.write(nothing, service)
      #expect(try Self.read(.automatic, variables) == "shared of-shared -")
      #expect(throws: ObjectStoreError.self) { try Self.read(.systemd, variables) }
    }
    // One that is cut short is not passed over.
    try Self.write("aws_access_key_id = service\n", service)
    #expect(throws: ObjectStoreError.self) { try Self.read(.automatic, variables) }
    #expect(try DiskStorage().remove(service))
    #expect(try Self.read(.automatic, variables) == "shared of-shared -")
    variables["CREDENTIALS_DIRECTORY"] = directory.path + "/none"
    #expect(try Self.read(.automatic, variables) == "shared of-shared -")
  }

  @Test("credentials that are missing or malformed are errors that say what to do, and show no secret")
  func missing() throws {
    let directory = TemporaryDirectory()
    let file = directory.path + "/file"
    try Self.write("[default]\naws_access_key_id = a\n[other]\naws_secret_access_key = hidden\n", file)
    let blank = directory.path + "/blank"
    try Self.write("aws_access_key_id = a b\naws_secret_access_key = hidden\n", blank)
    let cases: [(S3CredentialSource, StringDictionary<String>)] = [
      (.automatic, [:]), (.automatic, ["HOME": directory.path]), (.environment, [:]),
      (.environment, ["AWS_ACCESS_KEY_ID": "a"]), (.automatic, ["AWS_ACCESS_KEY_ID": "a"]), (.systemd, [:]),
      (.systemd, ["CREDENTIALS_DIRECTORY": directory.path]), (.file(directory.path + "/none"), [:]),
      (.file(directory.path), [:]), (.file(file), [:]), (.sharedFile(path: file, profile: "other"), [:]),
      (.file(blank), [:]), (.fixed(S3Credentials(accessKeyID: "a\nb", secretAccessKey: "hidden")), [:]),
    ]
    for (source, variables) in cases {
      do throws(ObjectStoreError) {
        _ = try Self.read(source, variables)
        Issue.record("\(source) has credentials")
      } catch {
        #expect(error.code == .credentials)
        #expect(error.message.hasPrefix("S3 credentials: "))
        #expect(error.message.split(separator: ": ").count >= 3, "\(error)")
        #expect(!error.message.contains("hidden"))
      }
    }
    let secret = S3Credentials(accessKeyID: "a", secretAccessKey: "hidden", sessionToken: "token")
    var shown = ""
    dump(secret, to: &shown)
    #expect("\(secret) \(shown)".contains("hidden") == false)
    #expect("\(S3CredentialSource.fixed(secret))".contains("token") == false)
  }

  // MARK: Times

  @Test("times of answers are read, and other texts are not")
  func times() {
    #expect(ServerTime.http("Sun, 06 Nov 1994 08:49:37 GMT") == 784_111_777_000)
    #expect(ServerTime.http("Thu, 29 Feb 2024 23:59:60 GMT") == 1_709_251_200_000)
    #expect(ServerTime.http("Thu, 01 Jan 1970 00:00:00 GMT") == 0)
    #expect(ServerTime.iso("2009-10-12T17:50:30.000Z") == 1_255_369_830_000)
    #expect(ServerTime.iso("2009-10-12T17:50:30Z") == 1_255_369_830_000)
    #expect(ServerTime.iso("2009-10-12T17:50:30.123456789Z") == 1_255_369_830_123)
    for text in [
      "", "Sun, 06 Nov 1994 08:49:37 CET", "Sun, 06 Nov 1994 24:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT",
      "Sun, 06 Foo 1994 08:49:37 GMT", "Sun, 06 Nov 1994 08:49 GMT", "Sun, 00 Nov 1994 08:49:37 GMT",
    ] { #expect(ServerTime.http(text) == nil, "\(text)") }
    for text in ["", "2009-10-12", "2009-10-12T17:50:30", "2009-13-12T17:50:30Z", "1969-10-12T17:50:30Z"] {
      #expect(ServerTime.iso(text) == nil, "\(text)")
    }
    for day in stride(from: UInt64(0), to: 40_000, by: 97) {
      let time = day * 86_400_000 + 12_345_000
      #expect(ServerTime.http(TestTime.http(time)) == time)
    }
  }
}
