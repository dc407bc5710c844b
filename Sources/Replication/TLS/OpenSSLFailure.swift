private import COpenSSL

/// OpenSSL's error queue of the current thread.
///
/// This is one of the few files that use `unsafe`: the texts are C strings.
enum OpenSSLFailure {
  /// Clears the errors of earlier calls.
  static func clear() { ERR_clear_error() }

  /// Takes the errors since `clear()`: the number of the first reason, and its text.
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
