import DemoSupport
import FoundationEssentials
import SyncStore
import SyncStoreFoundation

/// A document. Its attachments are separate values, which the store keeps as files.
struct Document: Codable, Identifiable, Sendable, Equatable {
  let id: Int
  var title: String
  var author: String
  var written: Date
  var text: String
  var attachments: [String] = []

  static let byAuthor = CollectionIndex("author", \Document.author)
  static let byDate = CollectionIndex("written", \Document.written)
}

/// Documents by number, author and date, and their attachments: `attachments/NUMBER/NAME`.
struct Library {
  let store: Store
  let documents: StoreCollection<Document>

  init(_ store: Store) throws {
    self.store = store
    documents = try store.collection(
      "documents", of: Document.self, indexes: [Document.byAuthor, Document.byDate])
  }

  static func attachment(_ document: Int, _ name: String) throws -> Key {
    try Key("attachments/\(document)/\(name)")
  }

  /// Adds a document with its attachments atomically. Returns its number.
  func add(
    _ title: String, by author: String, written: Date = Date(), _ text: String, attaching files: [URL] = []
  ) throws -> Int {
    try store.transaction { transaction in
      let id = try transaction.get("last-document", default: 0) + 1
      try transaction.put("last-document", id)
      for file in files {
        try transaction.put(try Self.attachment(id, file.lastPathComponent), fileAt: file.path)
      }
      let document = Document(
        id: id, title: title, author: author, written: written, text: text,
        attachments: files.map(\.lastPathComponent))
      try documents.insert(document, in: &transaction)
      return id
    }
  }

  /// Removes a document with all its attachments. Returns false if it does not exist.
  func remove(_ id: Int) throws -> Bool {
    try store.transaction { transaction in
      guard let document = try documents.get(id, in: transaction) else { return false }
      for name in document.attachments { try transaction.delete(try Self.attachment(id, name)) }
      return try documents.delete(id, in: &transaction)
    }
  }

  /// Writes a document's attachments into a directory; streamed, and each verified.
  func export(_ id: Int, to directory: String) throws -> Int {
    let names = try documents.get(id)?.attachments ?? []
    for name in names where try !store.export(Self.attachment(id, name), toFileAt: directory + "/" + name) {
      throw DemoFailure("\(name) of document \(id) is not there")
    }
    return names.count
  }
}
