//! Refuses queries in which DuckDB would round integers without being asked to. Where two types of
//! integers have no common one, or a function does not take a type of integers, DuckDB converts them to
//! floating-point numbers, which hold integers only up to 2^53.
//!
//! What is converted is read from DuckDB's own plan of the text that will be executed
//! (`json_serialize_plan`); which of the conversions are written in the text, from its syntax tree.
//! A conversion that is not written is let pass where a floating-point number is what the query asks
//! for: a function computes one by definition ([`FLOATING`]), or one of the values beside it is one.

use std::collections::HashSet;

use super::tree::{ROOT, Tree};

/// Functions whose result is no integer, or does not depend on the digits that a floating-point number
/// lacks.
const FLOATING: &str = "/ ** ^ acos acosh approx_quantile asin asinh atan atan2 atanh avg bar cbrt corr \
    cos cosh cot covar_pop covar_samp degrees entropy exp favg fsum gamma geometric_mean geomean isfinite \
    isinf isnan kahan_sum kurtosis kurtosis_pop lgamma list_cosine_distance list_cosine_similarity \
    list_distance <-> <=> ln log log10 log2 mad make_time make_timestamp mean median pow power quantile \
    quantile_cont quantile_disc radians random regr_avgx regr_avgy regr_count regr_intercept regr_r2 \
    regr_slope regr_sxx regr_sxy regr_syy reservoir_quantile sem setseed signbit sin sinh skewness sqrt \
    stddev stddev_pop stddev_samp sumkahan tan tanh to_milliseconds to_seconds to_timestamp var_pop \
    var_samp variance";

/// Functions that aggregate a list by the aggregate function that their second argument names.
const LIST_AGGREGATES: [&str; 5] =
    ["list_aggr", "list_aggregate", "array_aggr", "array_aggregate", "aggregate"];

/// Operators of plans whose inputs have the same columns, which are converted in the projections
/// directly below.
const OF_COLUMNS: [&str; 4] =
    ["LOGICAL_UNION", "LOGICAL_EXCEPT", "LOGICAL_INTERSECT", "LOGICAL_RECURSIVE_CTE"];

/// Members of an expression in which other expressions are than those that it combines.
const NO_OPERANDS: [&str; 9] = [
    "function_data",
    "partitions",
    "orders",
    "order_bys",
    "arg_orders",
    "filter",
    "when_expr",
    "start_expr",
    "end_expr",
];

/// Names of floating-point types in syntax trees, in lower case.
const FLOATS: [&str; 5] = ["double", "float", "float4", "float8", "real"];

/// Largest number of bytes of a plan that is examined.
const MOST_BYTES: usize = 16 << 20;

/// Examines the plan of a query (the answer of `json_serialize_plan`) and its syntax tree (that of
/// `json_serialize_sql`).
///
/// # Errors
/// The sentence for the user when integers would be rounded, or the plan is too large.
pub fn check(plan: &str, parsed: &str) -> Result<(), String> {
    if plan.len() > MOST_BYTES {
        return Err(
            "The query is too large to be examined: use fewer tables and columns".to_owned()
        );
    }
    let unread = || "The query cannot be examined: write it in another way".to_owned();
    let parsed = Tree::read(parsed).ok_or_else(unread)?;
    let plan = Tree::read(plan).ok_or_else(unread)?;
    let examined = Examined::new(&plan, &written(&parsed));
    match (ROOT..plan.len()).find_map(|at| examined.rounded(at)) {
        Some(sentence) => Err(sentence),
        None => Ok(()),
    }
}

/// Examines the integers in the text of a query, of which this is the syntax tree. DuckDB does not
/// prepare, or makes no plan of, those that exceed 128 bits.
///
/// # Errors
/// The sentence for the user that names such an integer.
pub fn check_numbers(parsed: &str) -> Result<(), String> {
    match Tree::read(parsed).as_ref().and_then(too_large) {
        Some(number) => Err(format!(
            "The number {number} is no integer of 128 bits: write {number}e0 if it may be rounded"
        )),
        None => Ok(()),
    }
}

/// Returns an integer in the query that exceeds all types of integers that columns have, with its sign.
fn too_large<'j>(parsed: &Tree<'j>) -> Option<&'j str> {
    let literals = (ROOT..parsed.len()).filter(|at| parsed.text(*at, "kind") == Some("INTEGER"));
    let mut numbers = literals.filter_map(|at| parsed.text(at, "text"));
    numbers.find(|number| {
        let number = number.replace('_', "");
        let digits = number.strip_prefix('-').unwrap_or(&number);
        let is_integer = number.parse::<i128>().is_ok() || number.parse::<u128>().is_ok();
        digits.bytes().all(|byte| byte.is_ascii_digit()) && !is_integer
    })
}

/// Returns the places in the text of the conversions to floating-point numbers that are written there.
fn written<'j>(parsed: &Tree<'j>) -> HashSet<(&'j str, &'j str)> {
    let casts = (ROOT..parsed.len()).filter(|at| parsed.text(*at, "class") == Some("CAST"));
    let to_floats = casts.filter(|at| {
        parsed.get(*at, "type_expr").is_some_and(|kind| {
            let mut parts = vec![kind];
            while let Some(part) = parts.pop() {
                let name = parsed.text(part, "type_name").unwrap_or_default();
                if FLOATS.iter().any(|float| float.eq_ignore_ascii_case(name)) {
                    return true;
                }
                parts.extend(parsed.children(part));
            }
            false
        })
    });
    to_floats.filter_map(|at| place(parsed, at)).collect()
}

fn place<'j>(tree: &Tree<'j>, at: usize) -> Option<(&'j str, &'j str)> {
    Some((tree.text(at, "query_location")?, tree.text(at, "query_location_length")?))
}

/// A plan, with what is known of its expressions.
struct Examined<'a, 'j> {
    plan: &'a Tree<'j>,
    operands: Vec<Option<Operand>>,
}

/// An expression as a part of what combines it with others.
#[derive(Debug, Clone, Copy)]
struct Operand {
    at: usize,
    /// Whether it is a conversion of integers that may round them, and is not written.
    rounds: bool,
    /// Whether it is a floating-point number, or contains some, for another reason.
    floats: bool,
}

impl<'a, 'j> Examined<'a, 'j> {
    fn new(plan: &'a Tree<'j>, written: &HashSet<(&str, &str)>) -> Self {
        let operand = |at| operand(plan, written, at);
        Self { plan, operands: (ROOT..plan.len()).map(operand).collect() }
    }

    /// Returns what to say of a value of the plan that combines expressions, if that rounds integers.
    fn rounded(&self, at: usize) -> Option<String> {
        if !self.combines(at) {
            return None;
        }
        if self.operands[at].is_some() {
            return self.rounded_by_expression(at);
        }
        match self.plan.text(at, "type") {
            Some("LOGICAL_EXPRESSION_GET") => self.rounded_in_values(at),
            Some(kind) if OF_COLUMNS.contains(&kind) => self.rounded_in_columns(at),
            Some("LOGICAL_PROJECTION") if self.has_columns_of_several(at) => None,
            Some(_) => self.operands(at).find_map(|one| self.rounded_among(&[one], "it", true)),
            // The two sides of a condition of a join.
            None => self.rounded_among(&self.operands(at).collect::<Vec<_>>(), "the join", true),
        }
    }

    fn rounded_by_expression(&self, at: usize) -> Option<String> {
        let plan = self.plan;
        let kind = plan.text(at, "type").unwrap_or_default();
        let operands: Vec<Operand> = self.operands(at).collect();
        let path = plan.get(at, "qname").and_then(|name| plan.get(name, "path"));
        let name = path.and_then(|path| plan.children(path).last().copied());
        let mut name = name.and_then(|name| plan.plain(name)).unwrap_or_default();
        if LIST_AGGREGATES.contains(&name) {
            let named = operands.get(1).and_then(|it| plan.get(it.at, "value"));
            name = named.and_then(|it| plan.text(it, "value")).unwrap_or(name);
        }
        let is_null = ["OPERATOR_IS_NULL", "OPERATOR_IS_NOT_NULL"].contains(&kind);
        if is_null || FLOATING.split_ascii_whitespace().any(|floating| floating == name) {
            return None;
        }
        let class = plan.text(at, "expression_class").unwrap_or_default();
        let is_aggregate = ["BOUND_AGGREGATE", "BOUND_WINDOW"].contains(&class);
        let what = match (kind, name) {
            ("CASE_EXPR", _) => "CASE",
            ("COMPARE_IN" | "COMPARE_NOT_IN", _) => "IN",
            ("OPERATOR_COALESCE", _) => "coalesce",
            (_, "") => "it",
            (_, name) => name,
        };
        self.rounded_among(&operands, what, !is_aggregate)
    }

    /// Rows of values have common types by column.
    fn rounded_in_values(&self, at: usize) -> Option<String> {
        let rows = self.plan.children(self.plan.get(at, "expressions")?);
        let width = rows.iter().map(|row| self.plan.children(*row).len()).max()?;
        (0..width).find_map(|column| {
            let cell = |row: &usize| {
                let cell = *self.plan.children(*row).get(column)?;
                self.operands[cell]
            };
            self.rounded_among(&rows.iter().filter_map(cell).collect::<Vec<_>>(), "VALUES", true)
        })
    }

    /// The inputs of UNION and the like have common types by column. An input that is no projection has
    /// them without a conversion.
    fn rounded_in_columns(&self, at: usize) -> Option<String> {
        let inputs = self.plan.children(self.plan.get(at, "children")?);
        let columns: Vec<Option<&[usize]>> = inputs
            .iter()
            .map(|input| {
                let is_projection = self.plan.text(*input, "type") == Some("LOGICAL_PROJECTION");
                let columns = self.plan.get(*input, "expressions").filter(|_| is_projection);
                columns.map(|columns| self.plan.children(columns))
            })
            .collect();
        if columns.contains(&None) {
            return None;
        }
        let width = columns.iter().flatten().map(|columns| columns.len()).max()?;
        (0..width).find_map(|column| {
            let cell = |columns: &Option<&[usize]>| self.operands[*(*columns)?.get(column)?];
            let cells: Vec<Operand> = columns.iter().filter_map(cell).collect();
            self.rounded_among(&cells, "UNION, EXCEPT or INTERSECT", true)
        })
    }

    fn has_columns_of_several(&self, at: usize) -> bool {
        let above = self.plan.parent(self.plan.parent(at));
        self.plan.text(above, "type").is_some_and(|kind| OF_COLUMNS.contains(&kind))
    }

    /// Returns what to say of expressions that have one type after their conversion. `together`: whether
    /// a floating-point number among them makes the others such numbers, as it is asked for.
    fn rounded_among(&self, operands: &[Operand], what: &str, together: bool) -> Option<String> {
        if together && operands.iter().any(|operand| operand.floats) {
            return None;
        }
        let rounded = || operands.iter().filter(|operand| operand.rounds);
        let from =
            |operand: &Operand| self.converted(operand.at).map(|at| (at, leaves(self.plan, at)));
        let all: Vec<_> = rounded().filter_map(from).collect();
        let unsigned = all.iter().find(|(_, leaves)| leaves.contains(&"UHUGEINT"));
        let (value, kinds) = unsigned.or(all.first())?;
        let name = match self.plan.text(*value, "expression_class") {
            Some("BOUND_REF" | "BOUND_COLUMN_REF") => self.plan.text(*value, "alias"),
            _ => None,
        };
        let is_word = |name: &&str| name.bytes().all(|it| it == b'_' || it.is_ascii_alphanumeric());
        let name = name.filter(|name| !name.is_empty()).filter(is_word);
        let from = kinds.iter().find(|kind| is_integer(kind)).copied().unwrap_or("INTEGER");
        let to = leaves(self.plan, self.operand_of(*value)).into_iter().find(|kind| is_float(kind));
        let whole = kind(self.plan, *value).and_then(|kind| self.plan.text(kind, "id"));
        let suffix = if whole == Some("LIST") && kinds.len() == 1 { "[]" } else { "" };
        let mend = match (unsigned.is_some(), name) {
            _ if kinds.len() > 1 || ![Some(from), Some("LIST")].contains(&whole) => {
                "CAST it to a type with HUGEINT, which is exact, or with DOUBLE".to_owned()
            }
            (true, Some(name)) => {
                format!("write {name}::HUGEINT{suffix}, which is exact, or {name}::DOUBLE{suffix}")
            }
            (true, None) => {
                format!("CAST it to HUGEINT{suffix}, which is exact, or to DOUBLE{suffix}")
            }
            (false, Some(name)) => format!("write {name}::DOUBLE{suffix} if it may be rounded"),
            (false, None) => format!("CAST it to DOUBLE{suffix} if it may be rounded"),
        };
        Some(format!(
            "Integers would be rounded: {what} converts {} from {from} to {}, which holds integers \
             only up to 2^{}: {mend}",
            name.unwrap_or("a value"),
            to.unwrap_or("DOUBLE"),
            if to == Some("FLOAT") { 24 } else { 53 },
        ))
    }

    /// Whether a value of the plan is an operator, an expression or a condition of a join.
    fn combines(&self, at: usize) -> bool {
        let is_operator =
            || self.plan.text(at, "type").is_some_and(|it| it.starts_with("LOGICAL_"));
        let is_condition =
            || self.plan.get(at, "left").is_some() && self.plan.get(at, "right").is_some();
        self.plan.is_object(at) && (self.operands[at].is_some() || is_operator() || is_condition())
    }

    /// The expressions that an operator, an expression or a condition combines, in their order.
    fn operands(&self, at: usize) -> impl Iterator<Item = Operand> {
        let mut left: Vec<usize> = self.plan.children(at).iter().rev().copied().collect();
        std::iter::from_fn(move || {
            while let Some(next) = left.pop() {
                if NO_OPERANDS.contains(&self.plan.key(next)) {
                    continue;
                }
                if let Some(operand) = self.operands[next] {
                    return Some(operand);
                }
                if !self.combines(next) {
                    left.extend(self.plan.children(next).iter().rev());
                }
            }
            None
        })
    }

    /// Returns the expression that a conversion converts.
    fn converted(&self, at: usize) -> Option<usize> {
        self.plan.children(self.plan.get(at, "children")?).first().copied()
    }

    /// Returns the conversion of an expression, in whose list of operands it is.
    fn operand_of(&self, converted: usize) -> usize {
        self.plan.parent(self.plan.parent(converted))
    }
}

fn operand(plan: &Tree<'_>, written: &HashSet<(&str, &str)>, at: usize) -> Option<Operand> {
    plan.get(at, "expression_class")?;
    let kinds = leaves(plan, at);
    let has_floats = kinds.iter().any(|kind| is_float(kind));
    let is_cast = has_floats && plan.text(at, "type") == Some("OPERATOR_CAST");
    if !is_cast || place(plan, at).is_some_and(|place| written.contains(&place)) {
        return Some(Operand { at, rounds: false, floats: has_floats });
    }
    let converted = plan.get(at, "children").and_then(|it| plan.children(it).first());
    let from = converted.map_or_else(Vec::new, |converted| leaves(plan, *converted));
    let rounds = from.iter().zip(&kinds).any(|(from, to)| loses_digits(from, to));
    // What is exact as a floating-point number, too, need not be one.
    Some(Operand { at, rounds, floats: from.iter().any(|kind| is_float(kind)) })
}

/// Returns the type of an expression.
fn kind(plan: &Tree<'_>, at: usize) -> Option<usize> {
    let of_constant = || plan.get(plan.get(at, "value")?, "type");
    plan.get(at, "return_type").or_else(of_constant)
}

/// Returns the types in the type of an expression that contain no others, in their order.
fn leaves<'j>(plan: &Tree<'j>, at: usize) -> Vec<&'j str> {
    let (mut leaves, mut left) = (Vec::new(), Vec::from_iter(kind(plan, at)));
    while let Some(kind) = left.pop() {
        let info = plan.get(kind, "type_info");
        let of = |key| info.and_then(|info| plan.get(info, key));
        if let Some(item) = of("child_type") {
            left.push(item);
        } else if let Some(fields) = of("child_types") {
            let fields = plan.children(fields).iter().rev();
            left.extend(fields.filter_map(|field| plan.get(*field, "second")));
        } else {
            leaves.extend(plan.text(kind, "id"));
        }
    }
    leaves
}

fn loses_digits(from: &str, to: &str) -> bool {
    match to {
        "DOUBLE" => ["BIGINT", "UBIGINT", "HUGEINT", "UHUGEINT", "BIGNUM"].contains(&from),
        "FLOAT" => is_integer(from),
        _ => false,
    }
}

fn is_float(kind: &str) -> bool {
    ["DOUBLE", "FLOAT"].contains(&kind)
}

/// Whether a type is one of integers with more digits than the shortest floating-point number holds.
fn is_integer(kind: &str) -> bool {
    ["INTEGER", "UINTEGER", "BIGINT", "UBIGINT", "HUGEINT", "UHUGEINT", "BIGNUM"].contains(&kind)
}
