public import Replication
internal import SyncStore

extension S3Store {
  /// The most objects of a page, as AWS bounds it.
  private static let pageEntries = 1000
  /// A page of so many of the longest names is smaller, also with each byte of a prefix encoded.
  private static let mostPageBytes = 8 << 20
  /// A listing that is longer is one that does not end.
  private static let mostPages = 20_000

  /// The objects whose names begin with `prefix`; see `ObjectStore.list`. Objects whose names are not
  /// valid (`ObjectName`) are left out: this library has not written them.
  public func list(_ prefix: String) async throws(ObjectStoreError) -> [ObjectEntry] {
    guard prefix.isEmpty || ObjectName.isValid(prefix + "-") else {
      throw ObjectStoreError(
        .invalid, "\(location): \"\(prefix.printable)\" begins no name: use a-z, 0-9, \"-\", \".\" and \"/\"")
    }
    var found: StringDictionary<ObjectEntry> = [:]
    var token: String?
    for _ in 0..<Self.mostPages {
      let page = try await page(prefix, after: token)
      for entry in page.entries { found[entry.name] = entry }
      guard let next = page.next else { return found.values.sorted { $0.name < $1.name } }
      guard next != token else { break }
      token = next
    }
    throw ObjectStoreError(
      .invalid, "\(location): the listing does not end: the server is at fault: check it, or use another")
  }

  private func page(
    _ prefix: String, after token: String?
  ) async throws(ObjectStoreError) -> ListPage {
    var request = S3Request(operation: .list, method: "GET", name: nil)
    request.query = [
      ("list-type", "2"), ("encoding-type", "url"), ("max-keys", "\(Self.pageEntries)"),
      ("prefix", client.address.prefix + prefix),
    ]
    if let token { request.query.append(("continuation-token", token)) }
    request.limit = Self.mostPageBytes
    // A truncated page is asked for again: something between may have cut it.
    var attempt = 0
    while true {
      attempt += 1
      let answer = try await client.send(request)
      if let failure = answer.failure { throw failure.error(client.text(request)) }
      do throws(DecodingFailure) {
        return try ListPage(answer.http.body, prefix: client.address.prefix, wanted: prefix)
      } catch {
        guard attempt >= 3 else { continue }
        throw ObjectStoreError(
          .invalid, "\(client.text(request)): the listing cannot be read: \(error): check the endpoint",
          status: answer.status)
      }
    }
  }
}

/// One page of a listing.
struct ListPage {
  var entries: [ObjectEntry] = []
  /// The token of the next page; nil for the last one.
  var next: String?

  /// Parses a page. `prefix` is that of the store, `wanted` the beginning of the names relative to it.
  ///
  /// - Throws: if it is no listing, truncated, or contradicts itself.
  init(_ body: [UInt8], prefix: String, wanted: String) throws(DecodingFailure) {
    let root = try XMLElement(parsing: body)
    guard root.name == "ListBucketResult" else { throw DecodingFailure("it is a <\(root.name.printable)>") }
    let isEncoded = root["EncodingType"]?.text == "url"
    for item in root.children where item.name == "Contents" {
      guard let key = item["Key"]?.text, let size = item["Size"].flatMap({ UInt64($0.text) }) else {
        throw DecodingFailure("an object has no name or no size")
      }
      guard let name = isEncoded ? PercentEncoding.decode(key) : key else {
        throw DecodingFailure("a name is not encoded as announced")
      }
      guard name.hasPrefix(prefix) else { continue }
      let own = String(Substring(name.utf8.dropFirst(prefix.utf8.count)))
      guard own.hasPrefix(wanted), ObjectName.isValid(own) else { continue }
      entries.append(
        ObjectEntry(
          name: own, size: size, version: item["ETag"].flatMap { ObjectVersion(entityTag: $0.text) },
          modified: item["LastModified"].flatMap { ServerTime.iso($0.text) }))
    }
    guard let isTruncated = root["IsTruncated"]?.text, isTruncated == "true" else { return }
    guard let token = root["NextContinuationToken"]?.text, !token.isEmpty else {
      throw DecodingFailure("it has a next page and does not name it")
    }
    next = token
  }
}
