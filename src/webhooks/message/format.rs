//! The forms in which deliveries are sent, and what the services that take them ask for.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The form of a subscription's deliveries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// The body of a delivery as JSON, for programs.
    #[default]
    Service,
    /// A message for an incoming webhook of Slack (docs.slack.dev/messaging/sending-messages-using-incoming-webhooks).
    Slack,
    /// A message for a webhook of Discord (discord.com/developers/docs/resources/webhook#execute-webhook).
    Discord,
    /// A message for `sendMessage` of Telegram's Bot API (core.telegram.org/bots/api#sendmessage).
    Telegram,
    /// A message as plain text.
    Text,
}

/// How often a service takes messages at one endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// Time for one message.
    pub interval: Duration,
    /// Number of messages that may come at once after a pause.
    pub burst: u32,
}

impl Format {
    /// All of them, as users spell them.
    pub const WORDS: [(&'static str, Self); 5] = [
        ("service", Self::Service),
        ("slack", Self::Slack),
        ("discord", Self::Discord),
        ("telegram", Self::Telegram),
        ("text", Self::Text),
    ];

    /// Returns the name as users spell it.
    pub fn name(self) -> &'static str {
        Self::WORDS.into_iter().find(|(_, it)| *it == self).map_or("service", |(name, _)| name)
    }

    /// Whether deliveries are sent as JSON for programs, so that there is no message.
    pub fn is_service(&self) -> bool {
        *self == Self::Service
    }

    /// Whether it is that of a chat service, whose endpoints are secret and limit how often messages come.
    pub fn is_chat(self) -> bool {
        self.rate().is_some()
    }

    /// Returns the media type of the bodies.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; charset=utf-8",
            Self::Service | Self::Slack | Self::Discord | Self::Telegram => "application/json",
        }
    }

    /// Returns how often one endpoint takes messages; `None` where nothing is said.
    pub fn rate(self) -> Option<Rate> {
        let rate = |milliseconds, burst| {
            Some(Rate { interval: Duration::from_millis(milliseconds), burst })
        };
        match self {
            Self::Service | Self::Text => None,
            // One a second (docs.slack.dev/apis/web-api/rate-limits).
            Self::Slack => rate(1000, 1),
            // Thirty a minute, five in two seconds. The service states its limits in its answers only.
            Self::Discord => rate(2200, 3),
            // Twenty a minute in a group, one a second in a chat (core.telegram.org/bots/faq).
            Self::Telegram => rate(3000, 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_names_are_those_of_users() {
        for (name, format) in Format::WORDS {
            assert_eq!(format.name(), name);
            assert_eq!(serde_json::to_value(format).unwrap(), name);
        }
        assert_eq!(Format::default().name(), "service");
    }

    /// What a service takes in any minute, and in any two seconds.
    #[test]
    fn no_burst_exceeds_the_limit_of_a_service() {
        for (format, minute, two_seconds) in
            [(Format::Slack, 60, 2), (Format::Discord, 30, 5), (Format::Telegram, 20, 2)]
        {
            let Rate { interval, burst } = format.rate().unwrap();
            let most = |within: u128| u128::from(burst) + (within - 1) / interval.as_millis();
            assert!(most(60_000) <= minute && most(2000) <= two_seconds, "{format:?}");
        }
    }
}
