import SyncStore

/// Something wrong with the daemon's configuration, with its place in the file.
struct ConfigurationMistake: Error, Equatable {
  /// A name in `peers` that no peer and no member has, and the most similar one that exists.
  struct Peer: Equatable {
    let name: String
    let near: String?

    var what: String {
      "\"peers\" names \"\(Text.printable(name.utf8))\", and no peer or member is called so"
    }

    var advice: String {
      near.map { "did you mean \"\(Text.printable($0.utf8))\"?" }
        ?? "\"sync-cli peer list\" shows those there are"
    }
  }

  /// The file, for messages.
  let file: String
  let place: TextPlace
  /// The setting; nil if the text is no JSON there.
  let setting: String?
  let what: String
  let advice: String

  /// `FILE:LINE:COLUMN: what is wrong: what to do`.
  var text: String { "\(file):\(place.line):\(place.column): \(what): \(advice)" }

  /// For `serve --check --json`.
  var json: JSON {
    let line: JSON = [
      "file": .string(file), "line": .integer(place.line), "column": .integer(place.column),
      "what": .string(what), "advice": .string(advice),
    ]
    return line.with("setting", setting.map { .string($0) })
  }

  /// The error that ends a command: reports all mistakes but the last one, which it is made of.
  static func failure(_ mistakes: [ConfigurationMistake]) -> Failure? {
    for mistake in mistakes.dropLast() { Diagnostics.report("serve: \(mistake.text)", as: .error) }
    return mistakes.last.map { Failure(.usage, "serve: \($0.text)") }
  }
}
