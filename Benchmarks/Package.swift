// swift-tools-version: 6.2
import PackageDescription

let package = Package(
  name: "Benchmarks",
  dependencies: [.package(name: "sync-store", path: "..")],
  targets: [
    .systemLibrary(name: "CSQLitePeer", pkgConfig: "sqlite3", providers: [.apt(["libsqlite3-dev"])]),
    .executableTarget(
      name: "Benchmarks",
      dependencies: ["CSQLitePeer", .product(name: "SyncStore", package: "sync-store")],
      swiftSettings: [.swiftLanguageMode(.v6)]),
  ]
)
