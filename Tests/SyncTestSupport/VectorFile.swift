import Foundation
import Replication

/// A file within a test vector: its size, and its bytes as a zlib stream in base 64. Files that are mostly
/// zeros stay small.
package struct VectorFile: Codable, Sendable {
  private var bytes: Int
  private var zlib: Data

  /// Its bytes; nil if the stream does not yield exactly that many.
  package var contents: [UInt8]? { Compression.inflate([UInt8](zlib), count: bytes) }
}
