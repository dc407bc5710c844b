// swift-tools-version: 6.2
import PackageDescription

let package = Package(
  name: "logger",
  dependencies: [.package(name: "sync-store", path: "../sync-store")],
  targets: [
    .executableTarget(
      name: "logger", dependencies: [.product(name: "SyncStore", package: "sync-store")])
  ]
)
