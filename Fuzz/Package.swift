// swift-tools-version: 6.2
import PackageDescription

// What reads foreign bytes and can be reached through the public API. What only the package's own modules see is in
// Targets/, built by run.sh.
let package = Package(
  name: "Fuzz",
  dependencies: [.package(name: "sync-store", path: "..")],
  targets: [
    .executableTarget(
      name: "Recovery", dependencies: [.product(name: "SyncStore", package: "sync-store")],
      swiftSettings: [.swiftLanguageMode(.v6)]),
    // A hub and many members as processes of sync-cli, under load and faults.
    .executableTarget(name: "Soak", swiftSettings: [.swiftLanguageMode(.v6)]),
    // Kills a process that writes, again and again.
    .executableTarget(
      name: "Kills", dependencies: [.product(name: "SyncStore", package: "sync-store")],
      swiftSettings: [.swiftLanguageMode(.v6)]),
  ]
)
