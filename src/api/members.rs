//! The members of a request's body by name, of a JSON object as of a form. Knows how values are spelled
//! there, and names the one that is missing or malformed; leaves to each area what they mean.

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

use super::route::Call;
use super::{ApiError, LARGEST_FORM};
use crate::domain::{excerpt, shortened};

/// Characters of what is said of a form that cannot be read.
const LONGEST_REASON: usize = 200;

/// The members that a route knows; others are passed over.
#[derive(Debug)]
pub(super) struct Members<'a>(Vec<(&'static str, Member<'a>)>);

/// A value as it was sent.
#[derive(Debug)]
enum Member<'a> {
    /// JSON.
    Json(&'a str),
    /// The content of a form's part.
    Part(Bytes),
}

impl<'a> Members<'a> {
    /// The members of a JSON object; one that is null is not given.
    pub(super) fn of_json(call: &Call<'a>, known: &[&'static str]) -> Result<Self, ApiError> {
        let mut json = serde_json::Deserializer::from_slice(call.body);
        let read = Known(known).deserialize(&mut json);
        let read = read.and_then(|members| json.end().map(|()| members));
        let members = read.map_err(|error| match error.classify() {
            Category::Data => {
                let known = known.join("', '");
                ApiError::body(format!("it is not a JSON object: send one, with '{known}'"))
            }
            _ => ApiError::body(format!("it is not JSON: {error}")),
        })?;
        Self(members).each_once(&[])
    }

    /// The members of a JSON object, or the parts of a form, of which these may be repeated.
    pub(super) fn of_any(
        call: &Call<'a>,
        known: &[&'static str],
        repeated: &[&str],
    ) -> Result<Self, ApiError> {
        let boundary = call.content_type.and_then(|it| multer::parse_boundary(it).ok());
        match boundary {
            Some(boundary) => Self(parts(call.body, boundary, known)?).each_once(repeated),
            None => Self::of_json(call, known),
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

    /// What one of the other functions finds, which must be given.
    pub(super) fn required<T>(
        &self,
        name: &'static str,
        find: impl Fn(&Self, &'static str) -> Result<Option<T>, ApiError>,
    ) -> Result<T, ApiError> {
        find(self, name)?
            .ok_or_else(|| ApiError::body(format!("'{name}' is missing: add it to the body")))
    }

    /// A text.
    pub(super) fn text(&self, name: &'static str) -> Result<Option<String>, ApiError> {
        self.read(name, "a text", |member| match member {
            Member::Json(json) => serde_json::from_str(json).ok(),
            Member::Part(_) => Some(member.spelled()?.to_owned()),
        })
    }

    /// A text that is nobody's business: the sentence about another value says nothing of it.
    pub(super) fn secret(&self, name: &'static str) -> Result<Option<String>, ApiError> {
        match self.text(name) {
            Err(_) => Err(ApiError::body(format!("'{name}' is not a text: give one in quotes"))),
            read => read,
        }
    }

    /// Texts: a list of them, one with commas, or several parts of a form.
    pub(super) fn texts(&self, name: &'static str) -> Result<Option<Vec<String>>, ApiError> {
        let mut all: Option<Vec<String>> = None;
        for (_, member) in self.0.iter().filter(|(given, _)| *given == name) {
            let texts = match member {
                Member::Json(json) => serde_json::from_str(json).ok().or_else(|| {
                    let text: String = serde_json::from_str(json).ok()?;
                    Some(vec![text])
                }),
                Member::Part(_) => member.spelled().map(|text| vec![text.to_owned()]),
            };
            let texts = texts.ok_or_else(|| {
                member.wrong(name, "a list of texts, or one text with commas between them")
            })?;
            let texts = texts.iter().flat_map(|text| text.split(',')).map(str::trim);
            let texts = texts.filter(|text| !text.is_empty()).map(str::to_owned);
            all.get_or_insert_default().extend(texts);
        }
        Ok(all)
    }

    /// True or false.
    pub(super) fn flag(&self, name: &'static str) -> Result<Option<bool>, ApiError> {
        self.read(name, "true or false", |member| member.spelled()?.parse().ok())
    }

    /// A whole number, which saturates at `u32::MAX`.
    pub(super) fn whole(&self, name: &'static str) -> Result<Option<u32>, ApiError> {
        self.read(name, "a whole number in decimal digits", |member| {
            let digits = member.spelled()?;
            let whole = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
            // Only too large a number fails to parse here.
            whole.then(|| digits.parse().unwrap_or(u32::MAX))
        })
    }

    /// One of a few words.
    pub(super) fn choice<T: Copy>(
        &self,
        name: &'static str,
        words: &[(&str, T)],
    ) -> Result<Option<T>, ApiError> {
        let names: Vec<_> = words.iter().map(|(word, _)| format!("\"{word}\"")).collect();
        self.read(name, &names.join(" or "), |member| {
            let text = match member {
                Member::Json(json) => serde_json::from_str(json).ok()?,
                Member::Part(_) => member.spelled()?.to_owned(),
            };
            words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value)
        })
    }

    /// A list of any values.
    pub(super) fn values(
        &self,
        name: &'static str,
    ) -> Result<Option<Vec<serde_json::Value>>, ApiError> {
        self.read(name, "a list of values", |member| serde_json::from_str(member.spelled()?).ok())
    }

    /// Bytes: base64, an array of numbers, or the content of a part.
    ///
    /// # Errors
    /// [`ApiError::BodyTooLarge`] when base64 is longer than a module can be.
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
        wanted: &str,
        read: impl FnOnce(&Member<'a>) -> Option<T>,
    ) -> Result<Option<T>, ApiError> {
        let Some((_, member)) = self.0.iter().find(|(given, _)| *given == name) else {
            return Ok(None);
        };
        read(member).map(Some).ok_or_else(|| member.wrong(name, wanted))
    }
}

impl Member<'_> {
    /// The characters that were sent; nothing when a part holds something else.
    fn spelled(&self) -> Option<&str> {
        match self {
            Self::Json(json) => Some(json),
            Self::Part(bytes) => std::str::from_utf8(bytes).ok(),
        }
    }

    fn wrong(&self, name: &str, wanted: &str) -> ApiError {
        let value = match self {
            // JSON may be laid out in lines.
            Self::Json(json) => excerpt(json).split_whitespace().collect::<Vec<_>>().join(" "),
            Self::Part(bytes) => format!("{:?}", excerpt(&String::from_utf8_lossy(bytes))),
        };
        ApiError::body(format!("'{name}' is {value}: give {wanted}"))
    }
}

/// Reads the members of these names out of a JSON object.
struct Known<'k>(&'k [&'static str]);

impl<'de> DeserializeSeed<'de> for Known<'_> {
    type Value = Vec<(&'static str, Member<'de>)>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Known<'_> {
    type Value = Vec<(&'static str, Member<'de>)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::new();
        while let Some(name) = map.next_key::<String>()? {
            let Some(name) = self.0.iter().find(|known| **known == name) else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            let json = map.next_value::<&'de RawValue>()?.get();
            if json != "null" {
                members.push((*name, Member::Json(json)));
            }
        }
        Ok(members)
    }
}

/// The parts of these names of a form.
fn parts(
    body: &Bytes,
    boundary: String,
    known: &[&'static str],
) -> Result<Vec<(&'static str, Member<'static>)>, ApiError> {
    let whole = stream::iter([Ok::<_, std::io::Error>(body.clone())]);
    let mut form = Multipart::new(whole, boundary);
    // It may quote the name of a part, of any length.
    let broken = |error: multer::Error| {
        let reason = shortened(&error.to_string(), LONGEST_REASON);
        ApiError::body(format!("the form cannot be read: {reason}"))
    };
    // All of the body is there: nothing is waited for.
    Handle::current().block_on(async {
        let mut parts = Vec::new();
        while let Some(part) = form.next_field().await.map_err(broken)? {
            let name = part.name().unwrap_or_default();
            let Some(name) = known.iter().copied().find(|known| *known == name) else { continue };
            parts.push((name, Member::Part(part.bytes().await.map_err(broken)?)));
        }
        Ok(parts)
    })
}
