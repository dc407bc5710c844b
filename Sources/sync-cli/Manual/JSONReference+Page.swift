/// The members of `/status.json`, which the status page shows.
extension JSONReference {
  static let statusPage = [
    JSONLine(
      "the document",
      [
        JSONMember("time_ms", .time, "when it was made"),
        JSONMember("version", .text, "the program's version"),
        JSONMember("ok", .flag, "whether all checks pass"),
        JSONMember("verdict", .text, "the state of the copy in a sentence or two"),
        JSONMember(
          "checks",
          .list(
            .object([
              JSONMember("name", .text, "its name"), JSONMember("ok", .flag, "whether it passes"),
              JSONMember("problem", .text, "what failed, and what helps", absent: "if it passes"),
            ])), "the checks of /healthz"),
        JSONMember("store", .object(pageStore), "this copy"),
        JSONMember("members", .list(.object(pageMember)), "the other members"),
        JSONMember("peers", .list(.object(daemonPeer)), "how this copy reaches its peers"),
        JSONMember("relays", .list(.object(pageRelay)), "the relays that it keeps in step"),
        JSONMember(
          "sessions",
          .object([
            JSONMember("dialled", .table(.whole, name: "result"), "sessions and attempts of this copy"),
            JSONMember("accepted", .table(.whole, name: "result"), "sessions that others began"),
          ]), "the sessions that ended since the daemon began"),
        JSONMember(
          "history", .list(.object(pageSample)),
          "counters of the last hour, every 30 s, at the beginning every 3 s"),
        JSONMember(
          "log",
          .list(
            .object([
              JSONMember("time_ms", .time, "when it was written"),
              JSONMember("level", .text, "error, warning, notice, info or debug"),
              JSONMember("message", .text, "the line"),
            ])), "the last 100 lines of the log",
          absent: "unless the reader may see keys: http_details"),
        JSONMember("configuration", .value, "the settings in force"),
      ])
  ]

  private static let pageRelay = [
    JSONMember("name", .text, "its name here"), JSONMember("location", .text, "where it is"),
    JSONMember("busy", .flag, "whether objects are being read or written"),
    JSONMember("failures", .whole, "attempts that failed one after the other"),
    JSONMember("waiting_entries", .whole, "entries that wait for something that is not there"),
    JSONMember("set_aside", .whole, "objects that cannot be used, at most 100"),
    JSONMember("sent_records", .whole, "records published since the daemon began"),
    JSONMember("received_records", .whole, "records read since then"),
    JSONMember("requests", .whole, "requests since then, repeated ones included"),
    JSONMember("sent_bytes", .bytes, "bytes of objects written since then"),
    JSONMember("received_bytes", .bytes, "bytes of objects read since then"),
    JSONMember("collected_objects", .whole, "objects deleted since then that no member needed"),
    JSONMember("failed_collections", .whole, "attempts at that which failed one after the other"),
    JSONMember("last_error", .text, "why the last attempt failed", absent: "if it did not"),
    JSONMember(
      "last_success_ms", .time, "when it was last read to its end", absent: "if it was not since the start"),
    JSONMember(
      "last_news_ms", .time, "when another member last wrote there, by its own clock",
      absent: "if none has, as far as was read"),
    JSONMember("next_try_ms", .time, "when it is looked at next at the latest", absent: "at the start"),
    JSONMember(
      "published", .whole, "the position of this copy's journal up to which everything is there",
      absent: "if nothing was published"),
    JSONMember(
      "last_collection_ms", .time, "when this copy last deleted there what no member needs",
      absent: "if it never did"),
    JSONMember(
      "stored_bytes", .bytes, "bytes of all objects there, when the daemon last did so",
      absent: "if it has not since it began"),
    relayUsage, relayCost,
  ]

  private static let pageStore =
    [
      JSONMember("name", .text, "its name"), JSONMember("store", .text, "the data set that all copies share"),
      JSONMember("since_ms", .time, "when the daemon began"),
      JSONMember("index_entries", .whole, "keys, tombstones and the store's own keys"),
    ] + journalFigures + [
      JSONMember("free_bytes", .bytes, "what the disk has free"),
      JSONMember("read_only", .flag, "whether this copy may not write"),
      JSONMember("puts", .whole, "values written through the daemon"),
      JSONMember("deletes", .whole, "deletes written through it"),
      JSONMember("compactions", .whole, "compactions that it made"),
      JSONMember("syncs", .whole, "syncs of the journal that it made"),
      JSONMember("sync_seconds", .seconds, "the time of those syncs"),
      JSONMember("repaired_keys", .whole, "keys that differed under the same writes and were repaired"),
      JSONMember("actor", .text, "this copy in version vectors", absent: "if the journal lost it"),
      JSONMember("listening", .text, "where members reach the daemon", absent: "if it does not listen"),
      JSONMember("resident_bytes", .bytes, "the daemon's memory", absent: "without a /proc"),
      JSONMember(
        "counted",
        .object([
          JSONMember("time_ms", .time, "when they were counted"),
          JSONMember("keys", .whole, "keys that have a value"),
          JSONMember("tombstones", .whole, "deletes that are kept for other copies"),
          JSONMember("value_bytes", .bytes, "the size of all values"),
          JSONMember("blob_keys", .whole, "keys with a large value"),
          JSONMember("blob_bytes", .bytes, "those values, by key"),
          JSONMember("awaited_blobs", .whole, "large values that are still to come"),
          JSONMember("left_out_blobs", .whole, "large values that the policy left out"),
          JSONMember("evicted_blobs", .whole, "large values that left to keep the limits"),
        ]), "what needs a pass over all keys", absent: "before the first pass has ended"),
    ]

  private static let pageMember = [
    JSONMember("name", .text, "its name"), JSONMember("device", .text, "its public key"),
    JSONMember("right", .text, "read-write or read-only"),
    JSONMember("connected", .flag, "whether a session with it runs"),
    JSONMember(
      "in_step", .flag, "whether it has everything that is here",
      absent: "if this copy never meets it, but others"),
    JSONMember("lacking", .whole, "keys that it is not known to have, at most 10,000"),
    JSONMember("lacking_is_bounded", .flag, "whether there are more than those"),
    JSONMember("lacking_bytes", .bytes, "their records"),
    JSONMember("sent_records", .whole, "records sent to it since the daemon began"),
    JSONMember("received_records", .whole, "records received from it"),
    JSONMember("sent_bytes", .bytes, "what was sent to it"),
    JSONMember("received_bytes", .bytes, "what was received from it"),
    JSONMember(
      "first_lacking", .list(.text), "the first of those keys",
      absent: "if it lacks none, or unless the reader may see keys: http_details"),
    JSONMember(
      "oldest_lacking_ms", .time, "when the oldest write that it lacks was made", absent: "if it lacks none"),
    JSONMember("last_seen_ms", .time, "when it was last connected", absent: "if it was not met yet"),
    JSONMember(
      "last_success_ms", .time, "when it was last in step", absent: "if it was not since the daemon began"),
    JSONMember(
      "clock_offset_ms", .milliseconds, "by how much its clock was ahead of this one",
      absent: "if it was not met yet"),
    JSONMember("last_error", .text, "why the last attempt failed", absent: "if it did not"),
    JSONMember("next_try_ms", .time, "when the next attempt is due", absent: "if none is"),
  ]

  private static let pageSample = [
    JSONMember("time_ms", .time, "when it was taken"),
    JSONMember("sent_bytes", .bytes, "sent until then"),
    JSONMember("received_bytes", .bytes, "received until then"),
    JSONMember("sent_records", .whole, "records sent until then"),
    JSONMember("received_records", .whole, "records received until then"),
    JSONMember("syncs", .whole, "syncs of the journal until then"),
    JSONMember("sync_seconds", .seconds, "the time of those syncs"),
  ]
}
