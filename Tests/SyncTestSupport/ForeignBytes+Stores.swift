private import Replication
private import SyncStore

extension ForeignBytes {
  /// A small store, as its files, and all that was ever written to its keys.
  private struct Template {
    let host: SimulatedHost
    let files: [String: [UInt8]]
    let names: [String]
    var written: [Key: [[UInt8]]] = [:]

    static let configuration = Configuration(blobThreshold: 2048, segmentBytes: 64 << 10)

    init(sealed: Bool) throws {
      host = SimulatedHost(sealed: sealed)
      let store = try Store.create(on: host, configuration: Self.configuration)
      for number in 0..<16 {
        let key = try Key("key \(number % 10)")
        let value =
          Array("value \(number)".utf8) + [UInt8](repeating: 7, count: number == 5 ? 3000 : number * 9)
        written[key, default: []].append(value)
        try store.put(key, value)
      }
      try store.transaction { transaction in
        try transaction.delete("key 9")
        try transaction.put("key 8", "last")
      }
      written["key 8", default: []].append(Array("last".utf8))
      try StoreKeys(store).replaceGroupKeys(with: GroupKeyRing(key: [UInt8](repeating: 3, count: 32)))
      try store.close()
      host.killProcesses()
      files = try host.storage.files(below: "/store")
      names = files.keys.sorted()
    }

    func restore() throws {
      host.killProcesses()
      for path in try host.storage.files(below: "/store").keys.sorted() where files[path] == nil {
        _ = try host.storage.remove(path)
      }
      try host.storage.restore(files)
    }
  }

  private static let plain = Locked(try? Template(sealed: false))
  private static let sealed = Locked(try? Template(sealed: true))

  /// A store of which one file is damaged: segment, index, ledger, control page, identity, key files, pack. The first byte says
  /// which, and whether the store is encrypted; the second how: the others take the file's place, or each three of them change
  /// a byte of it, or the file is cut. Whatever is read then was written once, to that key.
  package static func stores(_ bytes: [UInt8]) {
    guard bytes.count >= 2 else { return }
    (bytes[0] & 0x80 == 0 ? plain : sealed).withLock { template in
      guard let template else { preconditionFailure("no store to be damaged") }
      do {
        try template.restore()
        try damage(template, bytes)
        try look(at: template)
      } catch is StoreError { return } catch { preconditionFailure("\(error)") }
    }
  }

  private static func damage(_ template: Template, _ bytes: [UInt8]) throws {
    let path = template.names[Int(bytes[0] & 0x7F) % template.names.count]
    let foreign = Array(bytes[2...])
    switch bytes[1] % 3 {
    case 0: try template.host.storage.restore([path: foreign])
    case 1:
      let file = try template.host.storage.open(path, .readWrite)
      let size = try file.status().size
      for edit in stride(from: 0, to: foreign.count - 2, by: 3) where size > 0 {
        let place = (Int(foreign[edit]) << 8 | Int(foreign[edit + 1])) % size
        let old = try file.read(1, at: place)
        try file.write([old[0] ^ foreign[edit + 2]], at: place)
      }
    default:
      let file = try template.host.storage.open(path, .readWrite)
      let size = try file.status().size
      try file.resize(to: foreign.reduce(0) { ($0 << 8 | Int($1)) & 0xFF_FFFF } % (size + 4096))
    }
    template.host.killProcesses()
  }

  private static func look(at template: Template) throws {
    var configuration = Template.configuration
    configuration.mode = .readOnly
    if let reader = try? Store.open(on: template.host, configuration: configuration) {
      look(at: reader, template)
      try? reader.close()
    }
    let store = try Store.open(on: template.host, configuration: Template.configuration)
    look(at: store, template)
    _ = try store.verify()
    try store.put("new", "value")
    let new = try store.text("new")
    precondition(new == "value", "what was just put is not there")
    try store.compact()
    look(at: store, template)
    try store.close()
  }

  private static func look(at store: Store, _ template: Template) {
    for (key, values) in template.written {
      guard let found = try? store.get(key)?.bytes else { continue }
      precondition(values.contains(found), "\(key) has a value that was never written")
    }
    _ = try? store.list()
    _ = try? store.log(from: 1, limit: .max)
    _ = try? store.digest()
    _ = try? StoreKeys(store).groupKeys()
  }

  /// A version vector, as what another member has said that it covers: it is taken in, and asked when deletes are purged.
  package static func vectors(_ bytes: [UInt8]) {
    let host = SimulatedHost(sealed: false)
    do {
      let store = try Store.create(on: host, configuration: Template.configuration)
      try store.put("key", "value")
      try store.delete("key")
      guard let device = DeviceID(bytes: [UInt8](repeating: 1, count: 32)) else { return }
      try store.putReserved(ReservedKey.frontier(device), Array(bytes.prefix(60_000)))
      _ = try store.purge()
      let isGone = try store.get("key") == nil
      precondition(isGone, "what was deleted is back")
      try store.close()
      _ = try Store.open(on: host).verify()
    } catch { return }
  }
}
