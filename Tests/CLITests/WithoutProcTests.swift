import SyncTestSupport
import Testing

/// A machine, a container or a chroot without /proc.
@Suite("Without /proc")
struct WithoutProcTests {
  /// Command prefix that runs a program in a mount namespace where /proc is empty.
  private static let launcher = [
    "/usr/bin/unshare", "-m", "/bin/sh", "-c",
    "mount --make-rprivate / && mount -t tmpfs none /proc && exec \"$0\" \"$@\"",
  ]

  @Test("the commands get their arguments, and work", .timeLimit(.minutes(Patience.minutes(1))))
  func commands() throws {
    guard try ChildProcess.run(Self.launcher + ["/bin/true"]).code == 0 else {
      print("not tested: this machine gives nobody a mount namespace")
      return
    }
    let scratch = try Scratch()
    let tool = Tool(store: scratch.path + "/store", scratch: scratch, launcher: Self.launcher)
    try tool.succeed("init")
    try tool.succeed("put", "key with blanks", "value")
    try tool.succeed("put", "k", "v")
    #expect(try tool.succeed("get", "key with blanks").text.hasPrefix("value"))
    #expect(try tool.succeed("list").lines.count == 2)
    try tool.succeed("verify")
    let refused = try tool.run()
    #expect(refused.code == 2 && refused.err.contains("no command"))
  }
}
