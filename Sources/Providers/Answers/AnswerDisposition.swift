// What `HTTP2Sender` does after an answer.

/// The action that an answer requires.
enum AnswerDisposition: Equatable {
  /// This attempt of the push ends with this outcome. A scope below `lane` means that an outcome which would stop the lane says
  /// nothing about other tokens.
  case settle(PushOutcome, ReasonScope = .lane)
  /// The provider token was too old. The request is sent again with another token, without counting an attempt.
  case renewToken
  /// The provider token came too soon after the previous one. The request is sent again with the previous one, without counting an
  /// attempt.
  case keepOlderToken
  /// The provider did not process the request. It is sent again, without counting an attempt.
  case resend
}
