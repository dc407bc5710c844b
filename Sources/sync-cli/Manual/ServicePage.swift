/// `sync-store(8)`: how `sync-cli serve` is run as a service.
enum ServicePage {
  static let name = "sync-store"
  static let summary = "the daemon of a store as a service"

  /// The manual page.
  static var manual: ManualPages.Page {
    var page = Roff(name, section: 8, summary: summary, source: "sync-cli \(Program.version)")
    page.section("SYNOPSIS")
    page.paragraph(
      "\(Roff.bold("sync-cli")) [\(Roff.bold("--store")) \(Roff.italic("DIR"))] \(Roff.bold("serve")) "
        + "[\(Roff.bold("--config")) \(Roff.italic("F"))]", first: true)
    for block in blocks { page.add(block) }
    page.section("SEE ALSO")
    page.pages([
      ("sync-cli", 1), ("sync-cli-serve", 1), ("sync-cli-status", 1), ("sync-cli.conf", 5),
      ("systemd.service", 5), ("journalctl", 1),
    ])
    return ManualPages.Page(file: "\(name).8", text: page.text)
  }

  static let blocks: [ReferenceText.Block] = about + units + running + upkeep

  private static let about: [ReferenceText.Block] = [
    .section("DESCRIPTION"),
    .text(
      """
      `sync-cli serve` is the daemon of one store. It lets members push, pull and sync at any time, and
      keeps the peers that it knows an address of in step: what is written on one side can be read on the
      other a moment later. It stays in the foreground, so that a service manager can supervise it.
      """),
    .text(
      """
      Other programs use the store meanwhile: every command of `sync-cli` except those that replace or
      remove the store, and services that open it in shared mode. A store has one daemon: a second one ends
      with 6 and names the first.
      """),
    .section("REQUIREMENTS"),
    .text(
      """
      The store must exist: `sync-cli init` or `sync-cli join` makes one. Run both as the user of the
      service: the directory must belong to the user that opens it, and a directory that others can write to
      is refused (3). It needs a local file system; one on a network file system is refused unless
      `--force-network` is given and no other machine uses it.
      """),
    .text(
      """
      The daemon needs a TCP port, 7420 unless `listen` says otherwise, and no rights of root. A copy that
      only calls others needs no open port in the firewall. Members whose clocks differ by more than 60 s do
      not sync: run a time service. The daemon raises its soft limit of open files to the hard one: each
      live member takes a file.
      """),
    .text(
      """
      An encrypted store needs its passphrase at each start: `--passphrase-file` or `SYNC_PASSPHRASE_FILE`
      names a file whose first line holds it; without them that is the credential `passphrase` of the service
      manager, if it gives one.
      """),
  ]

  private static let units: [ReferenceText.Block] = [
    .section("UNITS"),
    .text(
      """
      Two units are installed with the program. `sync-store.service` serves the store
      `/var/lib/sync-store/main` with the configuration `/etc/sync-store/main.json`, and
      `sync-store@NAME.service` serves `/var/lib/sync-store/NAME` with `/etc/sync-store/NAME.json`. Both run
      as the user `sync-store`, and both are skipped while their store does not exist. `Type=notify` makes
      `systemctl start` return once the daemon accepts connections.
      """),
    .text(
      """
      The Debian package makes the user, the directory of the stores and the configuration of the store
      main. After `make install`, or from the archive, once:
      """),
    .code([
      "systemd-sysusers && systemd-tmpfiles --create",
      #"install -D -m 644 /usr/local/share/doc/sync-store/examples/main.json \"#,
      "  /etc/sync-store/main.json",
    ]),
    .text("The store main, then one called shop, with a port of its own:"),
    .code([
      "runuser -u sync-store -- sync-cli --store /var/lib/sync-store/main init --name hub",
      "systemctl enable --now sync-store",
      "runuser -u sync-store -- sync-cli --store /var/lib/sync-store/shop init --name shop",
      #"echo '{ "listen": ":7421" }' > /etc/sync-store/shop.json"#,
      "systemctl enable --now sync-store@shop",
    ]),
    .text(
      """
      The passphrase of an encrypted store is the first line of `/etc/sync-store/NAME.passphrase`, a file of
      root with mode 0600. The units hand it to the daemon with `LoadCredential=passphrase:`; a unit of your
      own can do the same, or set `SYNC_PASSPHRASE_FILE`.
      """),
    .text(
      """
      The S3 credentials of relays in buckets are in `/etc/sync-store/NAME.s3-credentials`, likewise a file of
      root with mode 0600, in the form of the AWS command line. The units hand it over with
      `LoadCredential=s3-credentials:`. It counts for relays that were added without a file of their own, and for
      the daemon alone: another program reads the environment or `~/.aws/credentials`. `systemctl restart` has
      the service manager read it again.
      """),
    .code([
      "install -m 600 /dev/stdin /etc/sync-store/main.s3-credentials <<END",
      "aws_access_key_id = …",
      "aws_secret_access_key = …",
      "END",
      "systemctl restart sync-store",
    ]),
    .text(
      """
      The units leave the daemon no capability and no file to write but the stores. A store elsewhere, or a
      disk mounted for it, needs `ReadWritePaths=` in a drop-in (`systemctl edit`). Do not hide `/proc/sys`
      from the daemon (`ProcSubset=pid`): all processes that use a store compare the identity of the boot
      that it shows, to tell whether power was lost.
      """),
  ]

  private static let running: [ReferenceText.Block] = [
    .section("READINESS AND WATCHDOG"),
    .text(
      """
      The daemon tells the service manager its state by sd_notify(3), over the socket in `NOTIFY_SOCKET`:
      `READY=1` once it accepts connections, with `STATUS=listening on HOST:PORT`; `RELOADING=1` and
      `READY=1` around a reload; `STOPPING=1` when it begins to end, with the reason in `STATUS=`. It also
      prints `listening on HOST:PORT` on standard output, for scripts.
      """),
    .text(
      """
      With `WatchdogSec=` it sends `WATCHDOG=1` at least twice in that time, but only while the store can be
      read. If that fails for good, since the store was encrypted meanwhile or a disk write failed, it ends
      by itself, and `Restart=on-failure` starts it again.
      """),
    .section("SIGNALS"),
    .entry(
      "SIGTERM, SIGINT",
      """
      It accepts no more connections, gives sessions up to 4 s to end, makes everything durable, and ends with
      0 within 5 s.
      """
    ),
    .entry(
      "SIGHUP",
      """
      It reads its configuration again, and tries all peers at once. A faulty configuration is reported, and
      the one in use is kept. `listen` and `ping_seconds` need a restart. Without `--config` only the peers
      are tried.
      """),
    .entry("SIGKILL", "Nothing that was acknowledged is lost: the next start recovers the store."),
    .section("EXIT STATUS"),
    .entry("0", "It was told to end."),
    .entry("1", "The configuration, or the file of the passphrase, does not exist."),
    .entry("2", "The command line or the configuration is wrong, or there is no store."),
    .entry(
      "3",
      "The directory is not safe, the passphrase is missing or wrong, or the store was encrypted meanwhile."),
    .entry("4", "The address is in use, or cannot be listened on."),
    .entry("5", "The store, or the keys of the device, are damaged: `sync-cli verify` tells."),
    .entry("6", "The store has a daemon already, or a program that does not share it."),
    .entry("7", "The disk is full, or failed."),
    .entry("8", "The store was written by a newer version."),
    .text(
      """
      With `Restart=on-failure` use `RestartPreventExitStatus=1 2 3 8`: these do not go away by themselves.
      """),
  ]

  private static let upkeep: [ReferenceText.Block] = [
    .section("LOGGING"),
    .text(
      """
      Lines go to standard error with journald's priorities, so that `journalctl -u sync-store -p warning`
      works; with `"log": "json"` each is an object of `time`, `level` and `message`. `log_level` and SIGHUP
      change how much is told. A reader that is too slow does not stop the daemon: 256 KiB of lines are
      kept, the rest is counted.
      """),
    .text(
      """
      `sync-cli status` shows the daemon's address, its peers and their last errors; `sync-cli status
      --check` names what needs attention and ends with 1 if there is anything, for a monitor.
      """),
    .section("BACKUP AND UPGRADE"),
    .text(
      """
      `sync-cli backup FILE` works while the daemon runs, from a timer for example. `sync-cli restore
      --replace` and `sync-cli destroy` end with 6 while it runs: stop it before. A new version of the
      program takes effect with `systemctl restart`.
      """),
    .section("FILES"),
    .entry(
      "sync-store.service, sync-store@.service",
      """
      The units, in `/lib/systemd/system`, or in `/usr/local/lib/systemd/system` after `make install`.
      """),
    .entry("/etc/sync-store/main.json", "The configuration of the store main: see sync-cli.conf(5)."),
    .entry("/etc/sync-store/main.passphrase", "Its passphrase, if it is encrypted: only root need read it."),
    .entry("/var/lib/sync-store/main", "The store main: only the user sync-store may read it."),
  ]
}
