import SyncStore

/// Encryption at rest compared with LMDB, which has none.
extension Bench {
  /// First put of each key, then gets of all, copied and in place, of an encrypted store; LMDB runs
  /// unencrypted.
  func encryptedStore(oursFirst: Bool) throws {
    let both = contestants.filter { [SyncStorePeer.title, LMDBPeer.title].contains($0.title) }
    for contestant in oursFirst ? both : both.reversed() {
      let path = try folder(contestant.title, "encrypted")
      defer { remove(path) }
      Machine.settle()
      var settings = PeerSettings(capacity: options.keys)
      settings.isEncrypted = true
      let peer = try contestant.type.init(at: path, settings)
      report.add("encrypted-put", contestant.title, try peer.fill(contestant.corpus), "ns")
      try peer.sync()
      Machine.settle()
      report.add("encrypted-get", contestant.title, try peer.copyAll(contestant.corpus), "ns")
      if let time = try peer.touchAll(contestant.corpus) {
        report.add("encrypted-get-in-place", contestant.title, time, "ns")
      }
      try peer.close()
    }
  }
}
