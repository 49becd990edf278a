//! A condition: read and checked once, and evaluated for each event.

use super::check::Check;
use super::evaluate::Evaluation;
use super::fields::{Fields, Kinds};
use super::kind::Type;
use super::lexer::Problem;
use super::name::Name;
use super::node::Node;
use super::parser::Parser;
use super::path::Path;

/// A condition over named values.
#[derive(Debug, Clone)]
pub struct Condition {
    text: String,
    root: Node,
    paths: Vec<Path>,
}

/// Why nothing with such names can meet a condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Misfit {
    /// There is no value of this name.
    Lacks(Name),
    /// A value is of a type that does not fit.
    Type(Problem),
}

impl Condition {
    /// Reads a condition, as docs/webhooks.md describes them.
    ///
    /// # Errors
    /// [`Problem`] when it is none, is too long or too deep, or compares what cannot be compared.
    pub fn parse(text: &str) -> Result<Self, Problem> {
        let (root, paths) = Parser::parse(text)?;
        let types: Vec<_> = paths.iter().map(|path| (Type::Any, path)).collect();
        Check { paths: &types }.condition(&root)?;
        Ok(Self { text: text.to_owned(), root, paths })
    }

    /// The text that was read.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The different paths in it.
    pub fn paths(&self) -> &[Path] {
        &self.paths
    }

    pub(super) fn root(&self) -> &Node {
        &self.root
    }

    /// Checks whether something with values of these names and types can meet it.
    ///
    /// # Errors
    /// [`Misfit`]
    pub fn check(&self, kinds: &(impl Kinds + ?Sized)) -> Result<(), Misfit> {
        let mut types = Vec::with_capacity(self.paths.len());
        for path in &self.paths {
            let kind = kinds.kind(&path.root).ok_or_else(|| Misfit::Lacks(path.root.clone()))?;
            let kind = match path.steps.is_empty() {
                true => kind,
                false => path.kind(kind).map_err(|what| {
                    Misfit::Type(Problem { position: self.place_of(path), what })
                })?,
            };
            types.push((kind.scalar(), path));
        }
        Check { paths: &types }.condition(&self.root).map_err(Misfit::Type)
    }

    /// Whether it is true for something. False where a name of it is none there, whatever is asked of it.
    pub fn holds(&self, fields: &(impl Fields + ?Sized)) -> bool {
        let mut values = Vec::with_capacity(self.paths.len());
        for path in &self.paths {
            let Some(value) = path.of(fields) else { return false };
            values.push(value);
        }
        Evaluation { values: &values }.holds(&self.root)
    }

    fn place_of(&self, path: &Path) -> usize {
        let number = self.paths.iter().position(|known| known == path);
        number.and_then(|number| self.root.place_of_path(number)).unwrap_or(1)
    }
}
