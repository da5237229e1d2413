//! The closed list of reasons for which a node declines a request.

use std::fmt;
use std::str::FromStr;

macro_rules! codes {
    ($($(#[$doc:meta])* $variant:ident = $text:literal,)*) => {
        /// Why a request was not done, as written in an answer's `code`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Code {
            $($(#[$doc])* $variant,)*
        }

        impl Code {
            /// Every code there is, in the order of the protocol page.
            pub const ALL: &'static [Code] = &[$(Code::$variant,)*];

            /// The code as it stands on the wire.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Code::$variant => $text,)*
                }
            }
        }
    };
}

codes! {
    /// The line is not a message: its JSON or one of its fields is wrong.
    BadMessage = "bad_message",
    /// The line is longer than the node reads.
    TooLarge = "too_large",
    /// The timestamp is too far from the node's clock, or at or before the sender's floor.
    StaleTimestamp = "stale_timestamp",
    /// No accepted canonical form of the message yields its signature.
    BadSignature = "bad_signature",
    /// This very message was accepted before.
    Replayed = "replayed",
    /// The node knows no secret for this sender.
    UnknownSender = "unknown_sender",
    /// The sender is genuine but may not do this.
    Forbidden = "forbidden",
    /// The node has no such request type.
    UnknownType = "unknown_type",
    /// The message is genuine but its payload does not fit its type.
    BadPayload = "bad_payload",
    /// No agent of that id lives here.
    UnknownAgent = "unknown_agent",
    /// The agent's own code raised an exception.
    AgentError = "agent_error",
    /// The time allowed for it ran out.
    Timeout = "timeout",
    /// The name of a destination leads nowhere.
    UnknownDestination = "unknown_destination",
    /// A destination was known but could not be reached.
    Unreachable = "unreachable",
    /// A destination answered, and refused.
    Rejected = "rejected",
    /// The agent has used more than it may: CPU, bytes, calls.
    Quota = "quota",
    /// The node is at one of its bounds; later may do.
    Busy = "busy",
    /// The node is ending.
    ShuttingDown = "shutting_down",
    /// A fault of the node itself.
    Internal = "internal",
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The text is none of the protocol's codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotACode;

impl fmt::Display for NotACode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not one of the protocol's error codes")
    }
}

impl std::error::Error for NotACode {}

impl FromStr for Code {
    type Err = NotACode;

    fn from_str(text: &str) -> Result<Code, NotACode> {
        Code::ALL.iter().copied().find(|code| code.as_str() == text).ok_or(NotACode)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_codes_are_those_of_the_protocol_page_and_read_back() {
        let page = "bad_message too_large stale_timestamp bad_signature replayed unknown_sender forbidden \
                    unknown_type bad_payload unknown_agent agent_error timeout unknown_destination \
                    unreachable rejected quota busy shutting_down internal";
        let ours: Vec<_> = Code::ALL.iter().map(|code| code.as_str()).collect();
        assert_eq!(ours.join(" "), page);
        for code in Code::ALL {
            assert_eq!(code.as_str().parse(), Ok(*code));
        }
        assert_eq!("Busy".parse::<Code>(), Err(NotACode));
    }
}
