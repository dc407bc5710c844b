import DemoSupport
import Foundation
import SyncStore

/// `document-store demo`, or its parts separately:
///
///     document-store add DIR TITLE AUTHOR TEXT [FILE…]
///     document-store list DIR [AUTHOR]
///     document-store export DIR NUMBER DIRECTORY
///     document-store remove DIR NUMBER
///     document-store backup DIR FILE
///     document-store restore FILE DIR
@main
struct DocumentStore {
  static func main() async { await reportingErrors(run) }

  static func run() async throws {
    let words = Array(CommandLine.arguments.dropFirst())
    guard words.count > 1 else { return try await withScratch(demo) }
    if words[0] == "restore", words.count == 3 {
      return say("restored \(try Store.restore(from: words[1], to: words[2]).position) positions")
    }
    // Opened or created at its first use.
    try StoreHandle.at(words[1]).withStore { store in
      let library = try Library(store)
      switch (words[0], words.count) {
      case ("add", 5...):
        let files = words.dropFirst(5).map { URL(fileURLWithPath: $0) }
        say("document \(try library.add(words[2], by: words[3], words[4], attaching: files))")
      case ("list", 2): for document in try library.documents.all() { say(line(document)) }
      case ("list", 3):
        for document in try library.documents.all(by: Document.byAuthor, equalTo: words[2]) {
          say(line(document))
        }
      case ("export", 4): say("\(try library.export(Int(words[2]) ?? 0, to: words[3])) files")
      case ("remove", 3): say(try library.remove(Int(words[2]) ?? 0) ? "removed" : "there is none")
      case ("backup", 3): say("\(try store.backUp(to: words[2]).writtenBytes) bytes")
      default: throw DemoFailure("what is \(words)? see the comment at the top of this file")
      }
    }
  }

  private static func line(_ document: Document) -> String {
    "\(document.id)  \(document.title), \(document.author), \(document.attachments.count) attached"
  }

  static func demo(_ scratch: String) async throws {
    let (photo, plan) = (
      URL(fileURLWithPath: scratch + "/photo.raw"), URL(fileURLWithPath: scratch + "/plan.txt")
    )
    try Data((0..<3_000_000).map { UInt8(truncatingIfNeeded: $0 &* $0 >> 7) }).write(to: photo)
    try Data("ground floor".utf8).write(to: plan)
    let store = try Store.create(at: scratch + "/documents")
    let library = try Library(store)

    say("A thousand documents, two of them with attachments.")
    let day = { (number: Int) in Date(timeIntervalSince1970: 1_700_000_000 + Double(number) * 86_400) }
    let survey = try library.add(
      "Survey", by: "Ann", written: day(0), "The cellar is dry.", attaching: [photo, plan])
    let copy = try library.add("Copy", by: "Bo", written: day(1), "See the survey.", attaching: [photo])
    try library.documents.insert(
      contentsOf: (3...1000).map {
        Document(id: $0, title: "Note \($0)", author: $0 % 2 == 0 ? "Ann" : "Bo", written: day($0), text: "…")
      })
    try store.put("last-document", 1000)
    try check(try library.documents.count == 1000, "there are 1000")
    try check(
      try library.documents.all(by: Document.byAuthor, equalTo: "Ann").count == 500, "500 of them are Ann's")
    try check(
      try library.documents.all(by: Document.byDate, in: day(10)...day(19)).map(\.id) == Array(10...19),
      "ten are of those ten days, in their order")
    let status = try store.status()
    try check(
      status.blobKeys == 2 && status.blobBytes == 6_000_000
        && (try store.entry(Library.attachment(survey, "photo.raw"))?.blob?.hash)
          == (try store.entry(Library.attachment(copy, "photo.raw"))?.blob?.hash),
      "the photo is attached twice and stored once")

    say("A backup, more work, another backup into the same file.")
    let backup = scratch + "/documents.backup"
    try check(try store.backUp(to: backup).isFull, "the first one has everything")
    try check(try library.remove(copy), "document \(copy) is removed, with its attachment")
    try library.documents.update(survey) { $0.text = "The cellar is wet." }
    let second = try store.backUp(to: backup)
    try check(!second.isFull && second.writtenBytes < 100_000, "the second one has only what came since")
    try Store.verifyBackup(backup)

    say("The store is lost, and restored, once as it was at last and once as it was before.")
    let last = try library.documents.get(survey)
    try store.close()
    try Store.remove(at: scratch + "/documents")
    try Store.restore(from: backup, to: scratch + "/restored")
    let restored = try Library(Store.open(at: scratch + "/restored"))
    try check(
      try restored.documents.get(survey) == last && restored.documents.count == 999, "the documents are back")
    let exported = scratch + "/exported"
    try FileManager.default.createDirectory(atPath: exported, withIntermediateDirectories: true)
    try check(try restored.export(survey, to: exported) == 2, "so are the attachments")
    try check(
      try Data(contentsOf: URL(fileURLWithPath: exported + "/photo.raw")) == Data(contentsOf: photo),
      "the photo is the same, byte for byte")
    try restored.store.close()
    try Store.restore(from: backup, to: scratch + "/before", state: 1)
    let before = try Library(Store.open(at: scratch + "/before"))
    try check(try before.documents.count == 1000, "the state before has document \(copy) still")
    try before.store.close()
    say("document-store: all is well")
  }
}
