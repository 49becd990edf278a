//! Reads DuckDB's names of types, as an export's manifest has them.

use crate::types::Type;

/// Types without parts; one that another begins with comes after it.
const PLAIN: [(&str, Type); 6] = [
    ("BOOLEAN", Type::Boolean),
    ("BIGINT", Type::Long),
    ("TIMESTAMP WITH TIME ZONE", Type::Timestamptz),
    ("TIMESTAMP", Type::Timestamp),
    ("VARCHAR", Type::String),
    ("BLOB", Type::Binary),
];
/// Depth of lists, maps and structs in each other that no column has.
const DEEPEST: usize = 100;

impl Type {
    /// Returns the type of which [`Self::sql`] returns this text; `None` if there is none.
    pub fn of_sql(text: &str) -> Option<Self> {
        let mut rest = Rest(text);
        let found = rest.kind(0)?;
        rest.0.is_empty().then_some(found)
    }
}

/// What is not read yet.
struct Rest<'a>(&'a str);

impl<'a> Rest<'a> {
    fn take(&mut self, begin: &str) -> Option<()> {
        self.0 = self.0.strip_prefix(begin)?;
        Some(())
    }

    fn up_to(&mut self, end: &str) -> Option<&'a str> {
        let (before, rest) = self.0.split_once(end)?;
        self.0 = rest;
        Some(before)
    }

    fn kind(&mut self, depth: usize) -> Option<Type> {
        if depth > DEEPEST {
            return None;
        }
        let mut kind = self.element(depth)?;
        while self.take("[]").is_some() {
            kind = Type::list(kind);
        }
        Some(kind)
    }

    fn element(&mut self, depth: usize) -> Option<Type> {
        for (name, kind) in PLAIN {
            if self.take(name).is_some() {
                return Some(kind);
            }
        }
        if self.take("DECIMAL(").is_some() {
            return Some(Type::Decimal(self.up_to(", 0)")?.parse().ok()?));
        }
        if self.take("MAP(").is_some() {
            let keys = self.kind(depth + 1)?;
            self.take(", ")?;
            let values = self.kind(depth + 1)?;
            self.take(")")?;
            return Some(Type::map(keys, values));
        }
        self.take("STRUCT(")?;
        let mut fields = Vec::new();
        while self.take(")").is_none() {
            if !fields.is_empty() {
                self.take(", ")?;
            }
            let name = self.name()?;
            self.take(" ")?;
            fields.push((name, self.kind(depth + 1)?));
        }
        Some(Type::Struct(fields))
    }

    /// Reads a name in quotes.
    fn name(&mut self) -> Option<String> {
        self.take("\"")?;
        let mut name = String::new();
        loop {
            name.push_str(self.up_to("\"")?);
            if self.take("\"").is_none() {
                return Some(name);
            }
            name.push('"');
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;

    fn random(random_of: &mut ChaCha8Rng, depth: usize) -> Type {
        let below = if depth == 0 { 7 } else { 10 };
        match random_of.random_range(0..below) {
            at @ 0..6 => PLAIN[at].1.clone(),
            6 => Type::Decimal(random_of.random_range(1..=38)),
            7 => Type::list(random(random_of, depth - 1)),
            8 => Type::map(random(random_of, depth - 1), random(random_of, depth - 1)),
            _ => {
                let names = ["a", "it's", "a \"b\"", "", ") , ", "ä"];
                let count = random_of.random_range(0..4);
                let field = |_| {
                    let name = names[random_of.random_range(0..names.len())].to_owned();
                    (name, random(random_of, depth - 1))
                };
                Type::Struct((0..count).map(field).collect())
            }
        }
    }

    #[test]
    fn every_type_is_read_as_it_was_written() {
        let mut random_of = ChaCha8Rng::seed_from_u64(3);
        for _ in 0..2000 {
            let kind = random(&mut random_of, 4);
            assert_eq!(Type::of_sql(&kind.sql()), Some(kind));
        }
    }

    #[test]
    fn other_texts_are_no_types() {
        for text in
            ["", "HUGEINT", "BIGINT ", "MAP(BIGINT)", "STRUCT(\"a\"", "DECIMAL(x, 0)", "BLOB[]]"]
        {
            assert_eq!(Type::of_sql(text), None, "{text}");
        }
        assert_eq!(Type::of_sql(&"MAP(".repeat(100_000)), None);
    }
}
