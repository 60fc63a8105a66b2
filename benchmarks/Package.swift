// swift-tools-version:6.2
// Programs of `make bench`: parts of the gateway, and the programs that they are compared with. A separate package, so
// that a build of the gateway does not build them. benchmarks/README.md describes each.
import PackageDescription

let strict: [SwiftSetting] = [
  .swiftLanguageMode(.v6),
  .enableUpcomingFeature("ExistentialAny"),
  .enableUpcomingFeature("InternalImportsByDefault"),
  .enableUpcomingFeature("MemberImportVisibility"),
  .treatAllWarnings(as: .error),
]

/// Strict warnings, because these programs produce published figures.
let strictC: [CSetting] = [
  .define("_GNU_SOURCE"), .treatAllWarnings(as: .error),
]

func ours(_ name: String) -> Target.Dependency { .product(name: name, package: "push-gateway") }

let package = Package(
  name: "benchmarks",
  platforms: [.macOS(.v15)],
  products: [
    .executable(name: "HTTP2Load", targets: ["HTTP2Load"]),
    .executable(name: "CurlMultiLoad", targets: ["CurlMultiLoad"]),
    .executable(name: "QueueLoad", targets: ["QueueLoad"]),
    .executable(name: "SQLFloor", targets: ["SQLFloor"]),
    .executable(name: "Micro", targets: ["Micro"]),
  ],
  dependencies: [
    .package(name: "push-gateway", path: ".."),
    .package(url: "https://github.com/apple/swift-log", exact: "1.16.2"),
  ],
  targets: [
    // C libraries, found through pkg-config, for the programs written in C.
    .systemLibrary(name: "LibPQ", path: "Sources/CLibs/LibPQ", pkgConfig: "libpq"),
    .systemLibrary(name: "LibCurl", path: "Sources/CLibs/LibCurl", pkgConfig: "libcurl"),

    // http2.py
    .executableTarget(
      name: "HTTP2Load",
      dependencies: [
        ours("Runtime"), ours("PushModel"), ours("Queue"), ours("Dialects"), ours("Providers"), ours("CAllocator"),
        .product(name: "Logging", package: "swift-log"),
      ],
      swiftSettings: strict),
    .executableTarget(name: "CurlMultiLoad", dependencies: ["LibCurl"], cSettings: strictC),
    // queue.py, pipeline.py
    .executableTarget(
      name: "QueueLoad",
      dependencies: [
        ours("Runtime"), ours("Queue"), ours("CAllocator"), .product(name: "Logging", package: "swift-log"),
      ],
      swiftSettings: strict),
    .executableTarget(name: "SQLFloor", dependencies: ["LibPQ"], cSettings: strictC),
    // micro.py
    .target(name: "AllocationCount", cSettings: strictC),
    .executableTarget(
      name: "Micro",
      dependencies: [
        "AllocationCount", "LibPQ", ours("Runtime"), ours("PushModel"), ours("Queue"), ours("Dialects"),
        ours("Providers"),
      ],
      swiftSettings: strict),
  ]
)
