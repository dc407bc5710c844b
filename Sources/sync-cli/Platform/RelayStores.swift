import ObjectStorageS3
import Replication

/// The places that relays of this program can be in: directories and buckets.
enum RelayStores {
  /// Opens the objects of a relay. No network is used yet.
  static let open: Node.RelayOpener = { relay throws(ReplicationError) in
    guard relay.directory == nil else { return try Node.opensDirectories(relay) }
    do throws(ObjectStoreError) { return try S3Store(options(relay)) } catch {
      throw ReplicationError(.network, "\(relay.name): \(error.message)")
    }
  }

  /// The options of a bucket.
  ///
  /// - Throws: `.invalid` if the location or the endpoint is not valid.
  static func options(_ relay: RelayDescription) throws(ObjectStoreError) -> S3Options {
    var options = try S3Options(relay.location)
    options.endpoint = relay.endpoint
    if let region = relay.region { options.region = region }
    options.authorityFile = relay.certificatesFile
    if let file = relay.credentialsFile { options.credentials = .file(file) }
    return options
  }
}
