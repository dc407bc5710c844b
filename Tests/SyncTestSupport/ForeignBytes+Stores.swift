private import Replication
private import SyncStore

extension ForeignBytes {
  private static let plain = Result { try StoreTemplate(encrypted: false) }
  private static let encrypted = Result { try StoreTemplate(encrypted: true) }

  /// A store with one damaged file: segment, index, index checkpoint, control page, identity, key files,
  /// pack. The first byte chooses the file and whether the store is encrypted; the second chooses whether the
  /// rest replaces the file, changes one byte per three, or truncates it. Any value that is still read must
  /// have been written to that key.
  package static func stores(_ bytes: [UInt8]) {
    guard bytes.count >= 2 else { return }
    guard let template = try? (bytes[0] & 0x80 == 0 ? plain : encrypted).get(),
      let host = try? template.machine()
    else { preconditionFailure("no store to be damaged") }
    do {
      try damage(host, template, bytes)
      try look(at: host, template)
    } catch is StoreError { return } catch { preconditionFailure("\(error)") }
  }

  private static func damage(_ host: SimulatedHost, _ template: StoreTemplate, _ bytes: [UInt8]) throws {
    let path = template.names[Int(bytes[0] & 0x7F) % template.names.count]
    let foreign = Array(bytes[2...])
    switch bytes[1] % 3 {
    case 0: try host.storage.restore([path: foreign])
    case 1:
      let file = try host.storage.open(path, .readWrite)
      let size = try file.status().size
      for edit in stride(from: 0, to: foreign.count - 2, by: 3) where size > 0 {
        let place = (Int(foreign[edit]) << 8 | Int(foreign[edit + 1])) % size
        let old = try file.read(1, at: place)
        try file.write([old[0] ^ foreign[edit + 2]], at: place)
      }
    default:
      let file = try host.storage.open(path, .readWrite)
      let size = try file.status().size
      try file.resize(to: foreign.reduce(0) { ($0 << 8 | Int($1)) & 0xFF_FFFF } % (size + 4096))
    }
    host.killProcesses()
  }

  static func look(at host: SimulatedHost, _ template: StoreTemplate, values: Bool = true) throws {
    var configuration = StoreTemplate.configuration
    configuration.mode = .readOnly
    if let reader = try? Store.open(on: host, configuration: configuration) {
      look(at: reader, template, values)
      try? reader.close()
    }
    let store = try Store.open(on: host, configuration: StoreTemplate.configuration)
    look(at: store, template, values)
    _ = try store.verify()
    try store.put("new", "value")
    let new = try store.text("new")
    precondition(new == "value", "what was just put is not there")
    try store.compact()
    _ = try? store.trim(graceSeconds: 0)
    look(at: store, template, values)
    try store.close()
  }

  private static func look(at store: Store, _ template: StoreTemplate, _ comparing: Bool) {
    for (key, values) in template.written {
      guard let found = try? store.get(key)?.bytes, comparing else { continue }
      precondition(values.contains(found), "\(key) has a value that was never written")
    }
    _ = try? store.list()
    _ = try? store.snapshot().close()
    _ = try? store.log(from: 1, limit: .max)
    _ = try? store.digest()
    _ = try? StoreKeys(store).groupKeys()
    _ = try? StoreKeys(store).identity()
  }
}
