import Replication
import SyncStore
import SyncTestSupport
import Testing

@testable import ObjectStorageS3

private typealias Answer = ScriptedServer.Answer

/// Listings, whole and broken.
@Suite("Listings", .timeLimit(.minutes(Patience.minutes(2)))) struct ListTests {
  private static func page(_ names: [String], next: String? = nil, encoded: Bool = true) -> String {
    let items = names.map {
      "<Contents><Key>\($0)</Key><LastModified>2009-10-12T17:50:30.500Z</LastModified>"
        + "<ETag>&quot;t&quot;</ETag><Size>7</Size><StorageClass>STANDARD</StorageClass></Contents>"
    }
    return "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<ListBucketResult xmlns=\"http://x/\">"
      + "<Name>bucket</Name>\(encoded ? "<EncodingType>url</EncodingType>" : "")"
      + "<IsTruncated>\(next != nil)</IsTruncated>\(items.joined())"
      + (next.map { "<NextContinuationToken>\($0)</NextContinuationToken>" } ?? "") + "</ListBucketResult>"
  }

  private static func answer(_ text: String) -> ScriptedServer.Answer { Answer(200, body: Array(text.utf8)) }

  private static func entry(_ name: String) -> ObjectEntry {
    ObjectEntry(name: name, size: 7, version: ObjectVersion(tag: "t"), modified: 1_255_369_830_500)
  }

  @Test("all pages are read, by the names below the prefix, and foreign names are left out")
  func pages() async throws {
    let server = ScriptedServer { request in
      request.target.contains("continuation-token=to%2Fken%3D%3D")
        ? Self.answer(Self.page(["a+b/h/a", "a+b/h/C", "a+b/h/%ff", "a+b/g/a", "h/z"]))
        : Self.answer(Self.page(["a+b/h/c", "a%20b/h/b"], next: "to/ken=="))
    }
    let store = try S3Store(.test(server.address, prefix: "a b"))
    #expect(try await store.list("h/") == ["a", "b", "c"].map { Self.entry("h/" + $0) })
    #expect(
      server.requests.first?.target
        == "/bucket/?encoding-type=url&list-type=2&max-keys=1000&prefix=a%20b%2Fh%2F")
    #expect(store.figures.requests == [.init(.list, status: 200): 2])
    #expect(store.figures.receivedBytes == 0, "bytes of objects are counted")
  }

  @Test("a listing may be empty, or name an object twice, or leave names as they are")
  func shapes() async throws {
    let shapes: [(String, [String])] = [
      (Self.page([]), []), ("<ListBucketResult/>", []), (Self.page(["b", "a", "b"]), ["a", "b"]),
      (Self.page(["a%62"], encoded: false), []), (Self.page(["a%62"]), ["ab"]),
      (
        "<s3:ListBucketResult xmlns:s3='a>b'><!-- - --><s3:Contents><s3:Key><![CDATA[a]]></s3:Key>"
          + "<s3:Size>7</s3:Size></s3:Contents></s3:ListBucketResult >\n",
        ["a"]
      ),
    ]
    for (text, names) in shapes {
      let server = ScriptedServer { _ in Self.answer(text) }
      #expect(try await S3Store.scripted(server).list("").map(\.name) == names, "\(text)")
    }
  }

  @Test("a listing that is truncated at any byte is an error, never a shorter listing")
  func truncated() throws {
    let whole = Array(Self.page(["a", "b"], next: "n").utf8)
    let page = try ListPage(whole, prefix: "", wanted: "")
    #expect(page.entries.map(\.name) == ["a", "b"])
    #expect(page.next == "n")
    for length in 0..<whole.count {
      #expect(throws: DecodingFailure.self) {
        _ = try ListPage(Array(whole[..<length]), prefix: "", wanted: "")
      }
    }
  }

  @Test("a listing that stays broken, or does not end, is an error")
  func broken() async throws {
    let texts = [
      "<ListBucketResult><Contents><Key>a</Key>", "<Other/>", "", "<html>",
      "<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>",
      "<ListBucketResult><Contents><Key>a</Key></Contents></ListBucketResult>",
      "<!DOCTYPE a [<!ENTITY b \"c\">]><ListBucketResult/>", Self.page(["%zz"]), Self.page(["a"]) + "x",
      "<ListBucketResult>&unknown;</ListBucketResult>",
      String(repeating: "<a>", count: 100_000),
    ]
    for text in texts {
      let server = ScriptedServer { _ in Self.answer(text) }
      let error = try #require(
        await failure { try await S3Store.scripted(server).list("") }, "\(text.prefix(50))")
      #expect(error.code == .invalid)
      #expect(server.requests.count == 3)
    }
    let endless = ScriptedServer { _ in Self.answer(Self.page(["a"], next: "same")) }
    #expect(await failure { try await S3Store.scripted(endless).list("") }?.code == .invalid)
    #expect(endless.requests.count == 2)
  }

  @Test("a page that was cut on the way is asked for again")
  func cutOnce() async throws {
    let server = ScriptedServer { request in
      let text = Self.page(["a"])
      return Self.answer(request.number == 0 ? String(text.prefix(150)) : text)
    }
    #expect(try await S3Store.scripted(server).list("") == [Self.entry("a")])
  }

  @Test("the reader of XML takes any bytes without a fault")
  func noise() {
    var random = SystemRandomNumberGenerator()
    let whole = Array(Self.page(["a&amp;&#x41;&#66;"], next: "n").utf8)
    for _ in 0..<3000 {
      var bytes = whole
      for _ in 0..<Int.random(in: 1...4, using: &random) {
        bytes[Int.random(in: 0..<bytes.count, using: &random)] = UInt8.random(in: 0...255, using: &random)
      }
      _ = try? ListPage(bytes, prefix: "", wanted: "")
    }
  }
}
