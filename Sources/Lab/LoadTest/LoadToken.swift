// Tokens that contain the number of their delivery: a simulator's log has no other mark of it.

/// A token ends with the run and the number of its delivery, in hexadecimal digits: `…RRRRRRRRNNNNNNNNNNNN`, and a
/// bracket at Expo. Its prefix may request a fault from the simulator. For web push, it is the name in the endpoint.
enum LoadToken {
  /// Number of digits of a run's name.
  static let runDigits = 8
  private static let numberDigits = 12
  /// APNs tokens are 64 digits today.
  private static let apnsLength = 64
  /// A prefix of no fault and of no token of another environment.
  private static let goodAPNsPrefix = "10ad7e57"
  /// With the following text, as long as FCM's tokens.
  private static let fcmFiller = ":APA91b" + String(repeating: "LoadTest", count: 14)

  static func text(of device: LoadCall.Device, run: String, delivery: Int) -> String {
    let digits = String(delivery, radix: 16)
    let mark = run + String(repeating: "0", count: numberDigits - digits.count) + digits
    switch device.provider {
    case .apns:
      let prefix = device.fault ?? goodAPNsPrefix
      return prefix + String(repeating: "0", count: apnsLength - prefix.count - mark.count) + mark
    case .fcm:
      // The letter after a fault's name keeps the digits from being read as its number.
      return "\(device.fault ?? "d")x\(mark)\(fcmFiller)\(mark)"
    case .expo:
      return "ExponentPushToken[\(device.fault ?? "")x\(mark)]"
    case .webpush:
      return "\(device.fault ?? "")x\(mark)"
    }
  }

  /// The number of the delivery; nil for a token of another run, or of no run.
  static func delivery(in token: ArraySlice<UInt8>, run: [UInt8]) -> Int? {
    let mark = (token.last == UInt8(ascii: "]") ? token.dropLast() : token).suffix(runDigits + numberDigits)
    guard mark.count == runDigits + numberDigits, mark.prefix(runDigits).elementsEqual(run) else { return nil }
    var number = 0
    for byte in mark.suffix(numberDigits) {
      switch byte {
      case UInt8(ascii: "0")...UInt8(ascii: "9"): number = number << 4 | Int(byte - UInt8(ascii: "0"))
      case UInt8(ascii: "a")...UInt8(ascii: "f"): number = number << 4 | Int(byte - UInt8(ascii: "a") + 10)
      default: return nil
      }
    }
    return number
  }
}
