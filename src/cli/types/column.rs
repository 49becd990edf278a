//! Derives the JSON type of a column's values from the name of its SQL type.

/// JSON type of a value in a response. Any value may also be null, unless it is [`Kind::Present`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// true or false.
    Boolean,
    /// A number.
    Number,
    /// A number up to 2^53 − 1 in magnitude, else its digits as text.
    Integer,
    /// Text.
    Text,
    /// An array.
    List(Box<Kind>),
    /// An object with arbitrary keys and values of one type.
    Map(Box<Kind>),
    /// An object with these members.
    Record(Vec<(String, Kind)>),
    /// A value that is never null.
    Present(Box<Kind>),
    /// Any value; also stands for unknown types.
    Any,
}

impl Kind {
    /// Returns the kind of a type as DuckDB spells it; [`Kind::Any`] for an unknown type.
    pub fn of(name: &str) -> Self {
        let mut rest = name.trim();
        match read(&mut rest) {
            Some(kind) if rest.trim().is_empty() => kind,
            _ => Self::Any,
        }
    }

    /// Returns the kind of the same values where a query asks for 64-bit and wider integers as texts.
    pub fn with_integers_as_text(self) -> Self {
        let inside = |of: Box<Self>| Box::new(of.with_integers_as_text());
        match self {
            Self::Integer => Self::Text,
            Self::List(of) => Self::List(inside(of)),
            Self::Map(of) => Self::Map(inside(of)),
            Self::Present(of) => Self::Present(inside(of)),
            Self::Record(members) => {
                let members = members.into_iter();
                Self::Record(members.map(|(name, of)| (name, of.with_integers_as_text())).collect())
            }
            other => other,
        }
    }
}

fn read(rest: &mut &str) -> Option<Kind> {
    *rest = rest.trim_start();
    let end = rest.find(|letter: char| !(letter.is_ascii_alphanumeric() || "_ ".contains(letter)));
    let (word, after) = rest.split_at(end.unwrap_or(rest.len()));
    *rest = after;
    let mut kind = match word.trim() {
        "STRUCT" => {
            let mut members = Vec::new();
            expect_char(rest, '(')?;
            loop {
                let name = member(rest)?;
                members.push((name, read(rest)?));
                match next(rest)? {
                    ',' => {}
                    ')' => break,
                    _ => return None,
                }
            }
            Kind::Record(members)
        }
        "MAP" => {
            expect_char(rest, '(')?;
            read(rest)?;
            expect_char(rest, ',')?;
            let values = read(rest)?;
            expect_char(rest, ')')?;
            Kind::Map(Box::new(values))
        }
        "DECIMAL" => {
            let (_, after) = rest.split_once(')')?;
            *rest = after;
            Kind::Integer
        }
        "BOOLEAN" => Kind::Boolean,
        "TINYINT" | "UTINYINT" | "SMALLINT" | "USMALLINT" | "INTEGER" | "UINTEGER" => Kind::Number,
        "BIGINT" | "UBIGINT" | "HUGEINT" | "UHUGEINT" => Kind::Integer,
        "VARCHAR" | "BLOB" | "UUID" | "DATE" | "TIME" | "INTERVAL" => Kind::Text,
        word if word.starts_with("TIMESTAMP") => Kind::Text,
        "JSON" => Kind::Any,
        _ => return None,
    };
    // A list of such values; the brackets of a SQL array contain its length.
    while rest.starts_with('[') {
        let (_, after) = rest.split_once(']')?;
        *rest = after;
        kind = Kind::List(Box::new(kind));
    }
    Some(kind)
}

/// Reads the name of a member: bare, or between quotation marks, where a doubled quotation mark
/// stands for one.
fn member(rest: &mut &str) -> Option<String> {
    *rest = rest.trim_start();
    if !rest.starts_with('"') {
        let (name, after) = rest.split_once(' ')?;
        *rest = after;
        return Some(name.to_owned());
    }
    let mut name = String::new();
    let mut letters = rest.char_indices().skip(1).peekable();
    while let Some((at, letter)) = letters.next() {
        if letter != '"' {
            name.push(letter);
        } else if letters.next_if(|(_, next)| *next == '"').is_some() {
            name.push('"');
        } else {
            *rest = &rest[at + 1..];
            return Some(name);
        }
    }
    None
}

fn next(rest: &mut &str) -> Option<char> {
    *rest = rest.trim_start();
    let letter = rest.chars().next()?;
    *rest = &rest[letter.len_utf8()..];
    Some(letter)
}

fn expect_char(rest: &mut &str, expected: char) -> Option<()> {
    (next(rest)? == expected).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_can_be_texts_at_any_depth() {
        let kind = Kind::of("STRUCT(a MAP(VARCHAR, HUGEINT[]), b INTEGER, c BIGINT)");
        let expected = Kind::of("STRUCT(a MAP(VARCHAR, VARCHAR[]), b INTEGER, c VARCHAR)");
        assert_eq!(kind.with_integers_as_text(), expected);
    }

    #[test]
    fn duckdb_type_names_are_parsed() {
        let list = |of| Kind::List(Box::new(of));
        for (name, kind) in [
            ("BOOLEAN", Kind::Boolean),
            ("UINTEGER", Kind::Number),
            ("HUGEINT", Kind::Integer),
            ("DECIMAL(38,0)", Kind::Integer),
            ("TIMESTAMP", Kind::Text),
            ("TIMESTAMP WITH TIME ZONE", Kind::Text),
            ("BLOB[][3]", list(list(Kind::Text))),
            ("MAP(VARCHAR, HUGEINT[])", Kind::Map(Box::new(list(Kind::Integer)))),
            ("STRUCT(a JSON[], b POINT_2D)", Kind::Any),
            ("STRUCT(a JSON[])", Kind::Record(vec![("a".to_owned(), list(Kind::Any))])),
            (
                "STRUCT(a INTEGER, \"b \"\"c, (\" STRUCT(x MAP(UBIGINT, BLOB))[], \"\" BOOLEAN)",
                Kind::Record(vec![
                    ("a".to_owned(), Kind::Number),
                    (
                        "b \"c, (".to_owned(),
                        list(Kind::Record(vec![("x".to_owned(), Kind::Map(Box::new(Kind::Text)))])),
                    ),
                    (String::new(), Kind::Boolean),
                ]),
            ),
            ("JSON", Kind::Any),
            ("", Kind::Any),
            ("STRUCT(", Kind::Any),
            ("INTEGER x", Kind::Any),
        ] {
            assert_eq!(Kind::of(name), kind, "{name}");
        }
    }
}
