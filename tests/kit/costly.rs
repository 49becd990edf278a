//! Builds modules that are designed to cost the compiler more than their size suggests.

/// Maximum size of a function's body in a program, in bytes.
pub const FUNCTION: usize = 128 << 10;
/// Maximum size of a program's module, in bytes.
pub const MODULE: usize = 2 << 20;

const I32: u8 = 0x7f;
const I64: u8 = 0x7e;
const F64: u8 = 0x7c;
const FUNCREF: u8 = 0x70;
const EXTERNREF: u8 = 0x6f;

fn leb(mut number: usize) -> Vec<u8> {
    let mut out = Vec::new();
    loop {
        let byte = (number & 0x7f) as u8;
        number >>= 7;
        if number == 0 {
            out.push(byte);
            return out;
        }
        out.push(byte | 0x80);
    }
}

fn vector(items: &[Vec<u8>]) -> Vec<u8> {
    [leb(items.len()), items.concat()].concat()
}

fn name(text: &str) -> Vec<u8> {
    [leb(text.len()), text.as_bytes().to_vec()].concat()
}

fn function_type(params: &[u8], results: &[u8]) -> Vec<u8> {
    let list = |types: &[u8]| [leb(types.len()), types.to_vec()].concat();
    [vec![0x60], list(params), list(results)].concat()
}

/// A function's body: its local variables by type, and its code without the last `end`.
#[derive(Clone)]
pub struct Body {
    locals: Vec<(usize, u8)>,
    code: Vec<u8>,
}

impl Body {
    fn new(locals: &[(usize, u8)], code: Vec<u8>) -> Self {
        Self { locals: locals.to_vec(), code }
    }

    fn bytes(&self) -> Vec<u8> {
        let locals = self.locals.iter().map(|(count, ty)| [leb(*count), vec![*ty]].concat());
        [vector(&locals.collect::<Vec<_>>()), self.code.clone(), vec![0x0b]].concat()
    }
}

/// A module that is acceptable as a program as far as its imports and exports go. The functions of
/// `bodies` have type 2, without parameters and results, and are numbered from 2 on; type 3 has 32
/// `i64` parameters.
#[derive(Default)]
pub struct Module {
    types: Vec<Vec<u8>>,
    imports: Vec<Vec<u8>>,
    tables: Vec<Vec<u8>>,
    globals: Vec<Vec<u8>>,
    exports: Vec<Vec<u8>>,
    elements: Vec<Vec<u8>>,
    bodies: Vec<Body>,
    data: Vec<Vec<u8>>,
}

impl Module {
    fn of(bodies: Vec<Body>) -> Self {
        Self { bodies, ..Self::default() }
    }

    /// Returns a module of `functions` functions with the same body.
    fn repeated(body: &Body, functions: usize) -> Self {
        Self::of(vec![body.clone(); functions])
    }

    fn bytes(&self) -> Vec<u8> {
        let section = |id: u8, items: &[Vec<u8>]| match items.is_empty() {
            true => Vec::new(),
            false => {
                let content = vector(items);
                [vec![id], leb(content.len()), content].concat()
            }
        };
        let mut types = vec![
            function_type(&[I64, I64], &[I64]),
            function_type(&[], &[I64]),
            function_type(&[], &[]),
            function_type(&[I64; 32], &[]),
        ];
        types.extend(self.types.iter().cloned());
        let emit = [name("x"), name("9"), vec![0], leb(0)].concat();
        let imports = [vec![emit], self.imports.clone()].concat();
        let functions: Vec<_> =
            std::iter::once(leb(1)).chain(self.bodies.iter().map(|_| leb(2))).collect();
        let go = leb(imports.len());
        let mut exports =
            vec![[name("memory"), vec![2, 0]].concat(), [name("go"), vec![0], go].concat()];
        exports.extend(self.exports.iter().cloned());
        // Calls the imported emit function, so that the import is used.
        let first = Body::new(&[], vec![0x42, 0, 0x42, 0, 0x10, 0]);
        let bodies: Vec<_> = std::iter::once(&first)
            .chain(&self.bodies)
            .map(|body| {
                let bytes = body.bytes();
                [leb(bytes.len()), bytes].concat()
            })
            .collect();
        [
            b"\0asm\x01\0\0\0".to_vec(),
            section(1, &types),
            section(2, &imports),
            section(3, &functions),
            section(4, &self.tables),
            section(5, &[vec![0, 1]]),
            section(6, &self.globals),
            section(7, &exports),
            section(9, &self.elements),
            section(10, &bodies),
            section(11, &self.data),
        ]
        .concat()
    }
}

fn get(local: usize) -> Vec<u8> {
    [vec![0x20], leb(local)].concat()
}

fn set(local: usize) -> Vec<u8> {
    [vec![0x21], leb(local)].concat()
}

/// Repeats a piece of code up to a size in bytes.
fn filled(bytes: usize, piece: impl Fn(usize) -> Vec<u8>) -> Vec<u8> {
    let mut code = Vec::new();
    for number in 0.. {
        let next = piece(number);
        if code.len() + next.len() > bytes {
            break;
        }
        code.extend(next);
    }
    code
}

/// Returns code that reads each local variable once.
fn uses(locals: usize) -> Vec<u8> {
    (0..locals).flat_map(|local| [get(local), vec![0x1a]].concat()).collect()
}

const IF: [u8; 2] = [0x04, 0x40];
const BLOCK: [u8; 2] = [0x02, 0x40];
const LOOP: [u8; 2] = [0x03, 0x40];
const END: u8 = 0x0b;

/// As many empty `if`s as fit, followed by a use of each local variable: the compiler resolves each
/// variable through every point where control flow joins.
pub fn joins(functions: usize, locals: usize, bytes: usize) -> Vec<u8> {
    let uses = uses(locals);
    let piece = [get(0), IF.to_vec(), vec![END]].concat();
    let code = [filled(bytes - uses.len() - 600, |_| piece.clone()), uses].concat();
    Module::repeated(&Body::new(&[(locals, I32)], code), functions).bytes()
}

/// Returns a module with this spec, and with `bytes` bytes of data.
pub fn module_with_spec(spec: &[u8], bytes: usize) -> Vec<u8> {
    let segment = [vec![0, 0x41, 0, END], leb(bytes), vec![7; bytes]].concat();
    let module = Module { data: vec![segment], ..Module::default() };
    let custom = [name("contractspecv0"), spec.to_vec()].concat();
    [module.bytes(), vec![0], leb(custom.len()), custom].concat()
}

/// Returns other shapes with their names; most modules have `functions` functions of up to `bytes`
/// bytes.
pub fn shapes(functions: usize, bytes: usize) -> Vec<(&'static str, Vec<u8>)> {
    let room = bytes - 64;
    let repeat = |locals: &[(usize, u8)], code: Vec<u8>| {
        Module::repeated(&Body::new(locals, code), functions).bytes()
    };
    // A number of variables that makes branches over them as costly as the check still allows.
    let locals = 512;
    let after = |code: Vec<u8>| [code, uses(locals)].concat();
    let room_before = room.saturating_sub(uses(locals).len());
    let add_one = |local: usize| [get(local), vec![0x41, 1, 0x6a], set(local)].concat();
    let mut shapes = vec![
        ("ifs that set a variable", {
            let piece = |n: usize| [get(0), IF.to_vec(), add_one(n % locals), vec![END]].concat();
            repeat(&[(locals, I32)], after(filled(room_before, piece)))
        }),
        ("branches out of one block, each after a variable was set", {
            let piece = |n: usize| [add_one(n % locals), get(0), vec![0x0d, 0]].concat();
            let code = [BLOCK.to_vec(), filled(room_before - 8, piece), vec![END]].concat();
            repeat(&[(locals, I32)], after(code))
        }),
        ("branches out of one block", {
            let piece = |_| [add_one(0), get(0), vec![0x0d, 0]].concat();
            let code = [BLOCK.to_vec(), filled(room - 8, piece), vec![END]].concat();
            repeat(&[(1, I32)], code)
        }),
        ("tables of branches", {
            let blocks = 200;
            let table: Vec<u8> = (0..blocks).flat_map(leb).chain(leb(0)).collect();
            let one = [get(0), vec![0x0e], leb(blocks), table].concat();
            let piece = |_| {
                let open = BLOCK.repeat(blocks);
                let ends: Vec<u8> =
                    (0..blocks).flat_map(|n| [vec![END], add_one(n % locals)].concat()).collect();
                [open, one.clone(), ends].concat()
            };
            repeat(&[(locals, I32)], after(filled(room_before, piece)))
        }),
        ("loops one after the other", {
            let piece = |n: usize| [LOOP.to_vec(), add_one(n % 16), vec![END]].concat();
            repeat(&[(16, I32)], filled(room, piece))
        }),
        ("blocks within one another", {
            let half = room / 3;
            let code = [BLOCK.repeat(half), vec![END; half]].concat();
            repeat(&[(1, I32)], code)
        }),
        ("ifs within one another, each with an else that sets a variable", {
            let open = [get(0), IF.to_vec()].concat();
            let close = |n: usize| [vec![0x05], add_one(n % 64), vec![END]].concat();
            let deep = room / (open.len() + close(63).len());
            let code = [open.repeat(deep), (0..deep).flat_map(close).collect()].concat();
            repeat(&[(64, I32)], code)
        }),
        ("selects", {
            let piece = |n: usize| {
                [get(n % 64), get((n + 1) % 64), get((n + 2) % 64), vec![0x1b], set(n % 64)]
                    .concat()
            };
            repeat(&[(64, I32)], filled(room, piece))
        }),
        ("a deep stack of values, and branches over it", {
            let values = room / 16;
            let push: Vec<u8> = [get(0), vec![0x29, 3, 0]].concat().repeat(values);
            let middle = [get(0), IF.to_vec(), vec![END]].concat().repeat(room / 16);
            repeat(&[(1, I32)], [push, middle, vec![0x1a; values]].concat())
        }),
        ("loads and stores", {
            let piece = |n: usize| {
                let at = leb(n * 8 % 60_000);
                let load = [get(0), vec![0x29, 3], at.clone()].concat();
                [get(0), load, vec![0x37, 3], at].concat()
            };
            repeat(&[(1, I32)], filled(room, piece))
        }),
        ("sums of floating point numbers", {
            let piece = |_| [get(0), get(1), vec![0xa0], get(1), vec![0xa2], set(0)].concat();
            repeat(&[(2, F64)], filled(room, piece))
        }),
        ("divisions and conversions", {
            let piece =
                |_| [get(0), get(1), vec![0x7f], get(1), vec![0x81, 0xb9, 0xb0], set(0)].concat();
            repeat(&[(2, I64)], filled(room, piece))
        }),
        ("saturating conversions", {
            let piece = |_| [get(0), vec![0xfc, 6, 0xb9], set(0)].concat();
            repeat(&[(1, F64)], filled(room, piece))
        }),
        ("products of themselves", {
            let piece = |n: usize| {
                [get(0), get(0), vec![0x7e, 0x42], leb(n % 64), vec![0x7c], set(0)].concat()
            };
            repeat(&[(1, I64)], filled(room, piece))
        }),
        ("calls", repeat(&[], filled(room, |_| vec![0x10, 1, 0x1a]))),
        ("calls through a table", {
            let piece = |_| [get(0).repeat(32), vec![0x41, 0, 0x11], leb(3), vec![0]].concat();
            let code = filled(room, piece);
            let mut module = Module::repeated(&Body::new(&[(1, I64)], code), functions);
            module.tables = vec![vec![FUNCREF, 0, 10]];
            module.bytes()
        }),
        ("calls through a table of what takes nothing", {
            let piece = |_| [vec![0x41, 0, 0x11], leb(2), vec![0]].concat();
            let mut module =
                Module::repeated(&Body::new(&[(1, I64)], filled(room, piece)), functions);
            module.tables = vec![vec![FUNCREF, 0, 10]];
            module.bytes()
        }),
        ("references in a table", {
            let piece = |_| vec![0x41, 0, 0x41, 0, 0x25, 0, 0x26, 0];
            let mut module =
                Module::repeated(&Body::new(&[(1, I64)], filled(room, piece)), functions);
            module.tables = vec![vec![EXTERNREF, 0, 10]];
            module.bytes()
        }),
        ("growing memory", repeat(&[], filled(room, |_| vec![0x41, 0, 0x40, 0, 0x1a]))),
        ("filling and copying memory", {
            let piece = |_| vec![0x41, 0, 0x41, 0, 0x41, 0, 0xfc, 0x0b, 0];
            repeat(&[], filled(room, piece))
        }),
        ("globals", {
            let code = filled(room, |n| {
                [vec![0x23], leb(n % 1_000), vec![0x24], leb((n * 7) % 1_000)].concat()
            });
            let mut module = Module::repeated(&Body::new(&[], code), functions);
            module.globals = vec![vec![I64, 1, 0x42, 0, END]; 1_000];
            module.bytes()
        }),
        ("code that is never reached", {
            let piece = [BLOCK.to_vec(), vec![0x00], get(0), IF.to_vec(), vec![END, END]].concat();
            repeat(&[(64, I32)], filled(room, |_| piece.clone()))
        }),
        ("returns", {
            let piece = [get(0), IF.to_vec(), vec![0x0f, END]].concat();
            repeat(&[(64, I32)], filled(room, |_| piece.clone()))
        }),
    ];
    let whole = functions * bytes;
    shapes.push(("very many small functions", {
        Module::repeated(&Body::new(&[], Vec::new()), (whole / 4).min(19_999)).bytes()
    }));
    shapes.push(("very many types", {
        let types = (0..whole / 8).map(|n| {
            let params: Vec<u8> = (0..5).map(|at| [I32, I64][(n >> at) & 1]).collect();
            function_type(&params, &[])
        });
        Module { types: types.collect(), ..Module::default() }.bytes()
    }));
    shapes.push(("very many imports", {
        let emit = [name("x"), name("9"), vec![0], leb(0)].concat();
        Module { imports: vec![emit; whole / 6], ..Module::default() }.bytes()
    }));
    shapes.push(("very many exports", {
        let export = |n: usize| [name(&format!("f{n}")), vec![0], leb(1)].concat();
        Module { exports: (0..whole / 12).map(export).collect(), ..Module::default() }.bytes()
    }));
    shapes.push(("very many segments of data", {
        let segment = |n: usize| [vec![0, 0x41], leb(n % 64), vec![END, 1, 7]].concat();
        Module { data: (0..(whole / 6).min(90_000)).map(segment).collect(), ..Module::default() }
            .bytes()
    }));
    shapes.push(("very many segments of elements", {
        let segment = vec![0, 0x41, 0, END, 1, 1];
        Module {
            tables: vec![vec![FUNCREF, 0, 10]],
            elements: vec![segment; (whole / 6).min(90_000)],
            ..Module::default()
        }
        .bytes()
    }));
    shapes
}
