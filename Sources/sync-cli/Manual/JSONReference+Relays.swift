/// What the commands about relays print.
extension JSONReference {
  private static let objects = [
    JSONMember("objects", .whole, "their number"), JSONMember("bytes", .bytes, "their size"),
  ]

  static let relayUsage = JSONMember(
    "usage",
    .object([
      JSONMember("since_ms", .time, "since when they are counted"),
      JSONMember("writes", .whole, "writes and listings"), JSONMember("reads", .whole, "reads"),
      JSONMember("deletions", .whole, "deletions"), JSONMember("sent_bytes", .bytes, "bytes written"),
      JSONMember("received_bytes", .bytes, "bytes read"),
    ]), "requests of this copy so far", absent: "if none was counted")
  static let relayCost = JSONMember(
    "cost",
    .object([
      JSONMember("currency", .text, "the word after an amount"),
      JSONMember("requests", .amount, "what the requests and the bytes read have cost"),
      JSONMember(
        "month", .amount, "what the objects there cost in a month", absent: "if their size is not known yet"),
    ]), "money, by the prices that the relay was added with", absent: "without prices")

  static let relayCheck = [
    JSONLine(
      "each right",
      [
        JSONMember("right", .text, "what was tried"),
        JSONMember("result", .text, "ok, missing, or without: the relay works without it"),
        JSONMember("message", .text, "what was seen, and what to do"),
      ])
  ]
  static let relayStatus = [
    JSONLine(
      "the relay",
      [
        JSONMember("name", .text, "its name"), JSONMember("location", .text, "where it is"),
        JSONMember("relay", .text, "its identity", absent: "if it is empty"),
        JSONMember("total", .object(objects), "all objects"),
        JSONMember("entries", .object(objects), "runs of entries, and the parts of large ones"),
        JSONMember("checkpoints", .object(objects), "full states"),
        JSONMember("blobs", .object(objects), "large values, and groups of chunks of them"),
        JSONMember("foreign", .object(objects), "objects that are none of this program's"),
        JSONMember("unpublished", .flag, "whether this copy has something that it has not published"),
        JSONMember(
          "members",
          .list(
            .object([
              JSONMember("name", .text, "its name; its device, if this copy does not know it"),
              JSONMember("device", .text, "its public key"),
              JSONMember("self", .flag, "whether it is this copy"),
              JSONMember("published", .whole, "entries that it has published"),
              JSONMember("unread", .whole, "entries of it that this copy has yet to read"),
              JSONMember("seen", .whole, "entries of this copy that it says to have read"),
              JSONMember("has_all", .flag, "whether it has read all of this copy's"),
              JSONMember("wanted_blobs", .whole, "large values that it asks for"),
              JSONMember(
                "news_ms", .time, "when it last wrote there, by its own clock", absent: "if it never did"),
            ])), "the members, by name"),
        JSONMember("requests", .whole, "requests that this look took"), relayUsage, relayCost,
        JSONMember(
          "clock_offset_ms", .milliseconds, "how far its clock is ahead of this machine's",
          absent: "if it does not state the time"),
      ])
  ]
  static let relayCollection = [
    JSONLine(
      "the relay",
      [
        JSONMember("relay", .text, "its name"),
        JSONMember("deleted_objects", .whole, "objects deleted; in a dry run, that would be"),
        JSONMember("deleted_bytes", .bytes, "their size"),
        JSONMember("doomed_objects", .whole, "objects that can go a day after they were first named"),
        isDryRun,
      ])
  ]
}
