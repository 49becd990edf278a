//! Messages for people: what a subscription says about an event or another trigger ([`template`], filled
//! in with the values of a body, [`body`]), in the form of the service that takes it ([`format`]).
//!
//! Values come from contracts, whose authors may want to harm those who read them: nothing of a value is
//! ever markup, a mention, a link, a command or an emoji. What the author of the template writes is plain
//! text, too. Does no I/O.

pub mod body;
mod discord;
mod fit;
pub mod format;
mod piece;
mod plain;
mod slack;
mod telegram;
pub mod template;
mod units;

use bytes::Bytes;

use body::Body;
use format::Format;
pub use piece::Piece;
use template::{Filter, Part, Template, TemplateError, Token};

use orrery_conditions::{Fields, Path};
use orrery_ledger::domain::ContractId;

/// Longest value that is shown before a service's limit is applied, in characters.
const LONGEST_VALUE: usize = 8192;
/// Characters at each end that `short` leaves, and the length up to which it leaves all.
const ENDS: usize = 4;
const SHORT: usize = 2 * ENDS + 1;

/// What a subscription says, and in which form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    format: Format,
    template: Template,
}

/// What a message needs beside the body.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    /// Number of the subscription.
    pub subscription: u32,
    /// Decimals of the tokens that the template names ([`Message::tokens`]), where they are known.
    pub decimals: &'a [Option<u32>],
    /// First part of the addresses of this service's pages, if others reach them.
    pub public_url: Option<&'a str>,
}

impl Message {
    /// A message by a template.
    ///
    /// # Errors
    /// [`TemplateError`]
    pub fn parse(format: Format, template: &str) -> Result<Self, TemplateError> {
        Ok(Self { format, template: Template::parse(template)? })
    }

    /// Returns the form.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Returns the template.
    pub fn template(&self) -> &Template {
        &self.template
    }

    /// Returns the tokens of the numbers that the template shows in units, in their order; `None` where a
    /// number stays as it is.
    pub fn tokens(&self, body: &Body) -> Vec<Option<ContractId>> {
        let token = |token: &Token| match token {
            Token::Emitter => body.token(),
            Token::Named(path) => text_of(path, body).parse().ok(),
            Token::Contract(contract) => Some(*contract),
        };
        self.template.tokens().map(token).collect()
    }

    /// Writes the message about the body of a delivery, as it is sent.
    pub fn write(&self, body: &[u8], facts: &Facts<'_>) -> Bytes {
        let pieces = match Body::parse(body) {
            Ok(body) if body.is_test() => {
                let number = facts.subscription;
                vec![Piece::Words(format!("Test of Orrery: subscription {number}"))]
            }
            Ok(body) => self.filled_in(&body, facts),
            Err(error) => {
                let number = facts.subscription;
                tracing::error!(subscription = number, "the body of a message is damaged: {error}");
                vec![Piece::Words("Orrery cannot read what it has to tell".to_owned())]
            }
        };
        written(self.format, pieces)
    }

    fn filled_in(&self, body: &Body, facts: &Facts<'_>) -> Vec<Piece> {
        let mut decimals = facts.decimals.iter().copied();
        let part = |part: &Part| match part {
            Part::Words(words) => Piece::Words(words.clone()),
            Part::Link => match facts.public_url {
                Some(url) => Piece::Link(format!("{}/{}", url.trim_end_matches('/'), body.page())),
                None => Piece::Words(String::new()),
            },
            Part::Name(path, filter) => {
                let text = text_of(path, body);
                Piece::value(
                    &match filter {
                        Filter::None => text,
                        Filter::Short => short(text),
                        Filter::Units(_) => match decimals.next().flatten() {
                            Some(decimals) => units::in_units(&text, decimals),
                            None => text,
                        },
                    },
                    LONGEST_VALUE,
                )
            }
        };
        self.template.parts().iter().map(part).collect()
    }
}

/// Writes the parts of a message as a service takes them.
pub fn written(format: Format, pieces: Vec<Piece>) -> Bytes {
    match format {
        Format::Service | Format::Text => plain::text(pieces).into(),
        Format::Slack => slack::body(pieces).to_string().into(),
        Format::Discord => discord::body(pieces).to_string().into(),
        Format::Telegram => telegram::body(pieces).to_string().into(),
    }
}

/// Returns the value of a name as text; `null` where there is none.
fn text_of(path: &Path, fields: &impl Fields) -> String {
    path.of(fields).map_or_else(|| "null".to_owned(), |value| value.to_string())
}

/// Returns the ends of a long text.
fn short(text: String) -> String {
    let letters: Vec<char> = text.chars().collect();
    if letters.len() <= SHORT {
        return text;
    }
    let (first, last) = (&letters[..ENDS], &letters[letters.len() - ENDS..]);
    first.iter().chain(&['…']).chain(last).collect()
}
