extension Store {
  /// The fault of this machine's clock, as a sentence for users; nil if nothing is evident.
  ///
  /// The store works all the same: its stamps only rise. But deadlines are compared with this clock, and
  /// peers refuse a clock that is far off (F48).
  public var clockWarning: String? {
    let now = environment.now()
    guard now < Limits.earliestClockMilliseconds else { return nil }
    return
      "the clock stands \(now / 86_400_000) days after the beginning of 1970, before this program was made: set it, or "
      + "peers will refuse this copy"
  }
}
