/// Foreign bytes as an HTTP request to the daemon. See `ForeignRequests`, which is built into the target with
/// the sources of `sync-cli`.
@_cdecl("LLVMFuzzerTestOneInput")
public func fuzz(_ start: UnsafePointer<UInt8>, _ count: Int) -> Int32 {
  ForeignRequests.read([UInt8](UnsafeBufferPointer(start: start, count: count)))
  return 0
}
