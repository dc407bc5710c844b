internal import Replication
internal import SyncStore

/// The credentials of an S3 account. Not shown by `print`; the secret key is zeroed when the last copy is
/// released.
public struct S3Credentials: Sendable, CustomStringConvertible, CustomReflectable {
  /// The name of the key.
  public let accessKeyID: String
  let secretAccessKey: Secret
  let sessionToken: String?

  /// Credentials; `sessionToken` belongs to temporary ones.
  public init(accessKeyID: String, secretAccessKey: String, sessionToken: String? = nil) {
    var secret = Array(secretAccessKey.utf8)
    self.accessKeyID = accessKeyID
    self.secretAccessKey = Secret(taking: &secret)
    self.sessionToken = sessionToken
  }

  /// Reveals nothing.
  public var description: String { "(credentials)" }
  /// Hides the contents.
  public var customMirror: Mirror { Mirror(self, children: [:]) }

  /// Whether both are the same.
  func isSame(as other: S3Credentials) -> Bool {
    accessKeyID == other.accessKeyID && secretAccessKey.equals(other.secretAccessKey)
      && sessionToken == other.sessionToken
  }

  /// Whether no part contains what a line of a request cannot hold.
  var isUsable: Bool {
    let texts = [accessKeyID, sessionToken ?? "-"]
    return secretAccessKey.count > 0
      && texts.allSatisfy { !$0.isEmpty && $0.utf8.allSatisfy { (0x21...0x7E).contains($0) } }
  }
}

/// Where a store reads its credentials. They are read at the first request, and again whenever a request is
/// refused for them, so that they can be replaced while the program runs. They are never written anywhere.
public enum S3CredentialSource: Sendable {
  /// The first of `.environment`, `.systemd` and `.sharedFile` that has any.
  case automatic
  /// A file in the form of the AWS command line; sections are allowed, and without them every line counts:
  ///
  /// ```
  /// aws_access_key_id = …
  /// aws_secret_access_key = …
  /// aws_session_token = …
  /// ```
  case file(String)
  /// The variables `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY` and, for temporary ones, `AWS_SESSION_TOKEN`.
  case environment
  /// A profile of the file that the AWS command line uses: `path` or else `AWS_SHARED_CREDENTIALS_FILE` or
  /// else `~/.aws/credentials`, and `profile` or else `AWS_PROFILE` or else `default`.
  case sharedFile(path: String? = nil, profile: String? = nil)
  /// The credential `s3-credentials` of this systemd service (`LoadCredential=`), in the form of `.file`. An
  /// empty one counts as none: units declare it for services without a bucket.
  case systemd
  /// These. They cannot be replaced.
  case fixed(S3Credentials)
}

/// Reads credentials from their source. Blocks while it reads a file.
struct CredentialReader: Sendable {
  var source: S3CredentialSource
  /// The environment of the process.
  var variable: @Sendable (String) -> String? = { SystemCall.environmentVariable($0) }

  private static let mostBytes = 64 << 10

  /// The credentials.
  ///
  /// - Throws: `.credentials` if there are none, or if they are malformed.
  func read() throws(ObjectStoreError) -> S3Credentials {
    let credentials: S3Credentials
    switch source {
    case .fixed(let given): credentials = given
    case .file(let path): credentials = try file(path, profile: nil)
    case .environment:
      guard let found = try environment() else {
        throw ObjectStoreError(
          .credentials, "S3 credentials: AWS_ACCESS_KEY_ID is not set: set it and AWS_SECRET_ACCESS_KEY")
      }
      credentials = found
    case .systemd:
      guard let found = try systemd() else {
        throw ObjectStoreError(
          .credentials,
          "S3 credentials: this service has no credential s3-credentials: add LoadCredential= to its unit")
      }
      credentials = found
    case .sharedFile(let path, let profile):
      let path = if let path { path } else { try sharedPath() }
      credentials = try file(path, profile: profile ?? variable("AWS_PROFILE") ?? "default")
    case .automatic: credentials = try automatic()
    }
    guard credentials.isUsable else {
      throw ObjectStoreError(
        .credentials,
        "S3 credentials: a part is empty, or contains blanks or control characters: copy them again")
    }
    return credentials
  }

  private func automatic() throws(ObjectStoreError) -> S3Credentials {
    if let found = try environment() { return found }
    if let found = try systemd() { return found }
    let path = try sharedPath()
    guard Self.exists(path) else {
      throw ObjectStoreError(
        .credentials,
        "S3 credentials: there are none: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or name a file"
      )
    }
    return try file(path, profile: variable("AWS_PROFILE") ?? "default")
  }

  private func environment() throws(ObjectStoreError) -> S3Credentials? {
    guard let name = variable("AWS_ACCESS_KEY_ID") else { return nil }
    guard let secret = variable("AWS_SECRET_ACCESS_KEY") else {
      throw ObjectStoreError(
        .credentials, "S3 credentials: AWS_ACCESS_KEY_ID is set, AWS_SECRET_ACCESS_KEY is not: set both")
    }
    return S3Credentials(
      accessKeyID: name, secretAccessKey: secret, sessionToken: variable("AWS_SESSION_TOKEN"))
  }

  private func systemd() throws(ObjectStoreError) -> S3Credentials? {
    guard let directory = variable("CREDENTIALS_DIRECTORY") else { return nil }
    let path = directory + "/s3-credentials"
    guard Self.exists(path) else { return nil }
    var bytes = try contents(path)
    defer { Secret.zero(&bytes) }
    let isBlank = bytes.allSatisfy { [0x20, 0x09, 0x0A, 0x0D].contains($0) }
    return isBlank ? nil : try credentials(bytes, of: path, profile: nil)
  }

  private func sharedPath() throws(ObjectStoreError) -> String {
    if let path = variable("AWS_SHARED_CREDENTIALS_FILE") { return path }
    guard let home = variable("HOME") else {
      throw ObjectStoreError(
        .credentials, "S3 credentials: there are none, and HOME is not set: name a file of credentials")
    }
    return home + "/.aws/credentials"
  }

  private static func exists(_ path: String) -> Bool {
    (try? DiskStorage(handlesSignals: false).fileToRead(path, "credentials")) != nil
  }

  private func file(_ path: String, profile: String?) throws(ObjectStoreError) -> S3Credentials {
    var bytes = try contents(path)
    defer { Secret.zero(&bytes) }
    return try credentials(bytes, of: path, profile: profile)
  }

  private func contents(_ path: String) throws(ObjectStoreError) -> [UInt8] {
    do throws(StoreError) {
      let storage = DiskStorage(handlesSignals: false)
      let found = try storage.fileToRead(path, "a file of S3 credentials")
      return try storage.open(found.path, .readOnly).contents(limit: Self.mostBytes)
    } catch {
      throw ObjectStoreError(.credentials, "S3 credentials: \(error.description)")
    }
  }

  private func credentials(
    _ bytes: [UInt8], of path: String, profile: String?
  ) throws(ObjectStoreError) -> S3Credentials {
    let parser = CredentialFile(bytes: bytes, profile: profile)
    guard let name = parser["aws_access_key_id"], let secret = parser["aws_secret_access_key"] else {
      let place = profile.map { "profile \"\($0.printable)\" of \(path.printable)" } ?? path.printable
      throw ObjectStoreError(
        .credentials,
        "S3 credentials: \(place) lacks aws_access_key_id or aws_secret_access_key: add both lines")
    }
    return S3Credentials(
      accessKeyID: name, secretAccessKey: secret, sessionToken: parser["aws_session_token"])
  }
}

/// The lines of a file of credentials: `name = value`, in sections `[profile]`.
struct CredentialFile {
  var bytes: [UInt8]
  /// The section that counts; nil for all lines up to the second section.
  var profile: String?

  /// The value of a name, whose letters may be of either case; nil if there is none.
  subscript(name: String) -> String? {
    var (isWanted, sections) = (profile == nil, 0)
    for line in bytes.split(whereSeparator: { $0 == 0x0A || $0 == 0x0D }) {
      let line = Self.trimmed(line)
      if line.first == UInt8(ascii: "["), line.last == UInt8(ascii: "]") {
        sections += 1
        let section = String(decoding: Self.trimmed(line.dropFirst().dropLast()), as: UTF8.self)
        isWanted = profile.map { $0 == section } ?? (sections == 1)
      } else if isWanted, let sign = line.firstIndex(of: UInt8(ascii: "=")),
        String(decoding: Self.trimmed(line[..<sign]), as: UTF8.self).lowercased() == name
      {
        return String(decoding: Self.trimmed(line[(sign + 1)...]), as: UTF8.self)
      }
    }
    return nil
  }

  private static func trimmed(_ bytes: ArraySlice<UInt8>) -> ArraySlice<UInt8> {
    let isBlank = { (byte: UInt8) in byte == 0x20 || byte == 0x09 }
    return bytes.drop(while: isBlank).reversed().drop(while: isBlank).reversed()[...]
  }
}
