/// Foreign bytes as command-line arguments separated by zeros, or as a configuration file. See
/// `ForeignArguments`, which is built into the target with the sources of `sync-cli`.
@_cdecl("LLVMFuzzerTestOneInput")
public func fuzz(_ start: UnsafePointer<UInt8>, _ count: Int) -> Int32 {
  ForeignArguments.read([UInt8](UnsafeBufferPointer(start: start, count: count)))
  return 0
}
