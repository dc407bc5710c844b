// The fuzzer is built from this file and the sources of `sync-cli`.
#if !FUZZING
  @testable import sync_cli
#endif

/// Parses untrusted bytes as a command line or as a configuration file.
enum ForeignArguments {
  /// The lowest bit of the first byte selects one of the two, the next one whether comments are allowed, as
  /// in a configuration. Zeros separate words.
  static func read(_ bytes: [UInt8]) {
    guard let first = bytes.first else { return }
    if first & 1 == 0 {
      guard let json = try? JSONParser.parse(Array(bytes.dropFirst()), comments: first & 2 != 0) else {
        return
      }
      precondition((try? JSONParser.parse(json.encoded)) == json, "JSON does not come back")
      if first & 2 != 0 { _ = ConfigurationFile(Array(bytes.dropFirst()), named: "F") }
    } else {
      let parser = ArgumentParser(
        commands: Program.commands, globals: Help.globals, hidden: Program.hidden, alone: Program.alone)
      let words = bytes.dropFirst().split(separator: 0, omittingEmptySubsequences: false)
      _ = try? parser.parse(words.map { Argument(Array($0)) })
    }
  }
}
