//! Members of a request body by name, of a JSON object or of a multipart form. Parses values, and
//! names the member that is missing or malformed in errors. Does not depend on what the members
//! mean.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_util::stream;
use multer::Multipart;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::error::Category;
use serde_json::value::RawValue;
use tokio::runtime::Handle;

use super::ApiError;
use super::call::Body;
use super::params::find_name;
use super::request_body::LARGEST_FORM;
use orrery_ledger::domain::{excerpt, shortened};
use orrery_settings::UnknownParameters;

/// Maximum number of characters of a form parser's error that are shown to the client.
const LONGEST_REASON: usize = 200;

/// The members of a body.
#[derive(Debug)]
pub(super) struct Members<'a>(Vec<(&'static str, Member<'a>)>);

/// A value as it was sent.
#[derive(Debug)]
enum Member<'a> {
    /// Raw JSON text.
    Json(&'a str),
    /// Content of a form's part.
    Part(Bytes),
}

impl<'a> Members<'a> {
    /// Parses the members of a JSON object; a null member counts as absent.
    pub(super) fn of_json(body: Body<'a>, known: &[&'static str]) -> Result<Self, ApiError> {
        let mut json = serde_json::Deserializer::from_slice(body.bytes);
        let mut names = Names { known, unknown: body.unknown, refused: None };
        let read = MemberSeed(&mut names).deserialize(&mut json);
        let read = read.and_then(|members| json.end().map(|()| members));
        let members = read.map_err(|error| match error.classify() {
            Category::Data => {
                let known = known.join("', '");
                ApiError::body(format!("it is not a JSON object: send one, with '{known}'"))
            }
            _ => ApiError::body(format!("it is not JSON: {error}")),
        })?;
        names.refused.map_or(Ok(()), Err)?;
        Self(members).each_once(&[])
    }

    /// Checks the body of a route that uses none: what is not a JSON object is ignored, and so is an
    /// empty one.
    pub(super) fn none(body: Body<'a>) -> Result<(), ApiError> {
        match Self::of_json(body, &[]) {
            Err(error @ ApiError::UnknownParameter { .. }) => Err(error),
            _ => Ok(()),
        }
    }

    /// Parses the members of a JSON object or the parts of a form, depending on the content type.
    /// Parts in `repeated` may occur more than once.
    pub(super) fn of_any(
        body: Body<'a>,
        known: &[&'static str],
        repeated: &[&str],
    ) -> Result<Self, ApiError> {
        let boundary = body.content_type.and_then(|it| multer::parse_boundary(it).ok());
        match boundary {
            Some(boundary) => Self(parts(body, boundary, known)?).each_once(repeated),
            None => Self::of_json(body, known),
        }
    }

    fn each_once(self, repeated: &[&str]) -> Result<Self, ApiError> {
        let names = || self.0.iter().map(|(name, _)| *name);
        let twice = names().find(|&name| {
            !repeated.contains(&name) && names().filter(|other| *other == name).nth(1).is_some()
        });
        match twice {
            Some(name) => {
                Err(ApiError::body(format!("'{name}' is given more than once: give it once")))
            }
            None => Ok(self),
        }
    }

    /// Returns the value that `find`, another method of this type, parses; fails when it is absent.
    pub(super) fn required<T>(
        &self,
        name: &'static str,
        find: impl Fn(&Self, &'static str) -> Result<Option<T>, ApiError>,
    ) -> Result<T, ApiError> {
        find(self, name)?
            .ok_or_else(|| ApiError::body(format!("'{name}' is missing: add it to the body")))
    }

    /// Whether a member is given.
    pub(super) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(given, _)| *given == name)
    }

    /// Parses a string.
    pub(super) fn text(&self, name: &'static str) -> Result<Option<String>, ApiError> {
        self.read(name, "a text", |member| match member {
            Member::Json(json) => serde_json::from_str(json).ok(),
            Member::Part(_) => Some(member.raw_text()?.to_owned()),
        })
    }

    /// Parses a secret string. Errors do not show the value.
    pub(super) fn secret(&self, name: &'static str) -> Result<Option<String>, ApiError> {
        match self.text(name) {
            Err(_) => Err(ApiError::body(format!("'{name}' is not a text: give one in quotes"))),
            read => read,
        }
    }

    /// Parses strings: a JSON list, one comma-separated string, or several parts of a form.
    pub(super) fn texts(&self, name: &'static str) -> Result<Option<Vec<String>>, ApiError> {
        let mut all: Option<Vec<String>> = None;
        for (_, member) in self.0.iter().filter(|(given, _)| *given == name) {
            let texts = match member {
                Member::Json(json) => serde_json::from_str(json).ok().or_else(|| {
                    let text: String = serde_json::from_str(json).ok()?;
                    Some(vec![text])
                }),
                Member::Part(_) => member.raw_text().map(|text| vec![text.to_owned()]),
            };
            let texts = texts.ok_or_else(|| {
                member.invalid(name, "a list of texts, or one text with commas between them")
            })?;
            let texts = texts.iter().flat_map(|text| text.split(',')).map(str::trim);
            let texts = texts.filter(|text| !text.is_empty()).map(str::to_owned);
            all.get_or_insert_default().extend(texts);
        }
        Ok(all)
    }

    /// Parses a JSON list of strings.
    pub(super) fn list(&self, name: &'static str) -> Result<Option<Vec<String>>, ApiError> {
        self.read(name, "a list of texts", |member| serde_json::from_str(member.raw_text()?).ok())
    }

    /// Parses true or false.
    pub(super) fn flag(&self, name: &'static str) -> Result<Option<bool>, ApiError> {
        self.read(name, "true or false", |member| member.raw_text()?.parse().ok())
    }

    /// Parses a whole number, which saturates at `u32::MAX`.
    pub(super) fn whole(&self, name: &'static str) -> Result<Option<u32>, ApiError> {
        self.read(name, "a whole number in decimal digits", |member| {
            let digits = member.raw_text()?;
            let whole = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
            // Only a number that is too large fails to parse here.
            whole.then(|| digits.parse().unwrap_or(u32::MAX))
        })
    }

    /// Parses one of the given words.
    pub(super) fn choice<T: Copy>(
        &self,
        name: &'static str,
        words: &[(&str, T)],
    ) -> Result<Option<T>, ApiError> {
        let names: Vec<_> = words.iter().map(|(word, _)| format!("\"{word}\"")).collect();
        self.read(name, &names.join(" or "), |member| {
            let text = match member {
                Member::Json(json) => serde_json::from_str(json).ok()?,
                Member::Part(_) => member.raw_text()?.to_owned(),
            };
            words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value)
        })
    }

    /// Parses a list of arbitrary JSON values.
    pub(super) fn values(
        &self,
        name: &'static str,
    ) -> Result<Option<Vec<serde_json::Value>>, ApiError> {
        self.read(name, "a list of values", |member| serde_json::from_str(member.raw_text()?).ok())
    }

    /// Returns an interface of a contract: the text of a JSON array, or the bytes of a module in base64.
    ///
    /// # Errors
    /// [`ApiError::BodyTooLarge`] when it is longer than [`LARGEST_FORM`].
    pub(super) fn interface(&self, name: &'static str) -> Result<Option<Vec<u8>>, ApiError> {
        let given = self.0.iter().find(|(given, _)| *given == name).map(|(_, member)| member);
        if let Some(Member::Json(json)) = given
            && json.len() > LARGEST_FORM
        {
            return Err(ApiError::BodyTooLarge(LARGEST_FORM));
        }
        let expected = "an array of entries, or a module in base64";
        self.read(name, expected, |member| match member {
            Member::Json(json) if json.starts_with('[') => Some(json.as_bytes().to_vec()),
            Member::Json(json) => {
                let text: String = serde_json::from_str(json).ok()?;
                STANDARD.decode(text).ok()
            }
            Member::Part(bytes) => Some(bytes.to_vec()),
        })
    }

    /// Parses bytes: base64, an array of numbers, or the content of a part.
    ///
    /// # Errors
    /// [`ApiError::BodyTooLarge`] when a base64 string is longer than [`LARGEST_FORM`].
    pub(super) fn bytes(&self, name: &'static str) -> Result<Option<Vec<u8>>, ApiError> {
        let spelled = self.0.iter().find(|(given, _)| *given == name).map(|(_, member)| member);
        if let Some(Member::Json(json)) = spelled
            && json.starts_with('"')
            && json.len() > LARGEST_FORM
        {
            return Err(ApiError::BodyTooLarge(LARGEST_FORM));
        }
        self.read(name, "base64, or an array of numbers from 0 to 255", |member| match member {
            Member::Json(json) => serde_json::from_str(json).ok().or_else(|| {
                let text: String = serde_json::from_str(json).ok()?;
                STANDARD.decode(text).ok()
            }),
            Member::Part(bytes) => Some(bytes.to_vec()),
        })
    }

    fn read<T>(
        &self,
        name: &'static str,
        expected: &str,
        read: impl FnOnce(&Member<'a>) -> Option<T>,
    ) -> Result<Option<T>, ApiError> {
        let Some((_, member)) = self.0.iter().find(|(given, _)| *given == name) else {
            return Ok(None);
        };
        read(member).map(Some).ok_or_else(|| member.invalid(name, expected))
    }
}

impl Member<'_> {
    /// Returns the raw text of the value; `None` when a part is not UTF-8.
    fn raw_text(&self) -> Option<&str> {
        match self {
            Self::Json(json) => Some(json),
            Self::Part(bytes) => std::str::from_utf8(bytes).ok(),
        }
    }

    fn invalid(&self, name: &str, expected: &str) -> ApiError {
        let value = match self {
            // Formatted JSON may span several lines; the error shows it on one.
            Self::Json(json) => excerpt(json).split_whitespace().collect::<Vec<_>>().join(" "),
            Self::Part(bytes) => format!("{:?}", excerpt(&String::from_utf8_lossy(bytes))),
        };
        ApiError::body(format!("'{name}' is {value}: give {expected}"))
    }
}

/// Which names of members are known.
struct Names<'k> {
    known: &'k [&'static str],
    unknown: UnknownParameters,
    /// The error for the first name that is refused.
    refused: Option<ApiError>,
}

impl Names<'_> {
    /// Returns the known name; `None` for one that is ignored or refused.
    fn find(&mut self, name: &str) -> Option<&'static str> {
        find_name(name, self.known, self.unknown).unwrap_or_else(|error| {
            self.refused.get_or_insert(error);
            None
        })
    }
}

/// Deserialises the members with these names from a JSON object.
struct MemberSeed<'n, 'k>(&'n mut Names<'k>);

impl<'de> DeserializeSeed<'de> for MemberSeed<'_, '_> {
    type Value = Vec<(&'static str, Member<'de>)>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for MemberSeed<'_, '_> {
    type Value = Vec<(&'static str, Member<'de>)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::new();
        while let Some(name) = map.next_key::<String>()? {
            let Some(name) = self.0.find(&name) else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            let json = map.next_value::<&'de RawValue>()?.get();
            if json != "null" {
                members.push((name, Member::Json(json)));
            }
        }
        Ok(members)
    }
}

/// Parses the parts with these names from a form.
fn parts(
    body: Body<'_>,
    boundary: String,
    known: &[&'static str],
) -> Result<Vec<(&'static str, Member<'static>)>, ApiError> {
    let whole = stream::iter([Ok::<_, std::io::Error>(body.bytes.clone())]);
    let mut form = Multipart::new(whole, boundary);
    // The error may quote a part's name, which can have any length.
    let broken = |error: multer::Error| {
        let reason = shortened(&error.to_string(), LONGEST_REASON);
        ApiError::body(format!("the form cannot be read: {reason}"))
    };
    // The whole body is in memory, so this never waits.
    Handle::current().block_on(async {
        let mut parts = Vec::new();
        while let Some(part) = form.next_field().await.map_err(broken)? {
            let name = part.name().unwrap_or_default();
            let Some(name) = find_name(name, known, body.unknown)? else { continue };
            parts.push((name, Member::Part(part.bytes().await.map_err(broken)?)));
        }
        Ok(parts)
    })
}
