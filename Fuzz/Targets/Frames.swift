/// Foreign bytes as received from a connection. See `ForeignBytes`, which is built into the target.
@_cdecl("LLVMFuzzerTestOneInput")
public func fuzz(_ start: UnsafePointer<UInt8>, _ count: Int) -> Int32 {
  ForeignBytes.frames([UInt8](UnsafeBufferPointer(start: start, count: count)))
  return 0
}
