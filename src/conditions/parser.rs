//! Reads a condition. Each rule of the grammar is a function; its depth and the number of its parts are
//! bounded, so reading one takes little stack and time.

use super::integer::Integer;
use super::lexer::{Lexer, Problem, Token};
use super::name::KEYWORDS;
use super::node::{Comparison, Node, Part, Term};
use super::path::Path;

/// Largest number of bytes, of parts, and of levels of a condition.
pub(crate) const MOST_BYTES: usize = 4096;
const MOST_NODES: usize = 200;
const DEEPEST: usize = 32;

/// What stands in the place of an operator, with what is meant.
const OPERATORS_MEANT: [(&str, &str); 7] = [
    ("between", "write 'x >= 1 and x <= 2' for 'x between 1 and 2'"),
    ("ilike", "write 'lower(x) like'"),
    ("similar", "write 'like', with '%' and '_'"),
    ("glob", "write 'like', with '%' and '_'"),
    ("div", "there is no division: multiply the other side instead"),
    ("mod", "there is no remainder"),
    ("isnull", "write 'is null'"),
];

const AN_OPERATOR: &str = "an operator, 'and', 'or' or the end";

pub(crate) struct Parser<'t> {
    lexer: Lexer<'t>,
    paths: Vec<Path>,
    nodes: usize,
    depth: usize,
}

impl<'t> Parser<'t> {
    /// Reads a whole text. Returns the condition and the paths in it.
    pub fn parse(text: &'t str) -> Result<(Node, Vec<Path>), Problem> {
        if text.len() > MOST_BYTES {
            let what = format!(
                "a condition has {MOST_BYTES} bytes at the most, and this one has {}",
                text.len()
            );
            return Err(Problem { position: 1, what });
        }
        let mut parser = Self { lexer: Lexer::new(text)?, paths: Vec::new(), nodes: 0, depth: 0 };
        let root = parser.any()?;
        match parser.lexer.token() {
            Token::End => Ok((root, parser.paths)),
            Token::Close => Err(parser.lexer.problem("a ')' has no '('".to_owned())),
            _ => Err(parser.no_operator()),
        }
    }

    fn any(&mut self) -> Result<Node, Problem> {
        self.joined("or", Self::all, Part::Any)
    }

    fn all(&mut self) -> Result<Node, Problem> {
        self.joined("and", Self::not, Part::All)
    }

    fn joined(
        &mut self,
        keyword: &str,
        part: fn(&mut Self) -> Result<Node, Problem>,
        join: fn(Vec<Node>) -> Part,
    ) -> Result<Node, Problem> {
        let first = part(self)?;
        if !self.lexer.is_keyword(keyword) {
            return Ok(first);
        }
        let position = first.position;
        let mut all = vec![first];
        while self.lexer.take_keyword(keyword)? {
            self.count()?;
            all.push(part(self)?);
        }
        Ok(Node { position, part: join(all) })
    }

    fn not(&mut self) -> Result<Node, Problem> {
        let position = self.lexer.position();
        if !self.lexer.take_keyword("not")? {
            return self.comparison();
        }
        let of = self.deeper(Self::not)?;
        self.node(position, Part::Not(Box::new(of)))
    }

    fn comparison(&mut self) -> Result<Node, Problem> {
        let left = self.sum()?;
        let Some(compared) = self.compared(left)? else { return Err(self.no_operator()) };
        let is_followed = self.comparison_sign().is_some()
            || ["is", "in", "like"].iter().any(|it| self.lexer.is_keyword(it));
        if is_followed {
            let what = format!(
                "{} was found behind a comparison: put one of the two in parentheses",
                self.lexer.token()
            );
            return Err(self.lexer.problem(what));
        }
        Ok(compared)
    }

    /// Reads what a sum is compared with, if it is; `None` where 'not' begins something else.
    fn compared(&mut self, left: Node) -> Result<Option<Node>, Problem> {
        let position = self.lexer.position();
        if let Some(comparison) = self.comparison_sign() {
            self.lexer.advance()?;
            let right = self.sum()?;
            let part = Part::Compare(Box::new(left), comparison, Box::new(right));
            return self.node(position, part).map(Some);
        }
        if self.lexer.take_keyword("is")? {
            let is_not = self.lexer.take_keyword("not")?;
            if !self.lexer.take_keyword("null")? {
                return Err(self.no_null());
            }
            return self.negated_if(is_not, position, Part::IsNull(Box::new(left))).map(Some);
        }
        let is_not = self.lexer.take_keyword("not")?;
        let part = if self.lexer.take_keyword("in")? {
            Part::In(Box::new(left), self.list()?)
        } else if self.lexer.take_keyword("like")? {
            let pattern = self.sum()?;
            Part::Like(Box::new(left), Box::new(pattern))
        } else if is_not {
            return Ok(None);
        } else {
            return Ok(Some(left));
        };
        self.negated_if(is_not, position, part).map(Some)
    }

    fn comparison_sign(&self) -> Option<Comparison> {
        Some(match self.lexer.token() {
            Token::Equal => Comparison::Equal,
            Token::NotEqual => Comparison::NotEqual,
            Token::Less => Comparison::Less,
            Token::LessEqual => Comparison::LessEqual,
            Token::Greater => Comparison::Greater,
            Token::GreaterEqual => Comparison::GreaterEqual,
            _ => return None,
        })
    }

    fn list(&mut self) -> Result<Vec<Node>, Problem> {
        self.require(&Token::Open, "'(' with what it may be")?;
        let mut items = vec![self.sum()?];
        while *self.lexer.token() == Token::Comma {
            self.lexer.advance()?;
            items.push(self.sum()?);
        }
        self.require(&Token::Close, "',' or ')'")?;
        Ok(items)
    }

    fn sum(&mut self) -> Result<Node, Problem> {
        let first = self.product()?;
        let position = first.position;
        let mut terms = vec![Term { is_subtracted: false, of: first }];
        loop {
            let is_subtracted = match self.lexer.token() {
                Token::Plus => false,
                Token::Minus => true,
                _ => break,
            };
            self.lexer.advance()?;
            self.count()?;
            terms.push(Term { is_subtracted, of: self.product()? });
        }
        Ok(match terms.len() {
            1 => terms.remove(0).of,
            _ => Node { position, part: Part::Sum(terms) },
        })
    }

    fn product(&mut self) -> Result<Node, Problem> {
        let first = self.unary()?;
        let position = first.position;
        let mut factors = vec![first];
        while *self.lexer.token() == Token::Star {
            self.lexer.advance()?;
            self.count()?;
            factors.push(self.unary()?);
        }
        Ok(match factors.len() {
            1 => factors.remove(0),
            _ => Node { position, part: Part::Product(factors) },
        })
    }

    fn unary(&mut self) -> Result<Node, Problem> {
        let position = self.lexer.position();
        if *self.lexer.token() != Token::Minus {
            return self.primary();
        }
        self.lexer.advance()?;
        let of = self.deeper(Self::unary)?;
        self.node(position, Part::Negated(Box::new(of)))
    }

    fn primary(&mut self) -> Result<Node, Problem> {
        const A_VALUE: &str = "a name, a number, a 'text' or '('";
        let position = self.lexer.position();
        let part = match self.lexer.token() {
            Token::Open => {
                self.lexer.advance()?;
                let of = self.deeper(Self::any)?;
                self.require(&Token::Close, "an operator or ')'")?;
                return Ok(Node { position, ..of });
            }
            Token::Number(digits) => match Integer::parse(digits) {
                Some(number) => Part::Number(number),
                None => {
                    let what = "a number has more than 256 bits".to_owned();
                    return Err(self.lexer.problem(what));
                }
            },
            Token::Text(text) => Part::Text(text.clone()),
            Token::Word(word) => match word.to_ascii_lowercase().as_str() {
                "null" => Part::Null,
                "true" => Part::Bool(true),
                "false" => Part::Bool(false),
                "not" => {
                    let what = "'not' was found, and a value is expected: put it and what it stands \
                                before in parentheses";
                    return Err(self.lexer.problem(what.to_owned()));
                }
                folded if KEYWORDS.contains(&folded) => return Err(self.lexer.unexpected(A_VALUE)),
                _ => return self.named(position),
            },
            Token::Quoted(_) => return self.named(position),
            _ => return Err(self.lexer.unexpected(A_VALUE)),
        };
        self.lexer.advance()?;
        self.node(position, part)
    }

    /// Reads a function or a path.
    fn named(&mut self, position: usize) -> Result<Node, Problem> {
        let function = match self.lexer.token() {
            Token::Word(word) => Some(word.to_ascii_lowercase()),
            _ => None,
        };
        let path = Path::read(&mut self.lexer)?;
        if *self.lexer.token() == Token::Open && path.steps.is_empty() {
            let make: fn(Box<Node>) -> Part = match function.as_deref() {
                Some("abs") => Part::Abs,
                Some("lower") => Part::Lower,
                _ => {
                    let name = path.root.written();
                    let what = format!("there is no function '{name}': there are abs and lower");
                    return Err(Problem { position, what });
                }
            };
            self.lexer.advance()?;
            let of = self.deeper(Self::sum)?;
            self.require(&Token::Close, "an operator or ')'")?;
            return self.node(position, make(Box::new(of)));
        }
        for _ in &path.steps {
            self.count()?;
        }
        let number = self.paths.iter().position(|known| *known == path).unwrap_or_else(|| {
            self.paths.push(path);
            self.paths.len() - 1
        });
        self.node(position, Part::Path(number))
    }

    fn negated_if(&mut self, is_not: bool, position: usize, part: Part) -> Result<Node, Problem> {
        let node = self.node(position, part)?;
        Ok(match is_not {
            true => Node { position, part: Part::Not(Box::new(node)) },
            false => node,
        })
    }

    fn node(&mut self, position: usize, part: Part) -> Result<Node, Problem> {
        self.count()?;
        Ok(Node { position, part })
    }

    fn count(&mut self) -> Result<(), Problem> {
        self.nodes += 1;
        if self.nodes > MOST_NODES {
            let what =
                format!("a condition has {MOST_NODES} names, values and operators at the most");
            return Err(self.lexer.problem(what));
        }
        Ok(())
    }

    fn deeper(
        &mut self,
        part: impl FnOnce(&mut Self) -> Result<Node, Problem>,
    ) -> Result<Node, Problem> {
        if self.depth == DEEPEST {
            let what = format!("a condition is nested {DEEPEST} deep at the most");
            return Err(self.lexer.problem(what));
        }
        self.depth += 1;
        let read = part(self)?;
        self.depth -= 1;
        Ok(read)
    }

    fn require(&mut self, token: &Token<'_>, expected: &str) -> Result<(), Problem> {
        if self.lexer.token() != token {
            return Err(self.meant_operator().unwrap_or_else(|| self.lexer.unexpected(expected)));
        }
        self.lexer.advance()
    }

    fn no_operator(&self) -> Problem {
        if *self.lexer.token() == Token::Dot {
            let what =
                "'.' was found behind a value: numbers are whole, and only names have members";
            return self.lexer.problem(what.to_owned());
        }
        self.meant_operator().unwrap_or_else(|| self.lexer.unexpected(AN_OPERATOR))
    }

    fn meant_operator(&self) -> Option<Problem> {
        let Token::Word(word) = self.lexer.token() else { return None };
        let meant = OPERATORS_MEANT.iter().find(|(other, _)| other.eq_ignore_ascii_case(word));
        meant.map(|(_, meant)| self.lexer.problem(format!("'{word}' is not known: {meant}")))
    }

    /// The word behind 'is' is not 'null'.
    fn no_null(&self) -> Problem {
        let token = self.lexer.token();
        let is_bool = ["true", "false"].iter().any(|it| self.lexer.is_keyword(it));
        let meant = match is_bool {
            true => "write the name alone for true, and 'not' before it for false",
            false => "write 'is null' or 'is not null', and '=' and '!=' for other values",
        };
        self.lexer.problem(format!("{token} behind 'is' is not known: {meant}"))
    }
}
