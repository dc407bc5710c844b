/// The request to stop the command that runs in a shell. The shell itself continues.
///
/// Outside of a shell there is none: a signal ends the process. In a shell the code that reads, writes and
/// waits for commands checks it. A command that handles the request itself gets it from
/// `StopRequest.following`.
enum Interruption {
  /// The request, made or not, of the command that runs on this thread; nil outside of a shell.
  @TaskLocal static var request: StopRequest?

  /// Whether the command is to stop.
  static var isRequested: Bool { request?.isMade ?? false }

  /// Throws if the command is to stop.
  static func check() throws(Failure) {
    if isRequested { throw .interrupted }
  }

  /// Runs `body` with that request, or with none.
  static func with<Result>(_ request: StopRequest?, _ body: () throws -> Result) rethrows -> Result {
    try $request.withValue(request, operation: body)
  }
}
