import Foundation
import Testing

/// Checks the form of error messages: `sync-cli: what failed: why: what to do`.
@Suite struct MessageTests {
  /// A literal message in the source and its location.
  private struct Message {
    let place: String
    let text: String
  }

  private static func messages() throws -> [Message] {
    var messages: [Message] = []
    let pattern =
      #/(?:StoreError|ReplicationError|ObjectStoreError|Failure)\(\s*(?:\.\w+|code|\w+\.code)\s*,\s*(?<text>(?:"(?:[^"\\]|\\.)*"\s*\+?\s*)+)/#
    for path in Repository.files(in: "Sources", ending: ".swift") {
      let source = try Repository.read(path)
      for match in source.matches(of: pattern) {
        let line = source[..<match.range.lowerBound].count { $0 == "\n" } + 1
        messages.append(
          Message(
            place: "\(path):\(line)", text: String(match.output.text)))
      }
    }
    return messages
  }

  @Test("each error message says the reason and what to do")
  func parts() throws {
    let messages = try Self.messages()
    #expect(messages.count > 150, "\(messages.count) messages found: has the form of errors changed?")
    for message in messages {
      // A literal within an interpolation ends the match early.
      let isCut = message.text.count { $0 == "(" } > message.text.count { $0 == ")" }
      // A message that continues with another message ends with the advice of that one.
      let isComposed =
        isCut || message.text.hasSuffix("+ ") || message.text.contains("context.text)")
        || message.text.contains("message)")
        || message.text.contains("\\(why)") || message.text.contains("\\(what)\"")
      #expect(isComposed || message.text.contains(": "), "\(message.place): \(message.text)")
    }
  }

  @Test("each message with a count has singular and plural forms")
  func plurals() throws {
    // Excludes counts that are at least two and constants that are bounds.
    let pattern =
      #/\\\((?!Limits|Self\.|WireLimits)[\w.]*(?:count|Count|records|blobs|writes|parked|evicted|rewritten|places)\) (?:keys|records|blobs|files|segments|members|places|values|writes|peers|lines|objects)\b/#
    for path in Repository.files(in: "Sources", ending: ".swift") {
      for (index, line) in try Repository.lines(path).enumerated() where line.contains(pattern) {
        #expect(line.contains("== 1 ?") || line.contains("///"), "\(path):\(index + 1): \(line)")
      }
    }
  }
}
