import Foundation
import SyncStore
import SyncTestSupport
import Testing

@testable import sync_cli

/// What is installed besides the program: `packaging/`. The packages are tested by `make deb-test`.
@Suite struct PackagingTests {
  private static func read(_ path: String) throws -> String {
    try String(contentsOfFile: Checkout.top + "/packaging/" + path, encoding: .utf8)
  }

  private static func unit(_ name: String = "sync-store") throws -> String {
    try read("systemd/\(name).service")
  }

  @Test("the unit of further stores is the unit of the store main, with another name in it")
  func units() throws {
    func body(_ text: String) -> Substring { text.drop { $0 != "\n" } }
    let main = try Self.unit().replacing("main", with: "%i")
    #expect(try body(main) == body(Self.unit("sync-store@")))
  }

  @Test(
    "the units run a command line that the program takes, and restart except after the codes of sync-store(8)"
  )
  func commandLine() throws {
    let unit = try Self.unit()
    let line = try #require(unit.firstMatch(of: /\nExecStart=\/usr\/bin\/sync-cli (.*)/)).1
    let words = line.split(separator: " ").map { Argument(String($0)) }
    let parser = ArgumentParser(commands: Program.commands, globals: Help.globals, hidden: [], alone: [:])
    guard case .run(let invocation) = try parser.parse(words) else { throw ServeCase.isNoCommand }
    #expect(invocation.command.name == "serve")
    let codes = try #require(unit.firstMatch(of: /\nRestartPreventExitStatus=(.*)/)).1
    #expect(ServicePage.manual.text.contains("RestartPreventExitStatus=\(codes)"))
  }

  private enum ServeCase: Error { case isNoCommand }

  @Test("sync-store(8) names the files that the units name")
  func files() throws {
    let unit = try Self.unit()
    let named = ServicePage.blocks.compactMap { block in
      if case .entry(let term, _) = block, term.contains("main") { term } else { nil }
    }
    #expect(named.count == 3)
    for path in named { #expect(unit.contains(path), "\(path)") }
  }

  @Test("the configuration that is installed is the default one")
  func configuration() throws {
    let file = ConfigurationFile(Array(try Self.read("main.json").utf8), named: "main.json")
    #expect(file.mistakes.isEmpty && file.configuration == ServeConfiguration())
  }

  @Test(
    "an installation has the program, its pages, its completions and its units",
    arguments: [
      ("/usr/local", [], "/usr/local/lib/systemd/system", "/usr/local/share/zsh/site-functions"),
      ("/usr", ["debian"], "/lib/systemd/system", "/usr/share/zsh/vendor-completions"),
    ] as [(String, [String], String, String)])
  func installation(prefix: String, flavour: [String], units: String, zsh: String) throws {
    let scratch = try Scratch()
    let root = scratch.path + "/root"
    let installed = try ChildProcess.run(
      [Checkout.top + "/packaging/install.sh", Tool.path, root, prefix] + flavour)
    #expect(installed.code == 0, "\(installed.text)")
    let share = prefix + "/share"
    let configuration = flavour.isEmpty ? share + "/doc/sync-store/examples" : "/etc/sync-store"
    for path in [
      prefix + "/bin/sync-cli", share + "/man/man1/sync-cli-put.1", share + "/man/man5/sync-cli.conf.5",
      share + "/man/man8/sync-store.8", share + "/bash-completion/completions/sync-cli", zsh + "/_sync-cli",
      share + "/fish/vendor_completions.d/sync-cli.fish", units + "/sync-store.service",
      units + "/sync-store@.service", prefix + "/lib/sysusers.d/sync-store.conf",
      prefix + "/lib/tmpfiles.d/sync-store.conf", configuration + "/main.json",
      share + "/doc/sync-store/examples/syncstore.rules.yml",
      share + "/doc/sync-store/examples/grafana-dashboard.json",
    ] {
      let size = try? FileManager.default.attributesOfItem(atPath: root + path)[.size] as? Int
      #expect((size ?? 0) > 0, "\(path)")
    }
    for name in ["sync-store", "sync-store@"] {
      let unit = try String(contentsOfFile: "\(root)\(units)/\(name).service", encoding: .utf8)
      #expect(unit.contains("\nExecStart=\(prefix)/bin/sync-cli --store "), "\(unit)")
    }
  }
}
