import SyncStore
import SyncTestSupport

@testable import Replication

/// Members on simulated disks that meet nowhere but in a relay without faults.
struct RelayPair {
  let objects = VirtualObjectStore(seed: 1)
  let hosts: [SimulatedHost]
  let stores: [Store]

  init(members: Int = 2) throws {
    let names = (0..<members).map { "member-\($0)" }
    let hosts = names.enumerated().map { SimulatedHost(seed: UInt64($0) + 1, machine: $1) }
    var stores: [Store] = []
    for host in hosts { stores.append(try Store.create(on: host, id: stores.first?.id)) }
    let ring = try StoreKeys(stores[0]).makeGroupKeys()
    for store in stores.dropFirst() { try StoreKeys(store).replaceGroupKeys(with: ring) }
    let devices = try stores.map { try StoreKeys($0).makeIdentity().id }
    for store in stores {
      for (device, name) in zip(devices, names) {
        try Membership(store).put(
          Member(device: device, name: name, right: .readWrite, addresses: [], joined: 0))
      }
    }
    (self.hosts, self.stores) = (hosts, stores)
  }

  func client(_ number: Int) throws -> RelayClient {
    try RelayClient(store: stores[number], objects: objects, name: "relay")
  }
}
