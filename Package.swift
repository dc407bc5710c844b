// swift-tools-version: 6.2
import PackageDescription

/// Every Swift target is built alike: the newest language rules, and no warning survives.
let strict: [SwiftSetting] = [
  .swiftLanguageMode(.v6),
  .strictMemorySafety(),
  .treatAllWarnings(as: .error),
  .enableUpcomingFeature("ExistentialAny"),
  .enableUpcomingFeature("InternalImportsByDefault"),
  .enableUpcomingFeature("MemberImportVisibility"),
]

let package = Package(
  name: "sync-store",
  products: [
    .library(name: "SyncStore", targets: ["SyncStore"]),
    .library(name: "SyncStoreFoundation", targets: ["SyncStoreFoundation"]),
    .library(name: "Replication", targets: ["Replication"]),
    .library(name: "ObjectStorageS3", targets: ["ObjectStorageS3"]),
    .executable(name: "sync-cli", targets: ["sync-cli"]),
  ],
  targets: [
    .target(name: "CLinux"),
    // Needs the headers of libcurl (libcurl4-openssl-dev); loads the library at first use, and links nothing.
    .target(name: "CCurl"),
    .systemLibrary(name: "COpenSSL", pkgConfig: "openssl", providers: [.apt(["libssl-dev"])]),
    .systemLibrary(name: "CSQLite", pkgConfig: "sqlite3", providers: [.apt(["libsqlite3-dev"])]),
    .systemLibrary(name: "CXXHash", pkgConfig: "libxxhash", providers: [.apt(["libxxhash-dev"])]),
    .systemLibrary(name: "CNettle", pkgConfig: "nettle", providers: [.apt(["nettle-dev"])]),
    .systemLibrary(name: "CDeflate", pkgConfig: "libdeflate", providers: [.apt(["libdeflate-dev"])]),
    .systemLibrary(name: "CEdit", pkgConfig: "libedit", providers: [.apt(["libedit-dev"])]),

    .target(
      name: "SyncStore", dependencies: ["CLinux", "COpenSSL", "CNettle", "CSQLite", "CXXHash"],
      swiftSettings: strict),
    .target(name: "SyncStoreFoundation", dependencies: ["SyncStore"], swiftSettings: strict),
    .target(
      name: "Replication", dependencies: ["SyncStore", "CLinux", "COpenSSL", "CDeflate"],
      swiftSettings: strict),
    .target(
      name: "ObjectStorageS3", dependencies: ["SyncStore", "Replication", "CCurl"], swiftSettings: strict),
    .executableTarget(
      name: "sync-cli", dependencies: ["SyncStore", "Replication", "ObjectStorageS3", "CLinux", "CEdit"],
      swiftSettings: strict),

    .target(
      name: "SyncTestSupport", dependencies: ["SyncStore", "Replication"],
      path: "Tests/SyncTestSupport", swiftSettings: strict),
    .testTarget(
      name: "SyncStoreTests",
      dependencies: ["SyncStore", "SyncStoreFoundation", "CLinux", "SyncTestSupport", "background-work"],
      swiftSettings: strict),
    .testTarget(
      name: "ReplicationTests", dependencies: ["Replication", "COpenSSL", "SyncTestSupport"],
      swiftSettings: strict),
    .testTarget(
      name: "ObjectStorageS3Tests",
      dependencies: ["ObjectStorageS3", "Replication", "SyncStore", "SyncTestSupport"],
      swiftSettings: strict),
    .testTarget(
      name: "SimulationTests", dependencies: ["Replication", "SyncTestSupport"],
      swiftSettings: strict),
    // More background work than there are threads for, in a process that has not been forked.
    .executableTarget(
      name: "background-work", dependencies: ["SyncStore"], path: "Tests/BackgroundWork",
      swiftSettings: strict),
    // Runs the program under a filter that refuses it a system call.
    .executableTarget(name: "refuse-call", path: "Tests/RefuseCall"),
    .testTarget(
      name: "CLITests",
      dependencies: ["sync-cli", "ObjectStorageS3", "SyncStoreFoundation", "refuse-call", "SyncTestSupport"],
      swiftSettings: strict),
    .testTarget(
      name: "SnippetTests",
      dependencies: ["SyncStore", "SyncStoreFoundation", "Replication", "ObjectStorageS3"],
      swiftSettings: strict),
    .testTarget(name: "HygieneTests", dependencies: ["SyncTestSupport"], swiftSettings: strict),
  ]
)

// One suite alone, for long optimised runs: the others would take ten minutes to compile and run nothing.
if let suite = Context.environment["SYNC_STORE_SUITE"] {
  package.targets.removeAll { $0.type == .test && $0.name != suite }
}
