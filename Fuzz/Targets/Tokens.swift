import Replication
import SyncStore

/// Foreign text as an invitation's token, an address, a file of group keys, or what the store keeps of a member.
@_cdecl("LLVMFuzzerTestOneInput")
public func fuzz(_ start: UnsafePointer<UInt8>, _ count: Int) -> Int32 {
  let bytes = [UInt8](UnsafeBufferPointer(start: start, count: count))
  let text = String(decoding: bytes, as: UTF8.self)
  if let invitation = try? Invitation(text: text) {
    precondition((try? Invitation(text: invitation.text)) == invitation, "a token does not come back")
  }
  if let endpoint = Endpoint(text) {
    precondition(Endpoint(endpoint.description) == endpoint, "an address does not come back: \(endpoint)")
  }
  _ = try? GroupKeyRing(text: text)
  _ = StandingInvitation(bytes: bytes)
  return 0
}
