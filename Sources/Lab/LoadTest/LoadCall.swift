// The calls of a load. Each is derived from its number, so none needs to be stored.

import Console
import Runtime

/// The properties that all calls of a run share.
struct LoadShape: Sendable {
  /// Hexadecimal digits unique to the run: a part of every call id, user id and token.
  var run: String
  /// The apps of the calls, used in turn; at least one.
  var apps: [String]
  var kind: LoadKind
  /// The ring window, or a notification's time to live.
  var ringSeconds: Int
  /// Number of devices of a call, 1 to 1000.
  var devices: Int
  var mix: LoadMix
  var faults: LoadFaults
  /// Where the devices of web push are; nil if the mix has none.
  var subscription: LoadSubscription?
  var seed: UInt64
  /// The user's own calls, which are repeated in turn; empty: calls are generated.
  var lines: [CallLine] = []
  /// The providers of the mix that an app lacks, by app: their devices are skipped.
  var missingProviders: [String: Set<LoadProvider>] = [:]

  /// Whether payload and recipients are the user's own. The number of devices of such a call is known once it is committed.
  var hasOwnCalls: Bool { !lines.isEmpty }

  /// The apps of the calls, sorted.
  var usedApps: [String] {
    let named = lines.compactMap { $0.app.map { String(decoding: $0, as: UTF8.self) } }
    return Set(hasOwnCalls && named.count == lines.count ? named : named + apps).sorted()
  }

  /// The providers of the devices; of the user's own calls, all.
  var usedProviders: [LoadProvider] { hasOwnCalls ? LoadProvider.allCases : mix.weights.map(\.provider) }

  /// The longest ring window of a call, in seconds.
  var ringSecondsMax: Int { lines.reduce(ringSeconds) { max($0, $1.ringSeconds.map(Int.init) ?? 0) } }

  /// The prefix of every call id and user id of the run.
  var prefix: String { "loadtest-\(run)-" }

  /// The call with a number: always the same one.
  func call(_ number: Int) -> LoadCall { LoadCall(self, number) }
}

/// The kind of a call, as in push.outbox.
enum LoadKind: String, CaseIterable, Sendable {
  case incomingCall = "incoming_call"
  case videoCall = "video_call"
  case message
  case groupMessage = "group_message"
  case groupInvite = "group_invite"
  case missedCall = "missed_call"

  /// Whether the end of the call causes more pushes: cancels and missed calls.
  var rings: Bool { self == .incomingCall || self == .videoCall }
}

/// One call and its devices.
struct LoadCall: Sendable {
  struct Device: Equatable, Sendable {
    var provider: LoadProvider
    /// The prefix of its token that requests a fault; nil for none.
    var fault: String?
  }

  private let shape: LoadShape
  private let line: CallLine?
  let number: Int
  /// Empty for a call of the user's own.
  let devices: [Device]

  fileprivate init(_ shape: LoadShape, _ number: Int) {
    self.shape = shape
    self.number = number
    line = shape.hasOwnCalls ? shape.lines[number % shape.lines.count] : nil
    guard !shape.hasOwnCalls else {
      devices = []
      return
    }
    var random = SplitMix64(seed: shape.seed, stream: UInt64(number) + 1)
    devices = (0..<shape.devices).map { _ in
      let provider = shape.mix.provider(at: random.nextFraction())
      return Device(provider: provider, fault: shape.faults.prefix(of: provider, at: random.nextFraction()))
    }
  }

  var id: String { "\(shape.prefix)\(number)" }

  var app: String {
    line?.app.map { String(decoding: $0, as: UTF8.self) } ?? shape.apps[number % shape.apps.count]
  }

  var kind: LoadKind { shape.kind }
  /// The ring window, or a notification's time to live.
  var ringSeconds: Int { line?.ringSeconds.map(Int.init) ?? shape.ringSeconds }

  /// The number of the first device's delivery; those of the other devices follow.
  var firstDelivery: Int { number * shape.devices }

  /// A payload (baseCallData) as large as a backend's.
  var payload: [UInt8] {
    if let line { return LoadCallFile.payload(line.payload, callID: id) }
    var writer = JSONWriter(reservingCapacity: 384)
    writer.beginObject()
    writer.key("callId")
    writer.string(id)
    writer.key("from")
    writer.string("5f0c9f6e-7a33-4f0e-9a4c-2a1f1a2b3c4d" as StaticString)
    writer.key("fromName")
    writer.string("Portaria" as StaticString)
    writer.key("apartmentNumber")
    writer.string(Int64(number % 500))
    writer.key("buildingName")
    writer.string("Torre Norte" as StaticString)
    if shape.kind.rings || shape.kind == .missedCall {
      writer.key("channelName")
      writer.string("channel-\(id)")
    } else {
      writer.key("chatId")
      writer.string("chat-\(number % 500)")
    }
    writer.key("metadata")
    writer.raw(#"{"schemaVersion":1,"clientVersion":"1.4.2"}"#)
    writer.endObject()
    return writer.bytes
  }

  /// Whether the app has no such provider, so that the device gets no delivery.
  func skips(_ device: Device) -> Bool { shape.missingProviders[app]?.contains(device.provider) ?? false }

  /// The recipients: each device has its own user and token.
  var recipients: [UInt8] {
    if let line { return line.recipients }
    var writer = JSONWriter(reservingCapacity: 256 * devices.count)
    writer.beginArray()
    for (index, device) in devices.enumerated() {
      let delivery = firstDelivery + index
      writer.beginObject()
      writer.key("userId")
      writer.string("\(shape.prefix)\(delivery)")
      switch device.provider {
      case .apns: writer.key(shape.kind.rings ? "voipPushToken" : "apnsToken")
      case .fcm: writer.key("fcmToken")
      case .expo: writer.key("pushToken")
      case .webpush: writer.key("webPushSubscription")
      }
      let token = LoadToken.text(of: device, run: shape.run, delivery: delivery)
      if device.provider == .webpush, let subscription = shape.subscription {
        writer.string(subscription.text(name: token))
      } else {
        writer.string(token)
      }
      writer.key("platform")
      switch device.provider {
      case .apns: writer.string("ios" as StaticString)
      case .fcm, .expo: writer.string("android" as StaticString)
      case .webpush: writer.string("web" as StaticString)
      }
      writer.endObject()
    }
    writer.endArray()
    return writer.bytes
  }
}
