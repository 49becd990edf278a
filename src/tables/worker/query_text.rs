//! Examines the text of a query before DuckDB reads it: whether it asks for a plan, and whether
//! parsing it costs too much. Neither decides what is executed: the executed text is built from the
//! very text that was examined, and DuckDB's parser refuses a text whose beginning is misread here.

use std::borrow::Cow;

/// Maximum nesting depth of brackets of any kind: DuckDB's parser takes a minute for a deeper text
/// of 8 KB.
const DEEPEST: usize = 200;
/// Maximum nesting depth of WITH. When parsing ends in an error, each level takes five times as
/// long as the one before: 0.02 s up to this depth.
const MAX_WITH: usize = 4;
/// Maximum number of consecutive operators with only whitespace and comments between them.
const MAX_OPERATORS: usize = 200;

/// ASCII characters that the tokenizer treats as whitespace.
const BLANKS: [char; 6] = [' ', '\t', '\n', '\r', '\x0b', '\x0c'];

/// Options of EXPLAIN in lower case with single spaces, and the prefix that is executed for each. A
/// prefix states its options in full, so that nothing after it can be parsed as options.
const OPTIONS: [(&str, &str); 9] = [
    ("analyze", ANALYZE),
    ("format text", "EXPLAIN (FORMAT text) "),
    ("format json", "EXPLAIN (FORMAT json) "),
    ("format yaml", "EXPLAIN (FORMAT yaml) "),
    ("format html", "EXPLAIN (FORMAT html) "),
    ("format graphviz", "EXPLAIN (FORMAT graphviz) "),
    ("format mermaid", "EXPLAIN (FORMAT mermaid) "),
    ("analyze, format json", "EXPLAIN (ANALYZE, FORMAT json) "),
    ("format json, analyze", "EXPLAIN (ANALYZE, FORMAT json) "),
];
const PLAIN: &str = "EXPLAIN (FORMAT default) ";
const ANALYZE: &str = "EXPLAIN (ANALYZE) ";

/// A query as it is examined and executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Text<'a> {
    /// The query as the client sent it.
    pub query: &'a str,
    /// Constant prefix that asks for the plan; empty for a plain query.
    pub prefix: &'static str,
    /// The part that is examined: the query without the words that ask for a plan.
    pub examined: &'a str,
}

impl<'a> Text<'a> {
    /// Splits off the words at the beginning of a text that ask for a plan: `EXPLAIN`, optionally
    /// with `ANALYZE` or options, in either case, with only whitespace before and between them.
    pub fn of(sql: &'a str) -> Self {
        let Some(rest) = after_word(sql, "explain") else {
            return Self { query: sql, prefix: "", examined: sql };
        };
        if let Some(rest) = after_word(rest, "analyze") {
            return Self { query: sql, prefix: ANALYZE, examined: rest };
        }
        let options = rest.trim_start_matches(BLANKS).strip_prefix('(');
        if let Some((options, after)) = options.and_then(|inside| inside.split_once(')')) {
            let words: Vec<String> = options
                .split(BLANKS)
                .filter(|word| !word.is_empty())
                .map(str::to_lowercase)
                .collect();
            let words = words.join(" ");
            if let Some((_, prefix)) = OPTIONS.iter().find(|(options, _)| *options == words) {
                return Self { query: sql, prefix, examined: after };
            }
        }
        Self { query: sql, prefix: PLAIN, examined: rest }
    }

    /// Returns the text to execute: only the constant prefix and the examined part.
    pub fn executed(self) -> Cow<'a, str> {
        match self.prefix {
            "" => Cow::Borrowed(self.examined),
            prefix => Cow::Owned(format!("{prefix}{}", self.examined)),
        }
    }
}

/// Returns the text after `word`, if the text begins with it.
fn after_word<'a>(sql: &'a str, word: &str) -> Option<&'a str> {
    let (start, rest) = sql.trim_start_matches(BLANKS).split_at_checked(word.len())?;
    let ends = rest.starts_with(BLANKS) || rest.starts_with('(');
    (start.eq_ignore_ascii_case(word) && ends).then_some(rest)
}

/// Returns why parsing a text would cost too much, if it would. Comments and quotes are skipped as
/// the tokenizer does it. From the first position on where the end of a quote is ambiguous,
/// everything that opens counts and nothing that closes. So some harmless texts are refused, but no
/// costly text passes. How DuckDB interprets a text is not decided here.
pub fn costs_too_much(sql: &str) -> Option<&'static str> {
    let mut scan = Scan { with: vec![false], ..Scan::default() };
    let mut rest = sql.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let passed = if scan.uncertain { 0 } else { skipped_length(rest) };
        if passed > 0 {
            scan.uncertain |= is_uncertain(&rest[..passed]);
            if !scan.uncertain {
                scan.word_before = false;
                rest = &rest[passed..];
                continue;
            }
        }
        scan.uncertain |= byte == b'$' && !after.first().is_some_and(u8::is_ascii_digit);
        scan.advance(byte, rest);
        if let Some(reason) = scan.exceeded_limit() {
            return Some(reason);
        }
        rest = after;
    }
    None
}

#[derive(Default)]
struct Scan {
    /// For the text outside of all brackets and for each open bracket, whether it contains a WITH.
    with: Vec<bool>,
    operators: usize,
    word_before: bool,
    uncertain: bool,
    /// Number of WITH after the position where quoting became ambiguous.
    more_with: usize,
}

impl Scan {
    fn advance(&mut self, byte: u8, rest: &[u8]) {
        match byte {
            b'(' | b'[' | b'{' => self.with.push(false),
            b')' | b']' | b'}' if !self.uncertain && self.with.len() > 1 => drop(self.with.pop()),
            b'w' | b'W' if !self.word_before && is_with(rest) => {
                if self.uncertain {
                    self.more_with += 1;
                } else {
                    self.with.iter_mut().last().into_iter().for_each(|with| *with = true);
                }
            }
            _ => {}
        }
        if is_operator(byte) {
            self.operators += 1;
        } else if !byte.is_ascii_whitespace() && byte != b'\x0b' {
            self.operators = 0;
        }
        self.word_before = is_word(byte);
    }

    fn exceeded_limit(&self) -> Option<&'static str> {
        let with = self.more_with + self.with.iter().filter(|with| **with).count();
        if self.with.len() > DEEPEST + 1 {
            Some("The query has more than 200 nested brackets: nest less")
        } else if with > MAX_WITH {
            Some("The query has more than 4 nested WITH: nest less")
        } else if self.operators > MAX_OPERATORS {
            Some("The query has more than 200 operators in a row: write fewer")
        } else {
            None
        }
    }
}

fn is_operator(byte: u8) -> bool {
    b"+-*/%^<>=~!@&|".contains(&byte)
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$' || byte >= 0x80
}

fn is_with(rest: &[u8]) -> bool {
    let word = rest.get(..4).is_some_and(|word| word.eq_ignore_ascii_case(b"with"));
    word && !rest.get(4).is_some_and(|next| is_word(*next))
}

/// Returns the length of the comment or quote at the beginning, or zero.
fn skipped_length(rest: &[u8]) -> usize {
    match rest {
        [b'-', b'-', comment @ ..] => {
            let end = comment.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
            end.map_or(rest.len(), |end| end + 3)
        }
        [b'/', b'*', ..] => comment_length(rest),
        [quote @ (b'\'' | b'"' | b'`'), inside @ ..] => {
            // A doubled quote ends one quote and begins the next, with the same result.
            inside.iter().position(|byte| byte == quote).map_or(rest.len(), |end| end + 2)
        }
        _ => 0,
    }
}

fn comment_length(rest: &[u8]) -> usize {
    let (mut at, mut depth) = (0, 0usize);
    while at < rest.len() {
        match &rest[at..] {
            [b'/', b'*', ..] => {
                depth += 1;
                at += 2;
            }
            [b'*', b'/', ..] => {
                depth -= 1;
                at += 2;
                if depth == 0 {
                    return at;
                }
            }
            _ => at += 1,
        }
    }
    rest.len()
}

/// Whether a quote may continue after its apparent end, because it may be an escape string
/// (`E'...'`).
fn is_uncertain(quoted: &[u8]) -> bool {
    quoted.first() == Some(&b'\'') && quoted.ends_with(b"\\'")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_explain_prefix_is_removed() {
        for (sql, prefix, examined) in [
            ("EXPLAIN SELECT 1", PLAIN, " SELECT 1"),
            ("\x0b\r\n explain\tselect 1", PLAIN, "\tselect 1"),
            ("explain analyze select 1", ANALYZE, " select 1"),
            ("EXPLAIN(FORMAT  json)SELECT 1", "EXPLAIN (FORMAT json) ", "SELECT 1"),
            (
                "EXPLAIN ( analyze ,format json) SELECT 1",
                PLAIN,
                " ( analyze ,format json) SELECT 1",
            ),
            (
                "EXPLAIN (ANALYZE, FORMAT json) SELECT 1",
                "EXPLAIN (ANALYZE, FORMAT json) ",
                " SELECT 1",
            ),
            ("EXPLAIN (SELECT 1)", PLAIN, " (SELECT 1)"),
            ("EXPLAIN/**/SELECT 1", "", "EXPLAIN/**/SELECT 1"),
            ("EXPLAIN /**/ SELECT 1", PLAIN, " /**/ SELECT 1"),
            ("EXPLAIN -- a\n ANALYZE SELECT 1", PLAIN, " -- a\n ANALYZE SELECT 1"),
            ("/* a */ EXPLAIN SELECT 1", "", "/* a */ EXPLAIN SELECT 1"),
            ("\u{a0}EXPLAIN SELECT 1", "", "\u{a0}EXPLAIN SELECT 1"),
            ("EXPLAIN\u{a0}SELECT 1", "", "EXPLAIN\u{a0}SELECT 1"),
            ("\u{feff}EXPLAIN SELECT 1", "", "\u{feff}EXPLAIN SELECT 1"),
            ("EXPLAINS SELECT 1", "", "EXPLAINS SELECT 1"),
            ("SELECT explain", "", "SELECT explain"),
            ("explain", "", "explain"),
            ("", "", ""),
            ("ex", "", "ex"),
            ("é", "", "é"),
        ] {
            let query = sql;
            assert_eq!(Text::of(sql), Text { query, prefix, examined }, "{sql}");
            assert_eq!(Text::of(sql).executed(), format!("{prefix}{examined}"));
        }
    }

    #[test]
    fn nesting_depth_ignores_quotes_and_comments() {
        let brackets = Some("The query has more than 200 nested brackets: nest less");
        let with = Some("The query has more than 4 nested WITH: nest less");
        let operators = Some("The query has more than 200 operators in a row: write fewer");
        for (sql, reason) in [
            ("(".repeat(200), None),
            ("([{".repeat(67), brackets),
            ("(1),".repeat(5_000), None),
            (")".repeat(300) + &"(".repeat(200), None),
            ("(/*)*/".repeat(201), brackets),
            ("(/*/*)*/)*/".repeat(201), brackets),
            ("(--)\r".repeat(201), brackets),
            ("(')'".repeat(201), brackets),
            ("(\")\"`)`".repeat(201), brackets),
            (format!("'{}'", "(".repeat(300)), None),
            (
                format!(
                    "/*{}*/ --{}\n'it''s {}'",
                    "(".repeat(300),
                    "(".repeat(300),
                    "[".repeat(300)
                ),
                None,
            ),
            // From here on, the end of a quote is ambiguous.
            ("(E'\\')'')'".repeat(201), brackets),
            ("($a$)$a$".repeat(201), brackets),
            (format!("E'\\' {}", "()".repeat(201)), brackets),
            ("($1)".repeat(5_000), None),
            ("WITH a AS (".repeat(4), None),
            ("WITH a AS (".repeat(5), with),
            ("wItH/**/a AS (/*)*/".repeat(5), with),
            ("(WITH a AS (SELECT 1) SELECT withdrawn)".repeat(500), None),
            ("- ".repeat(200), None),
            ("- /**/+".repeat(101), operators),
            (format!("--{}\n", "-".repeat(500)), None),
            ("1 + ".repeat(5_000), None),
            ("é(".repeat(201), brackets),
        ] {
            assert_eq!(costs_too_much(&sql), reason, "{}", &sql[..sql.len().min(40)]);
        }
    }
}
