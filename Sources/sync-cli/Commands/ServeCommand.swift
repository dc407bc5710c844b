import Replication
import SyncStore

/// `serve`: the daemon.
enum ServeCommand {
  static let command = Command(
    "serve", "let members push, pull and sync: the daemon", operands: [Operand("CONFIG", .optional)],
    options: [
      Option(
        "listen", value: "HOST:PORT", "where to listen (default: every address, port 7420; port 0: any)"),
      Option(
        "http", value: "ADDRESS",
        "serve health, metrics and a status page over HTTP at HOST:PORT or unix:PATH"),
      Option("config", value: "F", "read settings from a file of JSON, in which comments are allowed"),
      Option("check", "check the configuration, that of --config or CONFIG, and the store, and end"),
    ],
    notes: """
      Prints "listening on HOST:PORT" once it accepts. SIGTERM and SIGINT end it within 5 s with everything durable,
      SIGHUP makes it read its configuration again, and try all peers at once. A store has one daemon: a second one ends with 6 and
      names the first. Logs to standard error with journald's priorities; tells systemd when
      it is ready and alive. Other commands work on the same store meanwhile. Peers and members that have an address are
      kept in step: what is written on one side can be read on the other a moment later.
      --check names every mistake of the configuration as FILE:LINE:COLUMN, with what to do, and ends with 2 if there is one.
      """
  ) { invocation, output in
    if invocation.has("check") { return try ServeCheck.run(invocation, output) }
    if let operand = invocation.operands.first {
      throw invocation.usage(
        operand.shown, reason: "a configuration is named by itself only with --check",
        advice: "write --config before it")
    }
    let loaded = try LoadedConfiguration(invocation)
    if let failure = ConfigurationMistake.failure(loaded.mistakes) { throw failure }
    let configuration = loaded.configuration
    let invocation = try loaded.withPassphraseFile(invocation)
    // Before the signals are blocked, so that the passphrase prompt can be interrupted.
    let opening = try invocation.opening(toWrite: true)
    // Before any thread starts: threads inherit the mask.
    System.blockSignals()
    let log = DaemonLog(configuration)
    log.subscribeToStores()
    defer { StoreLog.redirect(to: nil) }
    return try invocation.withStore(opening) { store in
      try serve(store, configuration: configuration, log: log, invocation: invocation, output: output)
    }
  }.printing(JSONReference.serve)

  private static func serve(
    _ store: Store, configuration: ServeConfiguration, log: DaemonLog, invocation: Invocation,
    output: Output
  ) throws -> ExitCode {
    System.raiseDescriptorLimit()
    let manager = ServiceManager()
    let lock = try DaemonLock(store)
    defer { lock.end() }
    // Only a warning: the peer may be added later.
    for peer in try configuration.unknownPeers(in: store) {
      log.write(.warning, "serve: \(peer.what): \(peer.advice)")
    }
    try configuration.blobs?.keep(in: store)
    var serving = Node.Configuration(pingSeconds: configuration.pingSeconds) { log.write($0, $1) }
    serving.opensRelay = RelayStores.open
    let node = try Node(store: store, configuration: serving)
    let address = try blocking { [listen = configuration.listen] in try await node.start(listen: listen) }
    try lock.publish(address: "\(address)")
    var report = DaemonReport(store: store, node: node, log: log)
    defer { report.end() }
    let pages = try DaemonPages(store: store, node: node, log: log, configuration: configuration)
    defer { pages.stop() }
    // The process that started the daemon may be gone: that must not end the daemon.
    try? announce(address, invocation: invocation, output: output)
    log.write(.notice, "listening on \(address), store \(store.name) in \(store.path)")
    if let warning = store.clockWarning { log.write(.warning, warning) }
    report.update()
    node.keepInStep(configuration.keeping)
    manager.notify("READY=1\nSTATUS=listening on \(address)")
    var current = configuration
    while true {
      switch System.nextSignal(within: min(manager.watchdogSeconds ?? .infinity, 3)) {
      case .none: break
      case .reload:
        reload(&current, store: store, node: node, invocation: invocation, manager: manager, log: log)
        pages.configure(current)
      case .end:
        manager.notify("STOPPING=1\nSTATUS=ending: letting sessions come to their end")
        log.write(.notice, "ending: letting sessions come to their end")
        try blocking { await node.stop() }
        log.write(.notice, "ended")
        return .done
      }
      // After a reload too: signals that arrive more often than the interval must not starve the watchdog.
      pages.tick()
      do { try tick(&report, store: store, manager: manager, log: log) } catch {
        // Only reopening the store can help: the service manager restarts the daemon.
        log.write(.error, "ending: \(error)")
        manager.notify("STOPPING=1\nSTATUS=ending: \(error)")
        try blocking { await node.stop() }
        throw error
      }
    }
  }

  /// Done every few seconds. Throws if only reopening the store can help.
  private static func tick(
    _ report: inout DaemonReport, store: Store, manager: ServiceManager, log: DaemonLog
  ) throws(StoreError) {
    // The log may have a reader again.
    Diagnostics.flush()
    report.update()
    try store.checkSyncs()
    try notifyWatchdog(store: store, manager: manager, log: log)
  }

  private static func announce(_ address: Endpoint, invocation: Invocation, output: Output) throws {
    if invocation.wantsJSON {
      try output.line(["listening": .string("\(address)")])
    } else {
      try output.line("listening on \(address)")
    }
    try output.flush()
  }

  /// Feeds the watchdog only while the store can be read: otherwise the service manager restarts the daemon.
  /// Throws if the store has since been encrypted, or if this process lacks its keys, since it can then never
  /// be read again.
  private static func notifyWatchdog(
    store: Store, manager: ServiceManager, log: DaemonLog
  ) throws(StoreError) {
    do throws(StoreError) {
      _ = try store.versionVector()
      manager.feedWatchdog()
    } catch {
      guard error.code != .keyRequired, error.code != .wrongKey else { throw error }
      log.write(.error, "the store cannot be read: \(error)")
    }
  }

  private static func reload(
    _ current: inout ServeConfiguration, store: Store, node: Node, invocation: Invocation,
    manager: ServiceManager,
    log: DaemonLog
  ) {
    manager.notify("RELOADING=1\nMONOTONIC_USEC=\(Int(System.monotonicSeconds * 1e6))")
    do {
      // Waiting for a pipe's writer would block signals.
      let loaded = try LoadedConfiguration(invocation, waiting: false)
      let configuration = loaded.configuration
      // Checks that can fail come first, so that a faulty configuration is not applied in part.
      let mistakes = try loaded.mistakes + loaded.unknownPeers(in: store)
      for mistake in mistakes.dropLast() { log.write(.error, "serve: \(mistake.text)") }
      if let last = mistakes.last { throw Failure(.usage, "serve: \(last.text)") }
      if configuration.blobs != current.blobs { try configuration.blobs?.keep(in: store) }
      log.configure(configuration)
      if configuration.listen != current.listen {
        log.write(.warning, "still listening on \(current.listen): another address needs a restart")
      }
      if configuration.http != current.http {
        log.write(.warning, "the address for HTTP stays as it was: another one needs a restart")
      }
      if configuration.pingSeconds != current.pingSeconds {
        log.write(
          .warning, "still sending pings after \(current.pingSeconds) s: another interval needs a restart")
      }
      if configuration.passphraseFile != current.passphraseFile {
        log.write(.warning, "still open with the passphrase of the start: another file needs a restart")
      }
      if configuration.keeping != current.keeping { node.keepInStep(configuration.keeping) }
      // The signal suggests that the cause of earlier failures has changed.
      node.retryNow()
      current = configuration.keepingWhatNeedsRestart(of: current)
      log.write(.notice, "configuration read again")
    } catch {
      log.write(.error, "configuration kept as it was: \(Failure(error).message)")
    }
    manager.notify("READY=1")
  }
}
