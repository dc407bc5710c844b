/// The JSON lines of commands on members and peers.
extension JSONReference {
  // MARK: - Sessions

  static let session = [
    JSONLine("each session, and each use of a relay", use), JSONLine("with --dry-run, each peer", comparison),
    JSONLine("with --dry-run and --verbose, each key", difference),
  ]
  static let diff = [JSONLine("each key that differs", difference), JSONLine("with --summary", comparison)]
  static let serve = [
    JSONLine("once it accepts", [JSONMember("listening", .text, "where it listens")]),
    JSONLine(
      "with --check",
      [
        JSONMember("listen", .text, "where it would listen"),
        JSONMember("log", .text, "the format of its log: journal or json"),
      ]),
    JSONLine(
      "with --check, each mistake of the configuration",
      [
        JSONMember("file", .text, "the file"), JSONMember("line", .whole, "the line in it, from 1"),
        JSONMember("column", .whole, "the character in that line, from 1"),
        JSONMember("what", .text, "what is wrong"), JSONMember("advice", .text, "what to do"),
        JSONMember("setting", .text, "the setting", absent: "if the text is no JSON there"),
      ]),
  ]

  // MARK: - Members

  static let invite = [JSONLine("the token", [JSONMember("token", .text, "the token, which is a secret")])]
  static let invitations = [
    JSONLine(
      "each invitation",
      [
        JSONMember("id", .text, "its name for \"invite revoke\""), right,
        JSONMember("expires", .text, "when it ends (RFC 3339)"),
        JSONMember("open", .flag, "whether no device redeemed it"),
        JSONMember(
          "redeemed_by", .text, "the member, or the device, that redeemed it", absent: "if it is open"),
        JSONMember("relay", .text, "the relay that it goes through", absent: "if it goes through none"),
      ])
  ]
  static let revokeInvitation = [
    JSONLine("the invitation", [JSONMember("withdrawn", .text, "its ID")])
  ]
  static let join = [
    JSONLine(
      "the new copy",
      [
        path, store, JSONMember("name", .text, "the name of this copy among the members"),
        JSONMember("inviter", .text, "the member that accepted it, a peer from now on"), right,
        JSONMember(
          "relay", .text, "the relay that it joined through, named so here", absent: "if it went through none"
        ),
        JSONMember("pull", .object(report), "the first session", absent: "with --no-pull, and if it broke"),
      ])
  ]
  static let peers = [
    JSONLine(
      "each member and peer",
      [
        JSONMember("name", .text, "its name"),
        JSONMember("addresses", .list(.text), "where it can be reached"),
        JSONMember(
          "right", .text,
          "read-write, read-only or revoked; \"address only\" for a peer that is no member; \"relay\" for a relay"
        ),
        JSONMember("self", .flag, "whether it is this copy"),
        JSONMember("device", .text, "its public key", absent: "if it is not known yet"),
      ])
  ]
  static let setRight = [
    JSONLine(
      "the member",
      [
        JSONMember("name", .text, "its name"), right,
        JSONMember("changed", .flag, "whether it had another right before"),
      ])
  ]
  static let rename = [
    JSONLine(
      "the member or peer",
      [
        JSONMember("name", .text, "its name from now on"), JSONMember("before", .text, "its former name"),
        JSONMember("changed", .flag, "whether it was called otherwise before"),
      ])
  ]
  static let revoke = [
    JSONLine(
      "the member",
      [
        JSONMember("revoked", .text, "its name"),
        JSONMember("epoch", .whole, "the number of the group key that begins"),
      ])
  ]
  static let clock: [JSONLine] = {
    let notMet = "if it was never met"
    return [
      JSONLine(
        "each other member",
        [
          JSONMember("name", .text, "its name"), JSONMember("device", .text, "its public key"),
          JSONMember(
            "offset_ms", .milliseconds, "by how much its clock was ahead of this one", absent: notMet),
          JSONMember("found", .time, "when that was found", absent: notMet),
        ]),
      JSONLine(
        "with --restamp",
        [
          JSONMember("restamped_writes", .whole, "writes that were given the present time"),
          JSONMember("ahead_ms", .milliseconds, "the most by which they were ahead"),
        ]),
    ]
  }()

  private static let right = JSONMember("right", .text, "read-write or read-only")
}
