/// Foreign bytes as the content of a batch, once it is opened and inflated. See `ForeignBytes`, which is built into the target.
@_cdecl("LLVMFuzzerTestOneInput")
public func fuzz(_ start: UnsafePointer<UInt8>, _ count: Int) -> Int32 {
  ForeignBytes.records([UInt8](UnsafeBufferPointer(start: start, count: count)))
  return 0
}
