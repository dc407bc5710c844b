/// Foreign text as an invitation, an address, a position, a file of group keys, or stored member data. See
/// `ForeignBytes`, which is built into the target.
@_cdecl("LLVMFuzzerTestOneInput")
public func fuzz(_ start: UnsafePointer<UInt8>, _ count: Int) -> Int32 {
  ForeignBytes.tokens([UInt8](UnsafeBufferPointer(start: start, count: count)))
  return 0
}
