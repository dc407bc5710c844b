/// The JSON lines of commands on keys and values.
extension JSONReference {
  // MARK: - Single keys

  static let put = [JSONLine("the value that was written", key + [version])]
  static let get = [
    JSONLine(
      "each value",
      keyAndValue + [
        version,
        JSONMember(
          "exact", .value, "such an object as \"put --type cbor\" takes it, with {\"$date\":…} and the like",
          absent: "if \"value\" is there, and for other types"),
      ])
  ]
  static let delete = [
    JSONLine("with --dry-run, each key that would be deleted", key),
    JSONLine(
      "at the end",
      [
        JSONMember("deleted", .whole, "keys that were deleted"),
        JSONMember("would_delete", .whole, "keys that would be deleted", absent: "without --dry-run"),
      ]),
  ]
  static let list = [
    JSONLine(
      "each key",
      key + [
        JSONMember("type", .text, typeMeaning), JSONMember("size", .bytes, "the size of the value"),
        JSONMember("stamp", .text, "the hybrid logical clock of the write"), deadline, blob,
      ])
  ]
  static let expiry = [
    JSONLine(
      "the key",
      key + [
        JSONMember("expires", .time, "when the value expires", null: "if it never does"),
        JSONMember("seconds", .whole, "seconds until then, rounded up", null: "if it never does"),
      ])
  ]
  static let move = [
    JSONLine("the new key", key + [JSONMember("from", .prefix, "the key that the value was taken from")])
  ]
  static let edit = [JSONLine("the key", key + [JSONMember("changed", .flag, "whether a value was written")])]

  // MARK: - Many keys

  static let count = [
    JSONLine("the number", [prefix, JSONMember("keys", .whole, "keys that begin with it")])
  ]
  static let du = [
    JSONLine(
      "PREFIX, and with --depth each path below it",
      [
        prefix, JSONMember("bytes", .bytes, "keys and values together"),
        JSONMember("keys", .whole, "keys that begin with it"), JSONMember("key_bytes", .bytes, "their keys"),
        JSONMember("value_bytes", .bytes, "their values, large ones included"),
        JSONMember("blobs", .whole, "large values among them"),
        JSONMember("blob_bytes", .bytes, "the large values"),
      ])
  ]
  static let importing = [
    JSONLine(
      "with --dry-run, each key",
      key + [JSONMember("action", .text, "put or delete: what would be done to it")]),
    JSONLine(
      "at the end",
      [
        JSONMember("files", .whole, "files that were stored, or would be"),
        JSONMember("bytes", .bytes, "their content"),
        JSONMember("unchanged", .whole, "files whose content was stored already"),
        JSONMember("skipped", .whole, "symbolic links and special files, which were left out"), seconds,
        failed,
        JSONMember("deleted", .whole, "keys that were deleted, or would be", absent: "without --delete"),
        isDryRun,
      ]),
  ]
  static let exporting = [
    JSONLine(
      "at the end",
      [
        JSONMember("files", .whole, "files that were written"), JSONMember("bytes", .bytes, "their content"),
        seconds, failed,
      ])
  ]
  static let load = [
    JSONLine("at the end", [JSONMember("loaded", .whole, "lines whose key was stored"), failed])
  ]
  static let dump = [JSONLine("each key, with or without --json", keyAndValue)]
  static let watch = [
    JSONLine(
      "each event",
      [
        JSONMember("event", .text, "put, delete, gap, or with --initial present and ready"),
        JSONMember("key", .text, "the key", absent: "if it is not UTF-8, and for ready and gap"),
        JSONMember("key_base64", .text, "the bytes of the key in base 64", absent: "if it is UTF-8"),
        JSONMember(
          "value", .value, "the value, as in the line of \"get\"",
          absent: "if JSON has no exact form of it, it is not here, or there is none"),
        JSONMember("base64", .text, "the bytes of the value in base 64", absent: "if \"value\" can be there"),
        JSONMember("type", .text, typeMeaning, absent: "if the event has no value"),
        shown, deadline,
        JSONMember("size", .bytes, "the size of the value", absent: "if the value is in the line"),
        JSONMember("blob", .text, "the SHA-256 of a large value", absent: "if the value is in the line"),
        JSONMember("position", .text, "for --from: what follows this event"),
      ])
  ]
  private static let prefix = JSONMember(
    "prefix", .prefix, "the beginning of the keys; empty for all of them")
  private static let seconds = JSONMember("seconds", .seconds, "the duration")

  // MARK: - Records

  static let digest = [
    JSONLine(
      "the digest",
      [
        JSONMember("digest", .text, "the state digest, 32 hex digits"),
        JSONMember(
          "vector", .table(.whole, name: "actor"), "the last write of each actor that this copy covers",
          absent: "without --long"),
      ])
  ]
  static let log = [JSONLine("each record", entry)]
  static let why: [JSONLine] = {
    let waiting = JSONMember(
      "waiting",
      .list(
        .object(
          valuedEntry + [
            JSONMember("counts_from_ms", .time, "when the write counts at the latest: its stamp is ahead")
          ])),
      "writes that are stamped ahead of this clock, at most 100")
    return [
      JSONLine(
        "the write that counts",
        valuedEntry + [
          JSONMember("local", .flag, "whether it was written here"),
          JSONMember("device", .text, "the name of the member that wrote it", absent: "if it is not known"),
          JSONMember(
            "from", .text, "the member, or the actor, from which it came", absent: "if it was written here"),
          JSONMember(
            "beaten", .list(.object(valuedEntry)), "concurrent writes that lost to it, newest first"),
          JSONMember("unacknowledged", .list(.text), "members that are not known to have it"),
          waiting.absent("if there are none"),
        ]),
      JSONLine("a key without a value, for which a write waits", key + [waiting]),
    ]
  }()
  static let conflicts = [JSONLine("each value that was beaten", valuedEntry)]
  static let showConflict = [
    JSONLine(
      "the key",
      [
        JSONMember("current", .object(valuedEntry), "the write that counts"),
        JSONMember("beaten", .list(.object(valuedEntry)), "those that lost to it, newest first"),
      ])
  ]
  static let restoreConflict = [
    JSONLine(
      "the value", [JSONMember("restored", .text, "the version of the write whose value counts again")])
  ]
  static let unsent = [
    JSONLine(
      "each key",
      key + [
        JSONMember("deleted", .flag, "whether the write is a delete"),
        JSONMember("time_ms", .time, "when it was written"),
        JSONMember("position", .whole, "its position in this copy's journal"),
      ])
  ]
}
