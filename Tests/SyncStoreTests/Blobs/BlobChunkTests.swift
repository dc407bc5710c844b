import SyncTestSupport
import Testing

@testable import SyncStore

@Suite("Objects with common chunks")
struct BlobChunkTests {
  static let old = pattern(6 << 20)
  /// Changed at the start and in the middle.
  static var new: [UInt8] {
    var bytes = pattern(1000, seed: 7) + old
    bytes.replaceSubrange(3_000_000..<3_050_000, with: pattern(50_000, seed: 8))
    return bytes
  }

  private func reference(_ bytes: [UInt8]) -> BlobReference {
    BlobReference(hash: BlobHash(sha256: SHA256.hash(bytes)), size: UInt64(bytes.count))
  }

  @Test(
    "transfer only the new chunks of an object, encrypted or not, also when resumed",
    arguments: [false, true])
  func assembly(isSealed: Bool) throws {
    let (here, there) = (try BlobsUnderTest(.disk), try BlobsUnderTest(.disk))
    let keys = try KeysUnderTest()
    let receiver = try here.open(keys: isSealed ? keys.source : .none)
    let sender = try there.open()
    let old = try receiver.put(bytes: Self.old, durable: true)
    let new = Self.new
    let blob = try sender.put(bytes: new, durable: true)
    #expect(try receiver.mayShareChunks(size: blob.size) && !receiver.mayShareChunks(size: 1000))
    #expect(try !sender.mayShareChunks(size: 1000))
    var (held, sent): (UInt64, UInt64) = (0, 0)
    while held < blob.size {
      let recipe = try sender.recipe(of: blob, from: held, bytes: 1 << 20)
      let match = try receiver.match(recipe)
      #expect(match.end == recipe.end && match.end > held)
      for part in match.missing {
        held = try receiver.assemble(blob.hash, match, upTo: part.offset)
        #expect(held == part.offset)
        let bytes = try sender.read(blob.hash, offset: part.offset, count: Int(part.count))
        try receiver.append(bytes, to: blob.hash, at: held)
        sent += part.count
      }
      held = try receiver.assemble(blob.hash, match, upTo: match.end)
      #expect(held == match.end)
    }
    try receiver.complete(blob, durable: true)
    #expect(try receiver.read(blob) == new && receiver.read(old) == Self.old)
    // 51,000 bytes are new: with the chunks at their ends, and where a recipe starts in the middle, less than
    // half.
    #expect(sent < 1_500_000, "\(sent) bytes were sent")
    #expect(receiver.catalogueError == nil)
  }

  @Test("are chunked by several processors at once, with little loss at the borders")
  func shares() throws {
    let test = try BlobsUnderTest(.disk)
    let blobs = try test.open()
    let bytes = pattern(2 * Int(BlobStore.minTaskBytes) + 5_000_000)
    let blob = try blobs.put(bytes: bytes, durable: true)
    let match = try blobs.match(blobs.recipe(of: blob, from: 0, bytes: blob.size))
    #expect(match.end == blob.size)
    #expect(match.missing.reduce(0) { $0 + $1.count } < 1 << 20)
    #expect(match.missing.count < Background.processors + 1)
    for copy in match.copies { #expect(copy.place == copy.offset) }
  }

  @Test("are checked before they are used: nothing is copied from one that is gone")
  func gone() throws {
    let test = try BlobsUnderTest(.simulated)
    let blobs = try test.open()
    let old = try blobs.put(bytes: Self.old, durable: true)
    let new = Self.new
    let recipe = BlobRecipe(offset: 0, chunks: try blobs.recipe(of: old, from: 0, bytes: 1 << 20).chunks)
    let match = try blobs.match(recipe)
    #expect(match.missing.isEmpty)
    try blobs.remove(old.hash)
    #expect(try blobs.assemble(reference(new).hash, match, upTo: match.end) == 0)
    #expect(try !blobs.match(recipe).missing.isEmpty)
  }
}
