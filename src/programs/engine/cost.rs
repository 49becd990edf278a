//! What compiling a module may cost, told from its code before any of it is compiled: shapes of code that
//! take the compiler more time or memory than their bytes do are counted, and bounded.
//!
//! The compiler gives every value of a variable a name of its own. Where the ways of a function part and
//! meet again, each variable that is used afterwards is looked up, and may become a parameter that every
//! branch to that place passes on. So branches are counted times variables.

use wasmparser::{BlockType, FunctionBody, Operator};

use super::check::Refused;

/// Bytes of one function's body. The network's limit for a whole contract is 128 KiB; the time that
/// compiling takes grows faster than a function does.
const MOST_FUNCTION_BYTES: usize = 128 << 10;
/// Local variables of one function.
const MOST_LOCALS: usize = 4_096;
/// Functions of a module.
const MOST_FUNCTIONS: usize = 20_000;
/// Imports of a module. The environment has some two hundred functions.
const MOST_IMPORTS: usize = 1_000;
/// Loops within one another.
const MOST_LOOPS: usize = 24;
/// What all loops of a module may cost together, see [`Shape::loop_cost`].
const MOST_LOOP_COST: usize = 400_000;
/// What the branches of one function may cost, see [`Shape::branch_cost`].
const MOST_BRANCH_COST: usize = 6_000_000;
/// What the branches of all functions may cost together.
const MOST_BRANCH_COST_IN_ALL: usize = 60_000_000;
/// What the places where branches meet may cost together, see [`Shape::meetings`].
const MOST_MEETINGS: usize = 50_000_000;
/// Calls through tables of a module. Each is some forty instructions.
const MOST_TABLE_CALLS: usize = 40_000;
/// Variables that the compiler adds to those of each function: the fuel that is left, the deadline, and where
/// they are kept.
const ADDED_VARIABLES: usize = 8;
/// Parameters of a function. A contract's function has ten at most.
const MOST_PARAMETERS: usize = 32;
/// Results of a function, parameters and results of a block: every branch passes them on.
const MOST_RESULTS: usize = 4;
/// Values that all branches of a function pass on together.
const MOST_PASSED: usize = 2_000;

/// What was counted so far in a module.
#[derive(Default)]
pub(super) struct Cost {
    /// Numbers of parameters and results of function types, by index.
    types: Vec<(usize, usize)>,
    /// Types of the module's own functions, in order.
    functions: Vec<u32>,
    imports: usize,
    bodies: usize,
    loops: usize,
    branches: usize,
    meetings: usize,
    table_calls: usize,
}

impl Cost {
    pub(super) fn add_type(&mut self, params: usize, results: usize) -> Result<(), Refused> {
        if params > MOST_PARAMETERS {
            let what = format!("the module has a function of {params} parameters");
            return Err(too_complex(what, MOST_PARAMETERS));
        }
        if results > MOST_RESULTS {
            let what = format!("the module has a function of {results} results");
            return Err(too_complex(what, MOST_RESULTS));
        }
        self.types.push((params, results));
        Ok(())
    }

    pub(super) fn add_import(&mut self) -> Result<(), Refused> {
        self.imports += 1;
        match self.imports > MOST_IMPORTS {
            true => Err(too_complex("the module has too many imports".to_owned(), MOST_IMPORTS)),
            false => Ok(()),
        }
    }

    pub(super) fn add_function(&mut self, ty: u32) {
        self.functions.push(ty);
    }

    pub(super) fn add_body(
        &mut self,
        body: &FunctionBody<'_>,
    ) -> wasmparser::Result<Result<(), Refused>> {
        let index = self.bodies;
        self.bodies += 1;
        if self.bodies > MOST_FUNCTIONS {
            let what = "the module has too many functions".to_owned();
            return Ok(Err(too_complex(what, MOST_FUNCTIONS)));
        }
        let bytes = body.range().len();
        if bytes > MOST_FUNCTION_BYTES {
            let what = format!("function {index} of the module has {bytes} bytes");
            return Ok(Err(too_complex(what, MOST_FUNCTION_BYTES)));
        }
        let mut locals = 0_usize;
        for declared in body.get_locals_reader()? {
            locals = locals.saturating_add(declared?.0 as usize);
        }
        if locals > MOST_LOCALS {
            let what = format!("function {index} of the module has {locals} local variables");
            return Ok(Err(too_complex(what, MOST_LOCALS)));
        }
        let ty = self.functions.get(index).and_then(|ty| self.types.get(*ty as usize));
        let variables = locals + ty.map_or(0, |(params, _)| *params);
        let shape = Shape::of(body, &self.types)?;
        Ok(self.add_shape(index, variables, &shape))
    }

    fn add_shape(&mut self, index: usize, variables: usize, shape: &Shape) -> Result<(), Refused> {
        let Shape { deepest, widest, passed, .. } = *shape;
        if deepest > MOST_LOOPS {
            let what =
                format!("function {index} of the module has {deepest} loops within one another");
            return Err(too_complex(what, MOST_LOOPS));
        }
        if widest > MOST_RESULTS {
            let what = format!("function {index} of the module has a block over {widest} values");
            return Err(too_complex(what, MOST_RESULTS));
        }
        if passed > MOST_PASSED {
            let what =
                format!("branches of function {index} of the module pass {passed} values on");
            return Err(too_complex(what, MOST_PASSED));
        }
        self.loops += shape.loop_cost(variables);
        if self.loops > MOST_LOOP_COST {
            let what = "the module has too many loops within one another, over too many variables";
            return Err(Refused::TooComplex(what.to_owned()));
        }
        let branches = shape.branch_cost(variables);
        if branches > MOST_BRANCH_COST {
            let what = format!(
                "function {index} of the module has {} branches over {variables} variables, which is \
                 too many",
                shape.branches
            );
            return Err(Refused::TooComplex(what));
        }
        self.branches += branches;
        if self.branches > MOST_BRANCH_COST_IN_ALL {
            let what = "the functions of the module have too many branches over too many variables";
            return Err(Refused::TooComplex(what.to_owned()));
        }
        self.meetings = self.meetings.saturating_add(shape.meetings);
        if self.meetings > MOST_MEETINGS {
            let what = "the module has too many branches that lead to the same places";
            return Err(Refused::TooComplex(what.to_owned()));
        }
        self.table_calls += shape.table_calls;
        if self.table_calls > MOST_TABLE_CALLS {
            let what = "the module has too many calls through tables".to_owned();
            return Err(too_complex(what, MOST_TABLE_CALLS));
        }
        Ok(())
    }
}

fn too_complex(what: String, most: usize) -> Refused {
    Refused::TooComplex(format!("{what} ({most} are allowed)"))
}

/// Loops and branches of a body, as far as they make compiling slow: every loop looks at every variable, and
/// a loop in a loop does so once more; every branch passes values on.
#[derive(Default)]
struct Shape {
    deepest: usize,
    /// Sum of the depths, and of their squares.
    depths: usize,
    squares: usize,
    /// Most parameters and results of a block.
    widest: usize,
    /// Values that branches pass on.
    passed: usize,
    /// Ways from one piece of straight code to another, and the places where several meet.
    branches: usize,
    /// Sum of the squares of how many branches lead to each place: the values that they pass on are brought
    /// into one register, one after the other, and each is compared with all before it.
    meetings: usize,
    table_calls: usize,
}

/// A block that is open.
struct Open {
    is_loop: bool,
    /// Values that a branch to it passes on.
    passed: usize,
    /// Whether ways meet at its end.
    meets: bool,
    /// Branches to it, and the last table of branches that has one.
    comers: usize,
    last_table: usize,
}

impl Shape {
    fn of(body: &FunctionBody<'_>, types: &[(usize, usize)]) -> wasmparser::Result<Self> {
        let (mut found, mut depth, mut tables) = (Self::default(), 0, 0);
        let mut open = vec![found.open(BlockType::Empty, false, types)];
        for operator in body.get_operators_reader()? {
            match operator? {
                Operator::Loop { blockty } => {
                    open.push(found.open(blockty, true, types));
                    depth += 1;
                    found.deepest = found.deepest.max(depth);
                    found.depths += depth;
                    found.squares += depth * depth;
                    // Into it and back; and out of it when there is no fuel or time left.
                    found.branches += 4;
                }
                Operator::Block { blockty } => open.push(found.open(blockty, false, types)),
                Operator::If { blockty } => {
                    let mut block = found.open(blockty, false, types);
                    block.meets = true;
                    open.push(block);
                    found.branches += 2;
                }
                Operator::Else => found.branches += 1,
                Operator::Return => {
                    let whole = open.len().saturating_sub(1);
                    found.branch(&mut open, whole, None);
                }
                Operator::End => {
                    if let Some(block) = open.pop() {
                        depth -= usize::from(block.is_loop);
                        found.branches += usize::from(block.meets);
                        let square = block.comers.saturating_mul(block.comers);
                        found.meetings = found.meetings.saturating_add(square);
                    }
                }
                Operator::Br { relative_depth } => {
                    found.branch(&mut open, relative_depth as usize, None);
                }
                Operator::BrIf { relative_depth } => {
                    found.branch(&mut open, relative_depth as usize, None);
                    found.branches += 1;
                }
                Operator::BrTable { targets } => {
                    tables += 1;
                    found.branch(&mut open, targets.default() as usize, Some(tables));
                    for target in targets.targets() {
                        found.branch(&mut open, target? as usize, Some(tables));
                    }
                }
                // Entries of tables are made when they are first used.
                Operator::CallIndirect { .. } => {
                    found.branches += 3;
                    found.table_calls += 1;
                }
                Operator::TableGet { .. } => found.branches += 3,
                _ => {}
            }
        }
        Ok(found)
    }

    fn open(&mut self, ty: BlockType, is_loop: bool, types: &[(usize, usize)]) -> Open {
        let (params, results) = match ty {
            BlockType::Empty => (0, 0),
            BlockType::Type(_) => (0, 1),
            BlockType::FuncType(ty) => types.get(ty as usize).copied().unwrap_or_default(),
        };
        self.widest = self.widest.max(params + results);
        let passed = if is_loop { params } else { results };
        Open { is_loop, passed, meets: false, comers: 0, last_table: 0 }
    }

    /// A branch out of so many blocks, in this table of branches if it is in one; out of all of them it ends
    /// the function.
    fn branch(&mut self, open: &mut [Open], out_of: usize, table: Option<usize>) {
        self.branches += 1;
        let at = open.len().checked_sub(1 + out_of);
        if let Some(block) = at.and_then(|at| open.get_mut(at)) {
            self.passed += block.passed;
            block.meets |= !block.is_loop;
            // Branches of one table to one place are one.
            if table.is_none_or(|table| table != block.last_table) {
                block.comers += 1;
            }
            block.last_table = table.unwrap_or(block.last_table);
        }
    }

    fn loop_cost(&self, variables: usize) -> usize {
        self.squares + self.depths * variables / 8
    }

    fn branch_cost(&self, variables: usize) -> usize {
        self.branches.saturating_mul(variables + ADDED_VARIABLES)
    }
}
