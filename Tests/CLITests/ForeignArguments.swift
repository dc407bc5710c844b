// The fuzzer is built of this file and of the sources of `sync-cli` themselves.
#if !FUZZING
  @testable import sync_cli
#endif

/// What becomes of bytes that nobody vouches for as a command line or as a file of configuration.
enum ForeignArguments {
  /// The lowest bit of the first byte says which of the two, the next one whether comments are allowed, as they are in a
  /// configuration. Words are parted by zeros.
  static func read(_ bytes: [UInt8]) {
    guard let first = bytes.first else { return }
    if first & 1 == 0 {
      guard let json = try? JSONParser.parse(Array(bytes.dropFirst()), comments: first & 2 != 0) else {
        return
      }
      precondition((try? JSONParser.parse(json.encoded)) == json, "JSON does not come back")
      if first & 2 != 0 { _ = try? ServeConfiguration(json: json) }
    } else {
      let parser = ArgumentParser(commands: Program.commands, globals: Help.globals, absent: Program.planned)
      let words = bytes.dropFirst().split(separator: 0, omittingEmptySubsequences: false)
      _ = try? parser.parse(words.map { Argument(Array($0)) })
    }
  }
}
