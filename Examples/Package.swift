// swift-tools-version: 6.2
import PackageDescription

let strict: [SwiftSetting] = [
  .swiftLanguageMode(.v6), .strictMemorySafety(), .treatAllWarnings(as: .error),
  .enableUpcomingFeature("ExistentialAny"), .enableUpcomingFeature("InternalImportsByDefault"),
  .enableUpcomingFeature("MemberImportVisibility"),
]

// Three small services. `README.md` says what each shows; `make examples` runs them.
let package = Package(
  name: "Examples",
  dependencies: [.package(name: "sync-store", path: "..")],
  targets: [
    .target(name: "DemoSupport", swiftSettings: strict),
    .executableTarget(
      name: "edge-sensors",
      dependencies: [
        "DemoSupport", .product(name: "SyncStore", package: "sync-store"),
        .product(name: "Replication", package: "sync-store"),
      ],
      swiftSettings: strict),
    .executableTarget(
      name: "config-store",
      dependencies: ["DemoSupport", .product(name: "SyncStore", package: "sync-store")],
      swiftSettings: strict),
    .executableTarget(
      name: "document-store",
      dependencies: [
        "DemoSupport", .product(name: "SyncStore", package: "sync-store"),
        .product(name: "SyncStoreFoundation", package: "sync-store"),
      ],
      swiftSettings: strict),
  ]
)
