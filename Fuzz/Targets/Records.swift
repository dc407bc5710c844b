import Replication
import SyncStore

/// Foreign bytes as the content of a batch, once it is opened and inflated.
@_cdecl("LLVMFuzzerTestOneInput")
public func fuzz(_ start: UnsafePointer<UInt8>, _ count: Int) -> Int32 {
  let bytes = [UInt8](UnsafeBufferPointer(start: start, count: count))
  _ = try? RecordCodec.decode(bytes)
  return 0
}
