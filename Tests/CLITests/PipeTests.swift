import Foundation
import Testing

/// Pipes in place of files: a script passes them as `<(…)`, a terminal as `/dev/stdin`.
@Suite struct PipeTests {
  @Test(
    "a named pipe is read once a writer opens it",
    arguments: [
      "mkfifo p; (sleep 0.2; timeout -s KILL 5 sh -c 'printf said > p') & $CLI put k --file p",
      "(sleep 0.2; printf said) | $CLI put k --file /dev/stdin",
      "$CLI load <(sleep 0.2; echo '{\"key\":\"k\",\"value\":\"said\"}')",
    ])
  func reading(command: String) throws {
    let scratch = try Scratch()
    let tool = try scratch.store()
    let result = try scratch.shell("export SYNC_STORE=store; \(command)")
    #expect(result.code == 0, "\(result.out)")
    #expect(try tool.succeed("get", "k").text == "said")
  }

  @Test("passphrases and configurations can be read from pipes")
  func settings() throws {
    let scratch = try Scratch()
    let result = try scratch.shell(
      """
      export SYNC_STORE=store
      $CLI init --encrypt --passphrase-file <(sleep 0.2; echo correct horse) || exit 9
      $CLI serve --check --config <(sleep 0.2; echo '{"listen":"127.0.0.1:7"}') --passphrase-file <(echo correct horse)
      """)
    #expect(result.code == 0, "\(result.out)")
    #expect(result.out.contains("would listen on 127.0.0.1:7"))
  }

  @Test("a pipe without a writer does not block a command that expects a directory, or a running daemon")
  func noWriter() throws {
    let scratch = try Scratch()
    let tool = try scratch.store()
    #expect(try scratch.shell("mkfifo pipe").code == 0)
    let pipe = scratch.path + "/pipe"
    #expect(try tool.run("import", pipe).code == 2)
    #expect(try tool.run("export", pipe).code == 2)
    let daemon = try tool.start(["serve", "--listen", "127.0.0.1:0", "--config", pipe])
    #expect(try scratch.shell("echo '{}' > pipe").code == 0)
    _ = daemon.firstLine()
    daemon.signal(SIGHUP)
    while daemon.isRunning, !daemon.err.contains("configuration ") {
      Thread.sleep(forTimeInterval: 0.01)
    }
    daemon.signal(SIGTERM)
    #expect(daemon.finish().code == 0)
  }
}
