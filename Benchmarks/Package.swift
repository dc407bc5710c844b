// swift-tools-version: 6.2
import PackageDescription

// The store compared with its peers. Only this package needs their libraries: `scripts/deps.sh bench`
// installs them.
let package = Package(
  name: "Benchmarks",
  dependencies: [.package(name: "sync-store", path: "..")],
  targets: [
    .systemLibrary(name: "CMalloc"),
    .systemLibrary(name: "CLMDB", pkgConfig: "lmdb", providers: [.apt(["liblmdb-dev"])]),
    .systemLibrary(name: "CLevelDB", providers: [.apt(["libleveldb-dev"])]),
    .systemLibrary(name: "CRocksDB", pkgConfig: "rocksdb", providers: [.apt(["librocksdb-dev"])]),
    .systemLibrary(name: "CSQLitePeer", pkgConfig: "sqlite3", providers: [.apt(["libsqlite3-dev"])]),
    .systemLibrary(name: "COpenSSLPeer", pkgConfig: "openssl", providers: [.apt(["libssl-dev"])]),
    .executableTarget(
      name: "Benchmarks",
      dependencies: [
        "CMalloc", "CLMDB", "CLevelDB", "CRocksDB", "CSQLitePeer", "COpenSSLPeer",
        .product(name: "SyncStore", package: "sync-store"),
        .product(name: "Replication", package: "sync-store"),
        .product(name: "ObjectStorageS3", package: "sync-store"),
      ],
      swiftSettings: [
        .swiftLanguageMode(.v6), .strictMemorySafety(), .treatAllWarnings(as: .error),
        .enableUpcomingFeature("ExistentialAny"), .enableUpcomingFeature("MemberImportVisibility"),
      ]),
  ]
)
