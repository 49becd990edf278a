//! Endpoints of chat services, what the services say in their answers, and what of it may be shown.

use std::time::Duration;

use serde::Deserialize;

use super::Endpoint;
use crate::message::format::Format;

/// Describes the endpoints of a service: what to give.
pub fn form(format: Format) -> &'static str {
    match format {
        Format::Service | Format::Text => "give one such as https://example.com/events",
        Format::Slack => {
            "give that of an incoming webhook, such as https://hooks.slack.com/services/T…/B…/…"
        }
        Format::Discord => {
            "give that of a webhook, such as https://discord.com/api/webhooks/ID/TOKEN"
        }
        Format::Telegram => {
            "give that of a bot with the chat, https://api.telegram.org/botTOKEN/sendMessage?chat_id=CHAT"
        }
    }
}

/// Whether an endpoint has the form of those of a service. The host may be another one: services have
/// some in several places, and others understand their forms.
pub fn has_form(format: Format, endpoint: &Endpoint) -> bool {
    let url = endpoint.url();
    let path: Vec<&str> = url.path_segments().into_iter().flatten().collect();
    match format {
        Format::Service | Format::Text => true,
        Format::Slack => path.iter().any(|segment| !segment.is_empty()),
        Format::Discord => {
            matches!(path[..], [.., "webhooks", id, token] if !id.is_empty() && !token.is_empty())
        }
        Format::Telegram => {
            let is_bot =
                |segment: &str| segment.strip_prefix("bot").is_some_and(|it| !it.is_empty());
            matches!(path[..], [.., bot, "sendMessage"] if is_bot(bot))
                && url.query_pairs().any(|(name, chat)| name == "chat_id" && !chat.is_empty())
        }
    }
}

/// The part of an answer of Discord (discord.com/developers/docs/topics/rate-limits) or Telegram
/// (core.telegram.org/bots/api#responseparameters) that says when to come again, in seconds.
#[derive(Deserialize, Default)]
struct Answer {
    retry_after: Option<f64>,
    #[serde(default)]
    parameters: Parameters,
}

#[derive(Deserialize, Default)]
struct Parameters {
    retry_after: Option<f64>,
}

/// Returns the wait that the body of an answer asks for.
pub fn asked_wait(body: &[u8]) -> Option<Duration> {
    let Answer { retry_after, parameters } = serde_json::from_slice(body).ok()?;
    let seconds = retry_after.or(parameters.retry_after)?;
    // Of more than can be counted, any large number will do.
    Some(Duration::try_from_secs_f64(seconds).unwrap_or(match seconds > 0.0 {
        true => Duration::MAX,
        false => Duration::ZERO,
    }))
}

/// Returns the beginning of an answer without what it has of a secret endpoint.
pub fn without_secrets(answer: &str, endpoint: &Endpoint) -> String {
    let mut shown = answer.to_owned();
    for word in endpoint.words() {
        shown = shown.replace(word, "…");
        // The beginning of the answer may end in the middle of the word.
        let begins =
            |length: &usize| word.is_char_boundary(*length) && shown.ends_with(&word[..*length]);
        if let Some(length) = (5..word.len()).rev().find(begins) {
            shown.truncate(shown.len() - length);
            shown.push('…');
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_is_where_each_service_says_it() {
        for (body, milliseconds) in [
            (
                r#"{"message": "You are being rate limited.", "retry_after": 0.65, "global": false}"#,
                Some(650),
            ),
            (
                r#"{"ok":false,"error_code":429,"description":"Too Many Requests: retry after 35","parameters":{"retry_after":35}}"#,
                Some(35_000),
            ),
            (r#"{"ok":false}"#, None),
            (r#"{"retry_after": -1}"#, Some(0)),
            (r#"{"retry_after": "soon"}"#, None),
            ("rate_limited", None),
        ] {
            let wait = asked_wait(body.as_bytes()).map(|wait| wait.as_millis());
            assert_eq!(wait, milliseconds, "{body}");
        }
        assert_eq!(asked_wait(br#"{"retry_after": 1e300}"#), Some(Duration::MAX));
    }

    #[test]
    fn an_answer_shows_nothing_of_the_endpoint() {
        let endpoint = "https://api.example/bot77:SecretToken/sendMessage?chat_id=-100200300";
        let endpoint: Endpoint = endpoint.parse().unwrap();
        let shown = without_secrets("no bot77:SecretToken for -100200300 here", &endpoint);
        assert_eq!(shown, "no …:… for … here");
        assert_eq!(without_secrets("cut at SecretTok", &endpoint), "cut at …");
        assert_eq!(without_secrets("chat not found", &endpoint), "chat not found");
    }
}
