private import COpenSSL

/// The queue in which OpenSSL leaves, for each thread, what went wrong.
///
/// This is one of the few files that use `unsafe`: the texts are C strings.
enum OpenSSLFailure {
  /// Forgets what earlier calls left.
  static func clear() { ERR_clear_error() }

  /// Takes what the calls since `clear()` left: the number of the first reason, and its text.
  static func take() -> (reason: Int32, text: String) {
    let code = ERR_get_error()
    ERR_clear_error()
    guard code != 0 else { return (0, "no reason given") }
    let text = unsafe ERR_reason_error_string(code).map { unsafe String(cString: $0) }
    return (ERR_GET_REASON(code), text ?? "error \(code)")
  }

  /// The typed error for the call that just failed.
  static func error(_ what: String, advice: String) -> ReplicationError {
    ReplicationError(.cryptography, "\(what): \(take().text): \(advice)")
  }
}
