import COpenSSLPeer
import Foundation

/// SHA-256 by OpenSSL: the baseline for large values; the store hashes each of them once.
@safe
struct PlainHash {
  private let algorithm: OpaquePointer?

  init() { unsafe algorithm = EVP_MD_fetch(nil, "SHA256", nil) }

  /// The hash of `bytes`.
  func hash(_ bytes: [UInt8]) throws -> [UInt8] {
    var output = [UInt8](repeating: 0, count: 32)
    let code = unsafe bytes.withUnsafeBytes { input in
      unsafe EVP_Digest(input.baseAddress, input.count, &output, nil, algorithm, nil)
    }
    guard code == 1 else { throw BenchmarkError("OpenSSL does not hash") }
    return output
  }
}

/// The usual way to keep large values: one file each, named by the hash of its content, written under a
/// temporary name first.
struct PlainFiles {
  let folder: String
  private let hasher = PlainHash()

  init(at folder: String) throws {
    self.folder = folder
    for index in 0..<256 {
      try FileManager.default.createDirectory(
        atPath: "\(folder)/\(Self.hex(UInt8(index)))", withIntermediateDirectories: true)
    }
  }

  private static func hex(_ byte: UInt8) -> String {
    let digits = String(byte, radix: 16)
    return digits.count == 1 ? "0" + digits : digits
  }

  /// Returns its path.
  func put(_ bytes: [UInt8]) throws -> String {
    let name = try hasher.hash(bytes).map(Self.hex).joined()
    let (path, temporary) = ("\(folder)/\(name.prefix(2))/\(name)", "\(folder)/new")
    let file = unsafe open(temporary, O_RDWR | O_CREAT | O_TRUNC, 0o600)
    defer { close(file) }
    guard file >= 0,
      unsafe bytes.withUnsafeBytes({ unsafe pwrite(file, $0.baseAddress, $0.count, 0) }) == bytes.count,
      unsafe rename(temporary, path) == 0
    else { throw BenchmarkError("a plain file cannot be written") }
    return path
  }

  /// Reads all of it into `buffer`.
  static func read(_ path: String, _ buffer: inout [UInt8]) throws {
    let file = unsafe open(path, O_RDONLY)
    defer { close(file) }
    let count = unsafe buffer.withUnsafeMutableBytes { unsafe pread(file, $0.baseAddress, $0.count, 0) }
    guard count == buffer.count else { throw BenchmarkError("a plain file cannot be read") }
  }
}
