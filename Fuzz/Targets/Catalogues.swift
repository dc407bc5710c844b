/// Foreign bytes as the catalogue of large values, or as rows of its tables. See `ForeignBytes`, which is
/// built into the target.
@_cdecl("LLVMFuzzerTestOneInput")
public func fuzz(_ start: UnsafePointer<UInt8>, _ count: Int) -> Int32 {
  ForeignBytes.catalogues([UInt8](UnsafeBufferPointer(start: start, count: count)))
  return 0
}
