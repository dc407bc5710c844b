// swift-tools-version: 6.2
import PackageDescription

// Fuzzers of foreign bytes that are reachable through the public API. Those that need internals of the
// package are in Targets/, built by run.sh.
let package = Package(
  name: "Fuzz",
  dependencies: [.package(name: "sync-store", path: "..")],
  targets: [
    .executableTarget(
      name: "Recovery", dependencies: [.product(name: "SyncStore", package: "sync-store")],
      swiftSettings: [.swiftLanguageMode(.v6)]),
    // A hub and many members as processes of sync-cli, under load and faults.
    .executableTarget(name: "Soak", swiftSettings: [.swiftLanguageMode(.v6)]),
    // Kills a writing process repeatedly.
    .executableTarget(
      name: "Kills", dependencies: [.product(name: "SyncStore", package: "sync-store")],
      swiftSettings: [.swiftLanguageMode(.v6)]),
  ]
)
