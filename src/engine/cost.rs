//! Bounds the cost of compiling a module before any of it is compiled, by counting constructs that
//! take the compiler more time or memory than their size suggests.
//!
//! The compiler converts variables to SSA form. Where control-flow paths join, each variable that
//! is used afterwards is looked up, and may become a block parameter that every branch to that
//! block passes on. So the cost of branches is their number times the number of variables.

use wasmparser::{BlockType, FunctionBody, Operator};

use super::refused::Refused;

/// Maximum size of a function body in bytes. The network's limit for a whole contract is 128 KiB;
/// the time to compile a function grows faster than its size.
const MAX_FUNCTION_BYTES: usize = 128 << 10;
/// Maximum number of local variables of a function.
const MAX_LOCALS: usize = 4_096;
/// Maximum number of functions of a module.
const MAX_FUNCTIONS: usize = 20_000;
/// Maximum number of imports of a module. The environment has about two hundred functions.
const MAX_IMPORTS: usize = 1_000;
/// Maximum nesting depth of loops.
const MAX_LOOPS: usize = 24;
/// Maximum cost of all loops of a module, see [`Shape::loop_cost`].
const MAX_LOOP_COST: usize = 400_000;
/// Maximum cost of the branches of one function, see [`Shape::branch_cost`].
const MAX_BRANCH_COST: usize = 6_000_000;
/// Maximum cost of the branches of all functions.
const MAX_BRANCH_COST_IN_ALL: usize = 60_000_000;
/// Maximum cost of the blocks where branches join, see [`Shape::join_cost`].
const MAX_JOIN_COST: usize = 50_000_000;
/// Maximum number of indirect calls of a module. Each compiles to about forty instructions.
const MAX_TABLE_CALLS: usize = 40_000;
/// Number of variables that the compiler adds to each function: the remaining fuel, the deadline,
/// and the addresses where they are stored.
const ADDED_VARIABLES: usize = 8;
/// Maximum number of parameters of a function. A contract's function has at most ten.
const MAX_PARAMETERS: usize = 32;
/// Maximum number of results of a function, and of parameters and results of a block: every branch
/// passes them on.
const MAX_RESULTS: usize = 4;
/// Maximum number of values that all branches of a function pass on together.
const MAX_PASSED: usize = 2_000;

/// Counts of a module so far.
#[derive(Default)]
pub(super) struct Cost {
    /// Numbers of parameters and results of each function type, by type index.
    types: Vec<(usize, usize)>,
    /// Type indexes of the module's own functions, in order.
    functions: Vec<u32>,
    imports: usize,
    bodies: usize,
    loops: usize,
    branches: usize,
    join_cost: usize,
    table_calls: usize,
}

impl Cost {
    pub(super) fn add_type(&mut self, params: usize, results: usize) -> Result<(), Refused> {
        if params > MAX_PARAMETERS {
            let what = format!("the module has a function of {params} parameters");
            return Err(too_complex(what, MAX_PARAMETERS));
        }
        if results > MAX_RESULTS {
            let what = format!("the module has a function of {results} results");
            return Err(too_complex(what, MAX_RESULTS));
        }
        self.types.push((params, results));
        Ok(())
    }

    pub(super) fn add_import(&mut self) -> Result<(), Refused> {
        self.imports += 1;
        if self.imports > MAX_IMPORTS {
            Err(too_complex("the module has too many imports".to_owned(), MAX_IMPORTS))
        } else {
            Ok(())
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
        if self.bodies > MAX_FUNCTIONS {
            let what = "the module has too many functions".to_owned();
            return Ok(Err(too_complex(what, MAX_FUNCTIONS)));
        }
        let bytes = body.range().len();
        if bytes > MAX_FUNCTION_BYTES {
            let what = format!("function {index} of the module has {bytes} bytes");
            return Ok(Err(too_complex(what, MAX_FUNCTION_BYTES)));
        }
        let mut locals = 0_usize;
        for declared in body.get_locals_reader()? {
            locals = locals.saturating_add(declared?.0 as usize);
        }
        if locals > MAX_LOCALS {
            let what = format!("function {index} of the module has {locals} local variables");
            return Ok(Err(too_complex(what, MAX_LOCALS)));
        }
        let ty = self.functions.get(index).and_then(|ty| self.types.get(*ty as usize));
        let variables = locals + ty.map_or(0, |(params, _)| *params);
        let shape = Shape::of(body, &self.types)?;
        Ok(self.add_shape(index, variables, &shape))
    }

    fn add_shape(&mut self, index: usize, variables: usize, shape: &Shape) -> Result<(), Refused> {
        let Shape { deepest, widest, passed, .. } = *shape;
        if deepest > MAX_LOOPS {
            let what =
                format!("function {index} of the module has {deepest} loops within one another");
            return Err(too_complex(what, MAX_LOOPS));
        }
        if widest > MAX_RESULTS {
            let what = format!("function {index} of the module has a block over {widest} values");
            return Err(too_complex(what, MAX_RESULTS));
        }
        if passed > MAX_PASSED {
            let what =
                format!("branches of function {index} of the module pass {passed} values on");
            return Err(too_complex(what, MAX_PASSED));
        }
        self.loops += shape.loop_cost(variables);
        if self.loops > MAX_LOOP_COST {
            let what = "the module has too many loops within one another, over too many variables";
            return Err(Refused::too_complex(what));
        }
        let branches = shape.branch_cost(variables);
        if branches > MAX_BRANCH_COST {
            let what = format!(
                "function {index} of the module has {} branches over {variables} variables, which is \
                 too many",
                shape.branches
            );
            return Err(Refused::too_complex(&what));
        }
        self.branches += branches;
        if self.branches > MAX_BRANCH_COST_IN_ALL {
            let what = "the functions of the module have too many branches over too many variables";
            return Err(Refused::too_complex(what));
        }
        self.join_cost = self.join_cost.saturating_add(shape.join_cost);
        if self.join_cost > MAX_JOIN_COST {
            let what = "the module has too many branches that lead to the same places";
            return Err(Refused::too_complex(what));
        }
        self.table_calls += shape.table_calls;
        if self.table_calls > MAX_TABLE_CALLS {
            let what = "the module has too many calls through tables".to_owned();
            return Err(too_complex(what, MAX_TABLE_CALLS));
        }
        Ok(())
    }
}

fn too_complex(what: String, most: usize) -> Refused {
    Refused::too_complex(&format!("{what} ({most} are allowed)"))
}

/// Counts of the loops and branches of a function body that make compiling slow: every loop
/// examines every variable, and a nested loop does so once more for each level; every branch passes
/// values on.
#[derive(Default)]
struct Shape {
    deepest: usize,
    /// Sum of the nesting depths of all loops, and sum of their squares.
    depths: usize,
    squares: usize,
    /// Maximum number of parameters and results of a block.
    widest: usize,
    /// Number of values that branches pass on.
    passed: usize,
    /// Number of edges between basic blocks, plus the number of blocks where edges join.
    branches: usize,
    /// Sum over all blocks of the squared number of branches to the block: the values that they
    /// pass on are assigned to one register one after the other, each compared with all before it.
    join_cost: usize,
    table_calls: usize,
}

/// An open block.
struct Open {
    is_loop: bool,
    /// Number of values that a branch to the block passes on.
    passed: usize,
    /// Whether control-flow paths join at the end of the block.
    meets: bool,
    /// Number of branches to the block, and the number of the last branch table with a branch to
    /// it.
    incoming_branches: usize,
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
                    // Entry and back edge; exits when the fuel or the time has run out.
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
                    found.count_branch(&mut open, whole, None);
                }
                Operator::End => {
                    if let Some(block) = open.pop() {
                        depth -= usize::from(block.is_loop);
                        found.branches += usize::from(block.meets);
                        let square =
                            block.incoming_branches.saturating_mul(block.incoming_branches);
                        found.join_cost = found.join_cost.saturating_add(square);
                    }
                }
                Operator::Br { relative_depth } => {
                    found.count_branch(&mut open, relative_depth as usize, None);
                }
                Operator::BrIf { relative_depth } => {
                    found.count_branch(&mut open, relative_depth as usize, None);
                    found.branches += 1;
                }
                Operator::BrTable { targets } => {
                    tables += 1;
                    found.count_branch(&mut open, targets.default() as usize, Some(tables));
                    for target in targets.targets() {
                        found.count_branch(&mut open, target? as usize, Some(tables));
                    }
                }
                // Table elements are initialised on first use, which adds branches.
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
        Open { is_loop, passed, meets: false, incoming_branches: 0, last_table: 0 }
    }

    /// Counts a branch out of `out_of` blocks, as part of branch table `table` if it is in one. A
    /// branch out of all blocks ends the function.
    fn count_branch(&mut self, open: &mut [Open], out_of: usize, table: Option<usize>) {
        self.branches += 1;
        let at = open.len().checked_sub(1 + out_of);
        if let Some(block) = at.and_then(|at| open.get_mut(at)) {
            self.passed += block.passed;
            block.meets |= !block.is_loop;
            // Branches of one table to the same block count once.
            if table.is_none_or(|table| table != block.last_table) {
                block.incoming_branches += 1;
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
