import Foundation

/// The options of the command line.
struct Options {
  static let usage = """
    usage: Benchmarks [--keys N] [--only WORKLOAD,…] [--peers PEER,…] [--rounds N] [--name NAME]
                      [--results FOLDER] [--data FOLDER] [--plot FILE] [--ten-million] [--large MIB]
      workloads: \(workloads.joined(separator: " "))
      peers:     \(Contestant.peers.map { $0.title }.joined(separator: " "))
    """

  /// Their names are stable: what reads the results may rely on them.
  static let workloads = [
    "put", "get", "get-in-place", "miss", "get-2-threads", "scan", "overwrite", "transaction", "durable-put",
    "open", "put-latency", "memory", "encrypted", "typed", "caches", "sync", "sync-large", "relay",
    "relay-large", "blobs", "cache-trim", "tier", "threshold",
  ]

  var keys = 1_000_000
  var only: Set<String> = []
  var peers = Contestant.peers
  var rounds = 3
  /// Of the file of results.
  var name = ""
  var results = "Benchmarks/results"
  /// Path of the plot of the headline figures; nil writes it to the results folder.
  var plot: String?
  /// Where the stores are made: a disk, or durable puts mean nothing.
  var data = "Benchmarks/.build/data"
  /// Opening and latency with 10 million keys, too: some minutes and 10 GB more.
  var tenMillion = false
  /// Size of the large value that is published in a relay.
  var largeMebibytes = 1024

  init(_ arguments: some Sequence<String>) throws {
    var rest = Array(arguments)
    func number(_ text: String, atLeast least: Int) throws -> Int {
      guard let number = Int(text), number >= least else {
        throw BenchmarkError("\(text) is not a number of at least \(least)\n\(Self.usage)")
      }
      return number
    }
    while !rest.isEmpty {
      let option = rest.removeFirst()
      if option == "--ten-million" {
        tenMillion = true
        continue
      }
      guard !rest.isEmpty else {
        throw BenchmarkError("\(option) is unknown or lacks its value\n\(Self.usage)")
      }
      let value = rest.removeFirst()
      let list = value.split(separator: ",").map { String($0) }
      switch option {
      case "--keys": keys = try number(value, atLeast: 1_000)
      case "--rounds": rounds = try number(value, atLeast: 1)
      case "--large": largeMebibytes = try number(value, atLeast: 16)
      case "--name": name = value
      case "--results": results = value
      case "--data": data = value
      case "--plot": plot = value
      case "--only":
        for workload in list where !Self.workloads.contains(workload) {
          throw BenchmarkError("there is no workload \(workload)\n\(Self.usage)")
        }
        only = Set(list)
      case "--peers":
        peers = try list.map { title in
          guard let peer = Contestant.peers.first(where: { $0.title == title }) else {
            throw BenchmarkError("there is no peer \(title)\n\(Self.usage)")
          }
          return peer
        }
      default: throw BenchmarkError("there is no option \(option)\n\(Self.usage)")
      }
    }
    if name.isEmpty {
      let date = Date().formatted(.iso8601.timeSeparator(.omitted).dateSeparator(.dash))
      name = "\(date)-\(keys)"
    }
  }

  /// Is this workload asked for?
  func wants(_ workload: String) -> Bool { only.isEmpty || only.contains(workload) }
}

/// An engine and the keys that it gets.
struct Contestant {
  static let peers: [any KeyValuePeer.Type] = [
    LMDBPeer.self, LevelDBPeer.self, RocksDBPeer.self, SQLitePeer.self,
  ]

  let type: any KeyValuePeer.Type
  let corpus: Corpus
  var title: String { type.title }

  /// The engine of that name, the store itself among them.
  static func type(_ title: String) throws -> any KeyValuePeer.Type {
    guard let type = ([SyncStorePeer.self] + peers).first(where: { $0.title == title }) else {
      throw BenchmarkError("there is no engine \(title)")
    }
    return type
  }
}
