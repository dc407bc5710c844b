extension Store {
  /// What is wrong with this machine's clock, in a sentence for people; nil if nothing shows by itself. A store works all
  /// the same: its stamps only rise. But deadlines are judged by this clock, and peers refuse one that is far off (F48).
  public var clockWarning: String? {
    let now = environment.now()
    guard now < Limits.earliestClockMilliseconds else { return nil }
    return
      "the clock stands \(now / 86_400_000) days after the beginning of 1970, before this program was made: set it, or "
      + "peers will refuse this copy"
  }
}
