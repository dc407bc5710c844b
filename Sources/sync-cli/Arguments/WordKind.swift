import SyncStore

/// The meaning of a word on the command line, as completion needs it.
enum WordKind: Equatable {
  /// Names that are in the store: printed by the hidden command `complete`.
  case stored(Names)
  case files, directories
  /// One of these words.
  case words([String])
  /// Anything: nothing is offered.
  case other

  /// Names that are in a store.
  enum Names: String, CaseIterable {
    /// Keys, up to the next separator.
    case keys
    /// Peers and members.
    case peers
    /// Open invitations.
    case invitations
  }

  /// The kind of an option's value.
  init(_ option: Option) {
    guard option.words.isEmpty else {
      self = .words(option.words)
      return
    }
    self.init(placeName: option.value ?? "")
  }

  /// The kind of an operand.
  init(_ operand: Operand) {
    switch operand.name {
    // As an option's value, a name is a new one.
    case "NAME": self = .stored(.peers)
    case "ID": self = .stored(.invitations)
    case "TAKE": self = .words(["eager", "lazy"])
    default: self.init(placeName: operand.name)
    }
  }

  private init(placeName: String) {
    switch placeName {
    case "KEY", "PREFIX", "P", "OLD": self = .stored(.keys)
    case "PEER": self = .stored(.peers)
    case "F", "FILE", "CONFIG": self = .files
    case "DIR": self = .directories
    case _ where placeName.contains("|"): self = .words(placeName.split(separator: "|").map(String.init))
    default: self = .other
    }
  }

  /// The form in the scripts.
  var scriptWord: String {
    switch self {
    case .stored(let names): names.rawValue
    case .files: "files"
    case .directories: "directories"
    case .words(let words): "words:" + words.joined(separator: ",")
    case .other: "other"
    }
  }
}
