/// Foreign bytes as the words of a command line, parted by zeros, or as a file of configuration. The sources of `sync-cli` are
/// built into the target.
@_cdecl("LLVMFuzzerTestOneInput")
public func fuzz(_ start: UnsafePointer<UInt8>, _ count: Int) -> Int32 {
  let bytes = [UInt8](UnsafeBufferPointer(start: start, count: count))
  guard let first = bytes.first else { return 0 }
  if first & 1 == 0 {
    if let json = try? JSONParser.parse(Array(bytes.dropFirst()), comments: first & 2 != 0) {
      precondition((try? JSONParser.parse(json.encoded)) == json, "JSON does not come back")
      if first & 2 != 0 { _ = try? ServeConfiguration(json: json) }
    }
  } else {
    let parser = ArgumentParser(commands: Program.commands, globals: Help.globals, absent: Program.planned)
    let words = bytes.dropFirst().split(separator: 0, omittingEmptySubsequences: false)
    _ = try? parser.parse(words.map { Argument(Array($0)) })
  }
  return 0
}
