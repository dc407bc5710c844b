/// The JSON lines of commands on a whole store.
extension JSONReference {
  static let initial = [
    JSONLine("the store", [path, JSONMember("name", .text, "the name of this copy"), store])
  ]
  static let destroy = [JSONLine("the store that was removed", [path])]

  static let verify = [
    JSONLine(
      "the result",
      [
        JSONMember("clean", .flag, "whether no damage is left"),
        JSONMember("records", .whole, "records that are intact"),
        JSONMember("blobs", .whole, "large values that are intact"),
        JSONMember("damage", .list(.text), "a text for each damaged place"),
        JSONMember("damaged_blobs", .list(.text), "the SHA-256 of each damaged large value"),
        JSONMember("missing_blobs", .list(.text), "the SHA-256 of each large value that is still to come"),
        JSONMember("absent_blobs", .whole, "large values that are elsewhere on purpose"),
        JSONMember("evicted_blobs", .whole, "those among them that left to keep the limits"),
        JSONMember("repaired", .whole, "places that were repaired"),
        JSONMember("mended", .list(.text), "a text for each repair that needed no peer"),
      ])
  ]
  static let bundle: [JSONLine] = {
    let part = [
      JSONMember("part", .text, "the file in the archive"), JSONMember("bytes", .bytes, "its size"),
      JSONMember("failure", .text, "why it could not be made", absent: "if it was"),
    ]
    return [
      JSONLine(
        "the archive",
        [
          JSONMember("file", .text, "FILE"), JSONMember("bytes", .bytes, "its size"),
          JSONMember("parts", .list(.object(part)), "the files in it"),
        ]),
      JSONLine("with --list, each part", part),
    ]
  }()
  static let compact = [
    JSONLine(
      "the result",
      [
        JSONMember("gained_bytes", .whole, "bytes given back; below zero if a new segment took more"),
        JSONMember("journal_bytes", .bytes, "bytes of the journal after it"),
      ])
  ]

  // MARK: - Large values

  static let policy = [
    JSONLine(
      "what is set",
      [
        JSONMember(
          "eager_bytes", .bytes, "large values up to this size come with their records; 0 for none",
          null: "if all do"),
        JSONMember("eager_prefixes", .list(.prefix), "keys whose large values come whatever their size"),
        JSONMember("max_bytes", .bytes, "the most bytes of large values to keep", null: "without this limit"),
        JSONMember("max_count", .whole, "the most large values to keep", null: "without this limit"),
        JSONMember("max_age_ms", .milliseconds, "how long they stay unused", null: "without this limit"),
        JSONMember("min_free_bytes", .bytes, "bytes of the file system to leave free"),
        JSONMember("copies", .whole, "other members that must confirm to hold what leaves"),
        JSONMember("trim_seconds", .whole, "seconds between two checks by the daemon; 0 for none"),
      ])
  ]
  private static let trimmed = [
    JSONMember("evicted", .whole, "large values that left"),
    JSONMember("evicted_bytes", .bytes, "their bytes on the disk"),
    JSONMember("too_few_holders", .whole, "those that stayed, since too few members confirm to hold them"),
    JSONMember("too_few_holders_bytes", .bytes, "their bytes on the disk"),
    JSONMember("kept", .whole, "those that stayed, since this copy alone needs them, or they are new"),
    JSONMember("kept_bytes", .bytes, "their bytes on the disk"),
    JSONMember("used", .whole, "those that stayed, since they were used meanwhile"),
    JSONMember("holds", .flag, "whether the limits hold"),
  ]
  static let trim: [JSONLine] = {
    let gained = JSONMember("gained_bytes", .bytes, "bytes given back")
    return [
      JSONLine("without limits", [gained]), JSONLine("with limits", trimmed + [gained]),
      JSONLine(
        "with --dry-run",
        [
          JSONMember("journal_bytes", .bytes, "bytes that the journal would give back, about"),
          JSONMember("due", .whole, "large values that would leave if members confirm to hold them"),
          JSONMember("due_bytes", .bytes, "their bytes on the disk"),
          JSONMember("dry_run", .flag, "true: nothing was changed"),
        ]),
    ]
  }()

  // MARK: - Backup and keys

  static let backup: [JSONLine] = {
    let position = JSONMember("position", .whole, "the last position of the journal in it")
    return [
      JSONLine(
        "the backup",
        [
          JSONMember("file", .text, "FILE"),
          JSONMember(
            "full", .flag, "whether all was written, not only what came since the last backup into it"),
          JSONMember("state", .whole, "the number of the state, for \"restore --state\""), position,
          JSONMember("records", .whole, "records written"),
          JSONMember("blobs", .whole, "large values written"),
          JSONMember("missing_blobs", .whole, "large values that are not here, and were left out"),
          JSONMember("written_bytes", .bytes, "bytes written"),
          JSONMember("file_bytes", .bytes, "the size of FILE"),
        ]),
      JSONLine(
        "with --list, each state",
        [
          JSONMember("state", .whole, "its number"), JSONMember("time", .time, "when it was written"),
          position,
          JSONMember("bytes", .bytes, "its part of FILE"),
          JSONMember("name", .text, "the name of the copy that wrote it"), store,
          JSONMember("encrypted", .flag, "whether it is encrypted"),
        ]),
    ]
  }()
  static let restore: [JSONLine] = {
    let head = [path, JSONMember("name", .text, "the name of the copy that was backed up"), store]
    let state = [
      JSONMember("time", .time, "when the backup was written"),
      JSONMember("position", .whole, "the last position of the journal in it"),
    ]
    return [
      JSONLine(
        "the restored store",
        head + state + [
          JSONMember("blobs", .whole, "large values in it"),
          JSONMember("missing_blobs", .whole, "large values to be fetched from a peer"),
        ]),
      JSONLine(
        "with --dry-run",
        head + [JSONMember("state", .whole, "the number of the state")] + state + [
          JSONMember("replaces", .flag, "whether a store is there that would be replaced"),
          JSONMember("dry_run", .flag, "true: nothing was changed"),
        ]),
      JSONLine(
        "with --prefix and --dry-run, each key that would change",
        key + [JSONMember("action", .text, "put or delete: what would be done to it")]),
      JSONLine(
        "with --prefix, at the end",
        [JSONMember("prefix", .prefix, "the beginning of the keys")] + state + [
          JSONMember("restored", .whole, "keys that were set again, or would be"),
          JSONMember("unchanged", .whole, "keys that are as they were in the backup"),
          JSONMember("deleted", .whole, "keys that were deleted, or would be", absent: "without --delete"),
          JSONMember("bytes", .bytes, "the size of the values"), failed.absent("with --dry-run"), isDryRun,
        ]),
    ]
  }()
  static let rekey = [
    JSONLine(
      "the result",
      [
        JSONMember("rewritten_segments", .whole, "segments of the journal that were written anew"),
        JSONMember("damaged_segments", .whole, "damaged segments that were kept as they are"),
        JSONMember("complete", .flag, "whether no step is left to do"),
      ])
  ]

  // MARK: - Status

  static let status: [JSONLine] = [
    JSONLine("the store", sizes + [prefixes, isRevoked, members, daemon, health]),
    JSONLine(
      "with --check",
      [
        JSONMember("ok", .flag, "whether nothing needs attention"),
        JSONMember(
          "problems",
          .list(
            .object([
              JSONMember("name", .text, "a word for scripts, such as damaged, clock, lag or peer"),
              JSONMember("text", .text, "the problem"),
            ])), "what needs attention"),
      ]),
  ]

  /// The journal and what is kept in it.
  static let journalFigures = [
    JSONMember("segments", .whole, "files of the journal"),
    JSONMember("journal_bytes", .bytes, "the size of those files"),
    JSONMember("position", .whole, "the last position of the journal"),
    JSONMember("conflicts", .whole, "values that were beaten and are kept"),
    JSONMember("parked", .whole, "keys with a write that waits for its time"),
    JSONMember("damaged_places", .whole, "places of the journal that cannot be read"),
  ]
  private static let sizes =
    [
      JSONMember("name", .text, "the name of this copy"), path, store,
      JSONMember("actor", .text, "this copy in version vectors"),
      JSONMember("keys", .whole, "keys that have a value"),
      JSONMember("bytes", .bytes, "the size of all values"),
      JSONMember("tombstones", .whole, "deletes that are kept for other copies"),
      JSONMember("blob_keys", .whole, "keys with a large value"),
      JSONMember("blob_bytes", .bytes, "those values, by key"),
    ] + journalFigures + [
      JSONMember("left_out_blobs", .whole, "large values that the policy left out"),
      JSONMember("left_out_bytes", .bytes, "their size"),
      JSONMember("evicted_blobs", .whole, "large values that left to keep the limits"),
      JSONMember("evicted_bytes", .bytes, "their size"),
      JSONMember("awaited_blobs", .whole, "large values that are still to come"),
      JSONMember("awaited_bytes", .bytes, "their size"),
      JSONMember(
        "last_trim", .object(trimmed + [JSONMember("time_ms", .time, "when it ended")]),
        "the last time that large values were to leave", null: "if there was none"),
    ]
  private static let prefixes = JSONMember(
    "prefixes", .list(.prefix), "what the keys of this copy begin with", absent: "if it holds all keys")
  private static let isRevoked = JSONMember("revoked", .flag, "whether this copy is no member any more")
  private static let members = JSONMember(
    "members",
    .list(
      .object([
        JSONMember("name", .text, "its name"), JSONMember("device", .text, "its public key"),
        JSONMember("right", .text, "read-write or read-only"),
        JSONMember("lacking", .whole, "keys that it is not known to have, at most 10,000"),
        JSONMember("lacking_is_bounded", .flag, "whether there are more than those"),
        JSONMember("met", .flag, "whether it was ever met by this copy"),
        JSONMember(
          "received_position", .whole,
          "the position of this copy's journal up to which it has acknowledged all",
          absent: notMet),
        JSONMember(
          "offset_ms", .milliseconds, "by how much its clock was ahead of this one", absent: notMet),
        JSONMember(
          "oldest_lacking_ms", .time, "when the oldest write that it lacks was made",
          absent: "if it lacks none"),
        JSONMember("met_ms", .time, "when it was last met", absent: notMet),
      ])), "the other members that are not revoked", null: "if the list cannot be read")
  private static let notMet = "if it was never met"

  /// A peer as the daemon reports it.
  static let daemonPeer = [
    JSONMember("name", .text, "the name of the peer"),
    JSONMember("phase", .text, "waiting, connecting, catching-up or live"),
    JSONMember("failures", .whole, "attempts that failed one after the other"),
    JSONMember("device", .text, "its public key", absent: "if it is not known yet"),
    JSONMember(
      "last_success_ms", .time, "when it was last in step, or its live session began",
      absent: "if it was not reached"),
    JSONMember("last_error", .text, "why the last attempt failed", absent: "if it did not"),
    JSONMember("next_try_ms", .time, "when the next attempt is due", absent: "unless it is waiting"),
  ]
  /// A relay as the daemon reports it.
  static let daemonRelay = [
    JSONMember("name", .text, "the name of the relay"), JSONMember("location", .text, "where it is"),
    JSONMember("failures", .whole, "attempts that failed one after the other"),
    JSONMember("waiting_entries", .whole, "entries that wait for something that is not there"),
    JSONMember("set_aside", .whole, "objects that cannot be used, at most 100"),
    JSONMember("last_error", .text, "why the last attempt failed", absent: "if it did not"),
    JSONMember(
      "last_success_ms", .time, "when it was last in step", absent: "while it is, and if it never was"),
    JSONMember(
      "published", .whole, "the position of this copy's journal up to which everything is there",
      absent: "if nothing was published"),
  ]
  private static let daemon: JSONMember = {
    let conflict = [
      JSONMember("device", .text, "the public key"), JSONMember("message", .text, "what was seen"),
    ]
    let starting = "while it starts"
    return JSONMember(
      "daemon",
      .object([
        JSONMember("process", .whole, "its process", absent: starting),
        JSONMember("address", .text, "where it listens", absent: starting),
        JSONMember("since_ms", .time, "when it began", absent: starting),
        JSONMember("peers", .list(.object(daemonPeer)), "the peers that it keeps in step", absent: starting),
        JSONMember(
          "relays", .list(.object(daemonRelay)), "the relays that it keeps in step", absent: starting),
        JSONMember(
          "connected", .list(.text), "members with a live session, whichever side dialled", absent: starting),
        JSONMember(
          "identity_conflicts", .list(.object(conflict)), "devices that two copies seem to use at once",
          absent: starting),
      ]), "the daemon that serves the store", null: "if none does")
  }()

  private static let health = JSONMember(
    "health",
    .object([
      JSONMember("state", .text, "settled, needs-full-state or unconfirmed-writes"),
      JSONMember("writes", .text, "allowed, refused-read-only or refused-revoked"),
      JSONMember("stranded_keys", .whole, "keys written here that no member accepts, at most 10,000"),
      JSONMember(
        "clock_lead_ms", .milliseconds, "by how much the stamps of this copy are ahead of its clock"),
      JSONMember("clock_is_ahead", .flag, "whether that is too much for other members"),
      JSONMember(
        "waiting_writes", .whole, "writes of other members that wait for their time, at most 10,000"),
      JSONMember(
        "waiting_until_ms", .time, "when the last of them counts at the latest", absent: "if none waits"),
    ]), "what keeps this copy, or its writes, from being in step")
}
