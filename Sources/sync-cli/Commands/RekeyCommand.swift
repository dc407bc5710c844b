import SyncStore

/// `rekey`: changes the passphrase or master key, encrypts or decrypts, all while the store is in use.
enum RekeyCommand {
  static let command = Command(
    "rekey", "change the passphrase, or the keys, of a store",
    options: [
      Option("master-key", "make a new master key, and write all there is anew under it"),
      Option("encrypt", "encrypt a store that is not"),
      Option("decrypt", "make an encrypted store a plain one"),
      Option("new-passphrase-file", value: "FILE", "the new passphrase: the first line of FILE"),
      Confirmation.yes,
    ],
    notes: """
      Without a switch only the passphrase changes, at once. Others go on reading and writing meanwhile; one that was \
      interrupted goes on with "rekey --master-key", or by itself. The new passphrase comes from FILE, from \
      $SYNC_NEW_PASSPHRASE, or from the terminal.
      After --encrypt no process that has the store open can go on: a daemon ends with 3, and is to be started again with \
      the passphrase. --decrypt ends with 6 as long as other processes have the store open: keep the passphrase, and run \
      it again once they have ended.
      """
  ) { invocation, output in
    let switches = ["master-key", "encrypt", "decrypt"].filter { invocation.has($0) }
    guard switches.count <= 1 else {
      throw invocation.usage(
        "--\(switches[0]) --\(switches[1])", reason: "they exclude each other", advice: "give one of them")
    }
    let takesNew = switches.isEmpty || switches == ["encrypt"]
    guard takesNew || !invocation.has("new-passphrase-file") else {
      throw invocation.usage(
        "--new-passphrase-file", reason: "--\(switches[0]) does not change the passphrase",
        advice: "leave one of them out")
    }
    if switches == ["decrypt"] { try invocation.confirm("write all values to the disk without encryption?") }
    let opening = try invocation.opening(toWrite: true)
    let wasEncrypted = try Store.isEncrypted(at: opening.path)
    let result = try invocation.withStore(opening) { store in
      switch switches.first {
      case "master-key": return try store.renewKeys()
      case "decrypt":
        // An earlier rekey left its last step to the next exclusive opening, which just happened.
        guard store.isEncrypted || !wasEncrypted else { return Store.RekeyingReport(isComplete: true) }
        return try store.decrypt()
      case "encrypt": return try store.encrypt(with: try Secrets.newPassphrase(invocation))
      default:
        guard store.isEncrypted else {
          throw StoreError(
            .notEncrypted, "the store is not encrypted: use `rekey --encrypt`", path: store.path)
        }
        try store.changePassphrase(to: try Secrets.newPassphrase(invocation))
        return Store.RekeyingReport(isComplete: true)
      }
    }
    try invocation.report(
      text(switches.first, result),
      json: JSON.object([
        .init(name: "rewritten_segments", value: .integer(result.rewritten)),
        .init(name: "damaged_segments", value: .integer(result.damaged)),
        .init(name: "complete", value: .bool(result.isComplete)),
      ]), output)
    guard result.damaged == 0 else { return .damaged }
    guard switches.first != "decrypt" || result.isComplete else {
      throw Failure(
        .busy,
        "rekey --decrypt: not finished: other processes have the store open, and it still opens with the passphrase alone: "
          + "keep that, and run \"sync-cli rekey --decrypt\" with it again once they have ended")
    }
    return .done
  }.printing(JSONReference.rekey)

  private static func text(_ change: String?, _ report: Store.RekeyingReport) -> String {
    guard let change else { return "the passphrase is changed" }
    let done =
      switch change {
      case "encrypt": "encrypted"
      case "decrypt": "decrypted"
      default: "under a new master key"
      }
    var text = "\(done): \(Text.count(report.rewritten, noun: "segment")) written anew"
    if report.damaged > 0 {
      text += ", \(report.damaged) damaged ones kept as they are: run `verify --repair`, then this again"
    } else if !report.isComplete, change == "decrypt" {
      text += "; one step is left until the other processes have let the store go"
    } else if !report.isComplete {
      text += "; the older keys are kept until the other processes have let the store go"
    }
    return text
  }
}
