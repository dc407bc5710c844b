import Foundation
import SyncTestSupport
import Testing

/// The page with all pages, which `make docs` writes.
@Suite struct SinglePageTests {
  private static let isInstalled = FileManager.default.isExecutableFile(atPath: "/usr/bin/cmark-gfm")

  /// Runs the script on catalogues. Returns the page, or the error.
  private static func page(of catalogues: [String]) throws -> (text: String, error: String) {
    let folder = NSTemporaryDirectory() + "single-page-" + UUID().uuidString
    try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
    defer { try? FileManager.default.removeItem(atPath: folder) }
    let result = try ChildProcess.run(
      [Repository.top + "/scripts/single-page.py", folder + "/all.html"] + catalogues,
      environment: ["PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"])
    let text = try? String(contentsOfFile: folder + "/all.html", encoding: .utf8)
    return (text ?? "", result.text)
  }

  @Test("it has each guide and tutorial, needs nothing else, and its links lead to places in it")
  func whole() throws {
    guard Self.isInstalled else { return print("not checked: cmark-gfm is not installed") }
    let (text, error) = try Self.page(of: GuideTests.catalogues.map { Repository.top + "/" + $0 })
    #expect(error.isEmpty, "\(error)")
    let files = GuideTests.catalogues.flatMap {
      Repository.files(in: $0, ending: ".md") + Repository.files(in: $0, ending: ".tutorial")
    }
    #expect(files.count > 20)
    // One pass each: the page is long.
    let ids = Set(text.matches(of: /id="([^"]+)"/).map { String($0.1) })
    for file in files {
      let name = (file as NSString).lastPathComponent.split(separator: ".")[0].lowercased()
      #expect(ids.contains(name), "\(file)")
    }
    for link in text.matches(of: /(?:src|href)="([^"]+)"/) where !link.1.contains("$") {
      let isHere = link.1.hasPrefix("#") && ids.contains(String(link.1.dropFirst()))
      #expect(isHere || link.1.hasPrefix("data:") || link.1.hasPrefix("https:"), "\(link.1.prefix(100))")
    }
    for left in ["&lt;doc:", "``"] { #expect(!text.utf8.contains(left.utf8), "\(left)") }
  }

  @Test("a link to a page that does not exist fails it")
  func brokenLink() throws {
    guard Self.isInstalled else { return print("not checked: cmark-gfm is not installed") }
    let folder = NSTemporaryDirectory() + UUID().uuidString + "/Pages.docc"
    try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
    defer { try? FileManager.default.removeItem(atPath: (folder as NSString).deletingLastPathComponent) }
    let text = "# Pages\n\nSee <doc:Elsewhere>, ``Store/put(_:_:)``.\n\n## A part\n\n## A part\n"
    try Data(text.utf8).write(to: URL(fileURLWithPath: folder + "/Pages.md"))
    #expect(try Self.page(of: [folder]).error.contains("<doc:Elsewhere>: there is no such page"))

    try Data("# Elsewhere\n\n- term `x`: y\n".utf8).write(to: URL(fileURLWithPath: folder + "/Elsewhere.md"))
    let page = try Self.page(of: [folder]).text
    for part in [
      "<a href=\"#elsewhere\">Elsewhere</a>, <code>put(_:_:)</code>", "<h3 id=\"pages-a-part\">",
      "<h3 id=\"pages-a-part-2\">", "<li><code>x</code>: y</li>",
    ] {
      #expect(page.contains(part), "\(part)")
    }
  }
}
