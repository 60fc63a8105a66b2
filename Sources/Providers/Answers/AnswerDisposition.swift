// What `HTTP2Sender` does about an answer.

/// What an answer obliges us to do.
enum AnswerDisposition: Equatable {
  /// The push is settled, as far as this attempt goes.
  case settle(PushOutcome)
  /// The provider token was too old: another one, without counting an attempt.
  case renewToken
  /// The provider token came too soon after the one before, which is to be used on; without counting an attempt.
  case keepOlderToken
  /// The request was not looked at: again, without counting an attempt.
  case resend
}
