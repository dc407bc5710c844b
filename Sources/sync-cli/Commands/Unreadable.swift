import SyncStore

/// What a command that goes through many keys could not read. It gives all the others, tells of these, and ends with 5: no
/// script takes a part for the whole.
struct Unreadable {
  /// Keys that are named at most; the others are counted.
  private static let named = 10

  private let command: String
  private var reasons: [[UInt8]: String] = [:]

  /// Nothing yet; `command` is what the user has called.
  init(_ command: String) { self.command = command }

  /// Takes in what is known to be in doubt; of a listing that ended at a limit, only `upTo` its last key.
  mutating func note(_ doubts: [Doubt], upTo last: Key? = nil) {
    for doubt in doubts {
      if let key = doubt.key, let last, last < key { continue }
      // The store's own keys alone are empty: it stands for any.
      note(doubt.key?.bytes ?? [], doubt.error)
    }
  }

  /// Takes in that a key could not be read. Any error but damage is thrown: that is for all keys alike.
  mutating func note(_ key: Key, _ error: StoreError) throws(StoreError) {
    guard error.code == .damaged else { throw error }
    note(key.bytes, error)
  }

  private mutating func note(_ key: [UInt8], _ error: StoreError) {
    if reasons[key] == nil { reasons[key] = error.description }
  }

  /// Tells what there is to tell, and fails if there is anything.
  func check() throws(Failure) {
    guard !reasons.isEmpty else { return }
    let keys = reasons.keys.sorted { $0.lexicographicallyPrecedes($1) }
    for key in keys.prefix(Self.named) {
      let name = key.isEmpty ? "" : " \(Text.printable(key))"
      Diagnostics.report("\(command)\(name): \(reasons[key] ?? "")")
    }
    let count = keys.count { !$0.isEmpty }
    let what = count == 0 ? "some keys may be missing" : "\(Text.count(count, "key")) could not be read"
    throw Failure(
      .damaged, "\(command): this is not all: \(what): run \"sync-cli verify --repair\", and then this again")
  }
}
