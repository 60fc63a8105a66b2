// swift-tools-version:6.2
// push-gateway: one binary, one Postgres. The layers are described in docs/architecture.md; arrows only point downward.
import PackageDescription

/// What every target of ours is compiled with.
let strict: [SwiftSetting] = [
  .swiftLanguageMode(.v6),
  .enableUpcomingFeature("ExistentialAny"),
  .enableUpcomingFeature("InternalImportsByDefault"),
  .enableUpcomingFeature("MemberImportVisibility"),
  .strictMemorySafety(),
  .treatAllWarnings(as: .error),
]

/// Tests use `!`, `try!` and pointers freely; everything else stays as strict.
let strictTests: [SwiftSetting] = [
  .swiftLanguageMode(.v6),
  .enableUpcomingFeature("ExistentialAny"),
  .enableUpcomingFeature("MemberImportVisibility"),
]

let logging: Target.Dependency = .product(name: "Logging", package: "swift-log")
let argumentParser: Target.Dependency = .product(name: "ArgumentParser", package: "swift-argument-parser")

let package = Package(
  name: "push-gateway",
  platforms: [.macOS(.v15)],
  products: [
    .executable(name: "push-gateway", targets: ["Gateway"]),
    // Simulators of the providers and the load tester: never installed where calls are rung.
    .executable(name: "push-gateway-lab", targets: ["Lab"]),
    // For benchmarks/, a package of its own.
    .library(name: "Runtime", targets: ["Runtime"]),
    .library(name: "PushModel", targets: ["PushModel"]),
    .library(name: "Queue", targets: ["Queue"]),
    .library(name: "Providers", targets: ["Providers"]),
    .library(name: "Dialects", targets: ["Dialects"]),
    .library(name: "Dispatching", targets: ["Dispatching"]),
    .library(name: "Simulators", targets: ["Simulators"]),
    .library(name: "CAllocator", targets: ["CAllocator"]),
    // `make sim`.
    .executable(name: "push-gateway-sim", targets: ["Simulation"]),
  ],
  dependencies: [
    .package(url: "https://github.com/apple/swift-argument-parser", exact: "1.8.2"),
    .package(url: "https://github.com/apple/swift-http-types", exact: "1.8.0"),
    .package(url: "https://github.com/apple/swift-log", exact: "1.16.2"),
    .package(url: "https://github.com/apple/swift-nio", exact: "2.101.2"),
    .package(url: "https://github.com/apple/swift-nio-extras", exact: "1.35.2"),
    .package(url: "https://github.com/HdrHistogram/hdrhistogram-swift", exact: "0.2.0"),
    // Without its traits: nothing here uses them, and with one less a build compiles 150 files less.
    .package(url: "https://github.com/hummingbird-project/hummingbird", exact: "2.28.1", traits: []),
    .package(url: "https://github.com/jpsim/Yams", exact: "6.2.2"),
    .package(url: "https://github.com/swift-server/swift-service-lifecycle", exact: "2.13.0"),
  ],
  targets: [
    // C libraries, found through pkg-config.
    .systemLibrary(
      name: "CLibPQ", path: "Sources/CLibs/CLibPQ", pkgConfig: "libpq",
      providers: [.apt(["libpq-dev"]), .brew(["libpq"])]),
    .systemLibrary(
      name: "CNghttp2", path: "Sources/CLibs/CNghttp2", pkgConfig: "libnghttp2",
      providers: [.apt(["libnghttp2-dev"]), .brew(["libnghttp2"])]),
    .systemLibrary(
      name: "CCurl", path: "Sources/CLibs/CCurl", pkgConfig: "libcurl",
      providers: [.apt(["libcurl4-openssl-dev"]), .brew(["curl"])]),
    .systemLibrary(
      name: "COpenSSL", path: "Sources/CLibs/COpenSSL", pkgConfig: "openssl",
      providers: [.apt(["libssl-dev"]), .brew(["openssl@3"])]),
    .systemLibrary(
      name: "CZlib", path: "Sources/CLibs/CZlib", pkgConfig: "zlib",
      providers: [.apt(["zlib1g-dev"]), .brew(["zlib"])]),
    .target(
      name: "CShims", dependencies: ["CCurl", "COpenSSL", "CZlib"], path: "Sources/CLibs/CShims"),
    .target(
      name: "CAllocator", path: "Sources/CLibs/CAllocator",
      linkerSettings: [.linkedLibrary("jemalloc", .when(platforms: [.linux]))]),

    // The layers.
    .target(
      name: "Runtime",
      dependencies: ["CNghttp2", "COpenSSL", "CShims", logging],
      swiftSettings: strict),
    .target(name: "PushModel", swiftSettings: strict),
    .target(
      name: "Queue",
      dependencies: ["PushModel", "Runtime", "CLibPQ", logging],
      swiftSettings: strict),
    .target(
      name: "Providers",
      dependencies: ["PushModel", "Runtime", "CCurl", "CZlib", "CShims", logging],
      swiftSettings: strict),
    .target(
      name: "Dialects",
      dependencies: ["PushModel", "Runtime", "Queue", "Providers"],
      swiftSettings: strict),
    .target(
      name: "Dispatching",
      dependencies: ["PushModel", "Runtime", "Queue", "Providers", "Dialects", logging],
      swiftSettings: strict),
    .target(
      name: "Simulators",
      dependencies: ["Runtime", "COpenSSL", "CZlib", "CShims", logging],
      swiftSettings: strict),
    .target(
      name: "Phones",
      dependencies: ["Runtime"],
      swiftSettings: strict),
    .target(
      name: "Settings",
      dependencies: [
        "Dialects", "Providers", "Queue", "Runtime", logging,
        .product(name: "HTTPTypes", package: "swift-http-types"),
        .product(name: "NIOCore", package: "swift-nio"),
        .product(name: "Yams", package: "Yams"),
      ],
      swiftSettings: strict),
    .target(
      name: "Console",
      dependencies: ["Settings", "Queue", "Runtime", logging, argumentParser],
      swiftSettings: strict),
    .target(
      name: "Webhooks",
      dependencies: ["Providers", "Queue", "Runtime", logging],
      swiftSettings: strict),
    .target(
      name: "HTTPSurface",
      dependencies: [
        "Settings", "Webhooks", "Dialects", "Dispatching", "Providers", "PushModel", "Queue", "Runtime", logging,
        .product(name: "HTTPTypes", package: "swift-http-types"),
        .product(name: "Hummingbird", package: "hummingbird"),
        .product(name: "HummingbirdCore", package: "hummingbird"),
        .product(name: "NIOCore", package: "swift-nio"),
        .product(name: "NIOHTTP1", package: "swift-nio"),
        .product(name: "NIOHTTPTypes", package: "swift-nio-extras"),
        .product(name: "NIOPosix", package: "swift-nio"),
        .product(name: "ServiceLifecycle", package: "swift-service-lifecycle"),
      ],
      swiftSettings: strict, plugins: ["EmbedText"]),
    .target(
      name: "Operations",
      dependencies: ["Settings", "Console", "Providers", "Queue", "Runtime", argumentParser],
      swiftSettings: strict),

    // The programs.
    .executableTarget(
      name: "Gateway",
      dependencies: [
        "CAllocator", "Settings", "Console", "Dialects", "Dispatching", "HTTPSurface", "Operations", "Providers",
        "PushModel",
        "Queue", "Runtime", "Webhooks", logging, argumentParser,
        .product(name: "NIOCore", package: "swift-nio"),
        .product(name: "NIOPosix", package: "swift-nio"),
        .product(name: "ServiceLifecycle", package: "swift-service-lifecycle"),
        .product(name: "UnixSignals", package: "swift-service-lifecycle"),
      ],
      swiftSettings: strict, plugins: ["EmbedText"]),
    .executableTarget(
      name: "Lab",
      dependencies: [
        "CAllocator", "Settings", "Console", "Phones", "Providers", "Queue", "Runtime", "Simulators", logging,
        argumentParser,
        .product(name: "Histogram", package: "hdrhistogram-swift"),
        .product(name: "UnixSignals", package: "swift-service-lifecycle"),
      ],
      swiftSettings: strict, plugins: ["EmbedText"]),

    // migrations/, dashboard/, docs/operations/ and the demo's scripts become part of the binaries.
    .plugin(name: "EmbedText", capability: .buildTool(), dependencies: ["embed-text"]),
    .executableTarget(name: "embed-text", path: "Plugins/EmbedTextTool", swiftSettings: strict),

    .target(
      name: "TestSupport", dependencies: ["PushModel", "Queue", "Runtime", "TestTime"], path: "Tests/TestSupport",
      swiftSettings: strictTests),
    .target(
      name: "MemoryOutbox", dependencies: ["PushModel", "Queue", "Runtime"], path: "Tests/MemoryOutbox",
      swiftSettings: strict),
    .executableTarget(
      name: "Simulation",
      dependencies: ["Dialects", "Dispatching", "MemoryOutbox", "Providers", "PushModel", "Queue", "Runtime", logging],
      path: "Tests/Simulation", exclude: ["mutants", "README.md"], swiftSettings: strict),
    .testTarget(
      name: "MemoryOutboxTests", dependencies: ["MemoryOutbox", "PushModel", "Queue", "Runtime", "TestSupport"],
      swiftSettings: strictTests),
    .target(name: "TestTime", dependencies: ["Runtime"], path: "Tests/TestTime", swiftSettings: strictTests),
    .target(name: "TestSeed", dependencies: ["Runtime"], path: "Tests/TestSeed", swiftSettings: strictTests),
    .target(name: "TestProcess", path: "Tests/TestProcess", swiftSettings: strictTests),
    .target(
      name: "HTTP2TestSupport", dependencies: ["Runtime", "TestProcess"], path: "Tests/HTTP2TestSupport",
      swiftSettings: strictTests),
    .target(
      name: "DialectsTestSupport", dependencies: ["Dialects", "Providers", "PushModel", "Queue", "Runtime"],
      path: "Tests/DialectsTestSupport", swiftSettings: strictTests),
    .testTarget(
      name: "RuntimeTests",
      dependencies: ["Runtime", "COpenSSL", "HTTP2TestSupport", "TestProcess", "TestSeed", "TestTime"],
      swiftSettings: strictTests),
    .testTarget(
      name: "QueueTests",
      dependencies: ["PushModel", "Queue", "Runtime", "HTTP2TestSupport", "TestSupport", "TestTime", logging],
      swiftSettings: strictTests),
    .testTarget(
      name: "ProvidersTests",
      dependencies: [
        "Providers", "PushModel", "Runtime", "Simulators", "HTTP2TestSupport", "TestProcess", "TestSeed", "TestTime",
        logging,
      ],
      swiftSettings: strictTests),
    .testTarget(
      name: "DialectsTests",
      dependencies: ["Dialects", "DialectsTestSupport", "Providers", "PushModel", "Queue", "Runtime"],
      swiftSettings: strictTests),
    .testTarget(
      name: "DispatchingTests",
      dependencies: [
        "Dispatching", "Dialects", "DialectsTestSupport", "Providers", "PushModel", "Queue", "Runtime", "TestSeed",
        "TestTime", logging,
      ],
      swiftSettings: strictTests),
    .testTarget(
      name: "SimulatorsTests", dependencies: ["Simulators", "Runtime", "TestProcess"], swiftSettings: strictTests),
    .testTarget(
      name: "PhonesTests",
      dependencies: [
        "Phones", "Dialects", "DialectsTestSupport", "Providers", "PushModel", "Queue", "Runtime", "Simulators",
      ],
      swiftSettings: strictTests),
    .target(
      name: "SettingsTestSupport", dependencies: ["Settings", "HTTP2TestSupport"], path: "Tests/SettingsTestSupport",
      swiftSettings: strictTests),
    .testTarget(
      name: "SettingsTests",
      dependencies: [
        "Settings", "SettingsTestSupport", "Dialects", "DialectsTestSupport", "Providers", "PushModel", "Queue",
        "Runtime",
        logging,
      ],
      swiftSettings: strictTests),
    .testTarget(
      name: "ConsoleTests", dependencies: ["Console", "Settings", "Runtime", logging], swiftSettings: strictTests),
    .target(
      name: "HTTPSurfaceTestSupport",
      dependencies: [
        "HTTPSurface", "Settings", "Queue", "Runtime", "COpenSSL", "HTTP2TestSupport", "TestProcess", "TestSupport",
        "TestTime", logging,
        .product(name: "ServiceLifecycle", package: "swift-service-lifecycle"),
      ],
      path: "Tests/HTTPSurfaceTestSupport", swiftSettings: strictTests),
    .testTarget(
      name: "HTTPSurfaceTests",
      dependencies: [
        "HTTPSurface", "HTTPSurfaceTestSupport", "Settings", "Dispatching", "Providers", "PushModel", "Queue",
        "Runtime", "COpenSSL",
        "HTTP2TestSupport", "TestProcess", "TestSeed", "TestSupport", "TestTime", logging,
        .product(name: "HTTPTypes", package: "swift-http-types"),
        .product(name: "Hummingbird", package: "hummingbird"),
        .product(name: "NIOCore", package: "swift-nio"),
        .product(name: "NIOEmbedded", package: "swift-nio"),
        .product(name: "NIOHTTPTypes", package: "swift-nio-extras"),
        .product(name: "ServiceLifecycle", package: "swift-service-lifecycle"),
      ],
      swiftSettings: strictTests),
    .testTarget(
      name: "WebhooksTests", dependencies: ["Webhooks", "Runtime", "TestSupport"], swiftSettings: strictTests),
    .testTarget(name: "OperationsTests", dependencies: ["Operations", "Console"], swiftSettings: strictTests),
    .testTarget(
      name: "LabTests", dependencies: ["Lab", "Console", "Providers", "Queue", "Runtime", "Simulators"],
      swiftSettings: strictTests),
    // Tests that run the whole gateway.
    .testTarget(
      name: "GatewayTests",
      dependencies: [
        "Gateway", "Settings", "SettingsTestSupport", "Console", "HTTPSurface", "HTTPSurfaceTestSupport",
        "Lab", "Operations", "Phones", "Dialects", "DialectsTestSupport", "Dispatching", "HTTP2TestSupport",
        "PushModel",
        "Queue",
        "Providers", "Simulators", "Runtime", "TestProcess", "TestSupport", "TestTime", argumentParser, logging,
        .product(name: "ServiceLifecycle", package: "swift-service-lifecycle"),
      ],
      swiftSettings: strictTests),
  ]
)
