/// The lines that commands print with `--json`: members that several commands have.
///
/// A command names its own as `json`; a test compares them with what the program prints.
enum JSONReference {
  /// The key of a line.
  static let key = [
    JSONMember("key", .text, "the key", absent: "if it is not UTF-8"),
    JSONMember("key_base64", .text, "the bytes of the key in base 64", absent: "if it is UTF-8"),
  ]

  static let deadline = JSONMember("expires", .time, "when the value expires", absent: "without a deadline")
  static let blob = JSONMember("blob", .text, "the SHA-256 of a large value", absent: "for other values")
  static let typeMeaning = "the type of the value: bytes, string, int, cbor …"
  static let shown = JSONMember(
    "shown", .value, "a readable form of an object that \"value\" could not hold exactly",
    absent: "in all other lines")
  static let path = JSONMember("path", .text, "the directory of the store")
  static let store = JSONMember("store", .text, "the store's identifier, which all of its copies have")

  /// A key with its value, which `load` reads back.
  static let keyAndValue =
    key + [
      JSONMember(
        "value", .value, "the value: a number for a number, a text for bytes that are UTF-8",
        absent: "if JSON has no exact form of it"),
      JSONMember("base64", .text, "the bytes of the value in base 64", absent: "if \"value\" is there"),
      JSONMember("type", .text, typeMeaning),
      shown, deadline,
    ]

  static let version = JSONMember(
    "version", .text,
    "the version of the value, for --if-version: an actor, a colon and the number of its write")

  /// A record of the journal.
  static let entry =
    [
      JSONMember(
        "position", .whole, "the position in this copy's journal; 0 for a value that is kept elsewhere"),
      JSONMember("stamp", .text, "the hybrid logical clock of the write: the greatest wins"),
      JSONMember("actor", .text, "the copy that made the write, by its number in the version vector"),
      JSONMember("sequence", .whole, "the number of the write among those of its actor"),
      version,
      JSONMember("kind", .text, "put or delete"),
      JSONMember("key", .text, "the key", absent: "if it is not UTF-8, and in records of the store's own"),
      JSONMember("key_base64", .text, "the bytes of the key in base 64", absent: "if it is UTF-8"),
      JSONMember("type", .text, typeMeaning, absent: "for a delete"),
      JSONMember("size", .bytes, "the size of the value"),
      JSONMember(
        "base", .text, "the newest write of another actor that it replaced, by its version",
        absent: "if it replaced none"),
      blob, deadline,
      JSONMember("current", .flag, "whether it is the write that counts for its key"),
    ]

  /// A record of the journal with its value.
  static let valuedEntry =
    entry + [
      JSONMember(
        "value", .value, "the value, as in the line of \"get\"",
        absent: "if JSON has no exact form of it, for a delete, and for a large value"),
      JSONMember(
        "base64", .text, "the bytes of the value in base 64",
        absent: "if \"value\" is there, for a delete, and for a large value"),
      shown,
    ]

  /// A comparison's summary.
  static let comparison: [JSONMember] = {
    let count: [JSONMember] = [
      JSONMember("keys", .whole, "keys that would be moved"),
      JSONMember("deletes", .whole, "deletes among them"),
      JSONMember("bytes", .bytes, "the size of their values"),
    ]
    return [
      JSONMember("peer", .text, "the name of the peer"),
      JSONMember("to_push", .object(count), "what the peer lacks", absent: "for pull"),
      JSONMember("to_pull", .object(count), "what this copy lacks", absent: "for push"),
    ]
  }()

  /// A key that differs between two copies.
  static let difference: [JSONMember] = {
    func content(_ name: String, _ place: String) -> JSONMember {
      let members = [
        JSONMember("deleted", .text, "the stamp of the delete", absent: "if the key has a value"),
        JSONMember("size", .bytes, "the size of the value", absent: "for a delete"),
        JSONMember("type", .text, "its type", absent: "for a delete"),
        JSONMember("stamp", .text, "the stamp of its write", absent: "for a delete"),
        JSONMember("expires", .time, "when it expires", absent: "without a deadline, and for a delete"),
      ]
      return JSONMember(
        name, .object(members), "the key's state \(place)", null: "if it was never written there")
    }
    return key + [
      JSONMember("direction", .text, "what brings it into step: push or pull"),
      JSONMember("change", .text, "what that does at the receiver: add, change or delete"),
      content("here", "in this copy"), content("there", "at the peer"),
    ]
  }()

  /// A session with its receipt.
  static let report = [
    JSONMember("peer", .text, "the name of the peer"),
    JSONMember("sent_records", .whole, "records that the peer lacked"),
    JSONMember("received_records", .whole, "records that this copy lacked"),
    JSONMember("sent_blobs", .whole, "large values sent"),
    JSONMember("received_blobs", .whole, "large values received"),
    JSONMember("sent_bytes", .bytes, "bytes sent over the network, TLS included"),
    JSONMember("received_bytes", .bytes, "bytes received over the network, TLS included"),
    JSONMember("round_trips", .whole, "how often this side waited for an answer; for a relay, its requests"),
    JSONMember("seconds", .seconds, "the duration of the session"),
    JSONMember(
      "position", .whole,
      "the position of this copy's journal up to which the peer holds everything durably; for pull, its end"),
    JSONMember(
      "digest", .text,
      "the state digest of the peer, 32 hex digits; for pull and for a relay, that of this copy"),
    JSONMember(
      "leaves_blobs_out", .flag, "true: the peer's policy leaves large values out", absent: "if it does not"),
    JSONMember(
      "repaired_keys", .whole, "keys whose values differed for one write: they are put right",
      absent: "if none"),
    JSONMember("repaired", .list(.object(key)), "those keys, at most 1,000", absent: "if none"),
  ]

  /// A session, or the use of a relay.
  static let use =
    report + [
      JSONMember(
        "delivered", .text,
        "relay: what was sent is durable in the relay, and the members have yet to read it",
        absent: "for a peer, and for pull"),
      JSONMember(
        "waiting_entries", .whole, "for a relay: entries that wait for something that is not there",
        absent: "if none"),
      JSONMember(
        "unknown_devices", .whole,
        "for a relay: devices that have published there and are not known as members yet", absent: "if none"),
      JSONMember("missing_blobs", .whole, "for a relay: large values that it lacks", absent: "if none"),
      JSONMember(
        "set_aside",
        .list(
          .object([
            JSONMember("object", .text, "its name"), JSONMember("reason", .text, "why it cannot be used"),
          ])), "for a relay: objects that cannot be used", absent: "if none"),
    ]

  static let isDryRun = JSONMember("dry_run", .flag, "true: nothing was changed", absent: "without --dry-run")
  static let failed = JSONMember("failed", .whole, "items that failed: standard error names them")
}
