import ObjectStorageS3
import Replication
import Testing

/// The code of `ObjectStorageS3.md`. `GuideTests` checks that both are equal.
@Suite struct ObjectStorageS3Snippets {
  @Test("the example of the page behaves as described")
  func run() throws {
    // snippet
    var options = try S3Options("s3://fleet/vessels")
    options.endpoint = "https://storage.example.net"
    options.credentials = .file("/etc/fleet/s3-credentials")
    let store = try S3Store(options)
    print(store.location)
    // end
    #expect(store.location == "s3://fleet/vessels")
  }
}
